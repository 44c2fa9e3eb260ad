"""Node stage: the way from the CPU to every GPU, and copies over it."""
