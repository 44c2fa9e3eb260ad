"""Node stage: memory bandwidth of every NUMA node, measured as STREAM does."""
