"""Collective stage: the same collectives through PyTorch, as a second opinion."""
