"""Fabric stage: perftest over all pairs, every rail, both directions."""
