"""Which results can show that an end is slow, where nodes of several kinds differ in what they reach.

A flow is as fast as its slower end. An end that lost 2 % does not show it with partners that are 3 % slower
anyway, so it is measured by the others; with the slower ones it shows what it lost beyond their difference.
"""

from __future__ import annotations

import numpy as np

from shakedown.judge.localise.groups import Family, Groups, Stats
from shakedown.judge.localise.levels import Deviations
from shakedown.judge.localise.model import Floats

# A line that has fewer results with partners as fast as itself is measured by all of them.
_FEWEST = 3


def measured(residual: Floats, seen: Deviations, groups: Groups, sigma: float) -> tuple[Stats, Stats]:
    """Return what `Groups.measure` does, every line by those of its results that can show it is slow."""
    if seen.slack is None:
        return groups.measure(residual, sigma)
    return groups.measure(
        residual, sigma, (_telling(residual, seen.slack, 2), _telling(residual, -seen.slack, 1))
    )


def values_of(residual: Floats, seen: Deviations, groups: Groups, family: Family, index: int) -> Floats:
    """Return the results of a candidate that can show that it is slow."""
    if not _is_end(family):
        own: Floats = residual[groups.cells(family, index)]
        return np.asarray(own[np.isfinite(own)])
    parts = []
    for rail, place in groups.lines_of(family, index):
        if seen.slack is None:
            parts.append(residual[rail][place])
            continue
        # A line by itself, so that few results of it are taken for few.
        axis = 2 if place[1] == slice(None) else 1
        line = residual[rail][place][None, None, :]
        slack = (seen.slack if axis == 2 else -seen.slack)[rail][place][None, None, :]
        parts.append(_telling(line, slack, 2).ravel())
    values = np.concatenate(parts)
    return np.asarray(values[np.isfinite(values)])


def against_other_way(
    residual: Floats, seen: Deviations, groups: Groups, family: Family, index: int, slope: float
) -> Floats:
    """Return the results of a NIC's one way, less what those of its other way with the same partner tell."""
    rail, node = family.keys[index]
    ways = []
    for line, slack in (
        (residual[rail, node, :], None if seen.slack is None else seen.slack[rail, node, :]),
        (residual[rail, :, node], None if seen.slack is None else -seen.slack[rail, :, node]),
    ):
        ways.append(line if slack is None else _telling(line, slack, 0))
    own, other = ways if family.direction == "tx" else reversed(ways)
    values = own - slope * other
    return np.asarray(values[np.isfinite(values)])


def take_out(
    residual: Floats, seen: Deviations, groups: Groups, family: Family, index: int, effect: float
) -> None:
    """Subtract an effect from all results of a candidate, as far as it shows in each."""
    if seen.slack is None or not _is_end(family):
        residual[groups.cells(family, index)] -= effect
        return
    for rail, place in groups.lines_of(family, index):
        slack = seen.slack[rail][place] if place[1] == slice(None) else -seen.slack[rail][place]
        residual[rail][place] -= np.minimum(0.0, effect + np.maximum(0.0, slack))


def _is_end(family: Family) -> bool:
    return family.kind in {"nic", "node"}


def _telling(residual: Floats, slack: Floats, axis: int) -> Floats:
    """Return the results without those whose far end is the slower one, where enough are left."""
    kept = np.where(slack > 0, np.nan, residual)
    enough = np.isfinite(kept).sum(axis=axis, keepdims=True) >= _FEWEST
    return np.where(enough, kept, residual)
