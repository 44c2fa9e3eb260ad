"""The benchmarks, one folder each, and their registry. May import plan, run, onnode and below."""
