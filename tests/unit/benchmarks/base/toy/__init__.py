"""Node stage: how fast a node's local disk writes."""
