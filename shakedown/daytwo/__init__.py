"""After acceptance: compare, sweeps, history, nightly, drain. May import report and below."""
