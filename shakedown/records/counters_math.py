"""Arithmetic of counters that run on: the kernel and switches keep them in 64 bits, so they never wrap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def went_back(before: Mapping[str, int], after: Mapping[str, int], names: Iterable[str]) -> bool:
    """Whether any of the counters of these names is less than before."""
    return any(name in before and name in after and after[name] < before[name] for name in names)
