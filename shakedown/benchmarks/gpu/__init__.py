"""Node stage: the state of every GPU, and nvbandwidth."""
