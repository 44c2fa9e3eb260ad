"""Node stage: whether every GPU computes and remembers right, bit for bit."""
