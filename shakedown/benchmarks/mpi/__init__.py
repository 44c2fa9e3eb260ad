"""Collective stage: MPI ping-pong and a checked all-reduce."""
