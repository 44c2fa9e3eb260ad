"""Raw files become measurements and counters. May import benchmarks and below."""
