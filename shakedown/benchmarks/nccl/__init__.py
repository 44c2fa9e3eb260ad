"""Collective stage: nccl-tests, with proof from NCCL's own log of which way the data went."""
