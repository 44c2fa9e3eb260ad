"""What all nodes of a metric do together in a night: taken out of each node, and told as the fleet's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.robust import SMALLEST_CLASS

Floats = NDArray[np.float64]

# Nights that a node must have before it says anything about the others.
_KNOWN_NIGHTS = 5
# A node's night this far from its level, as a share, does not move its level.
_FAR = 0.02

# Beyond so many median deviations from the centre a node says nothing of it: three standard deviations. The
# usual 4.685 takes in a quarter that lost as much, and tells of a loss of all.
_REACH, _ROUNDS = 3 * 1.4826, 4


def split_common(values: Floats) -> tuple[Floats, Floats]:
    """Return (each node's values without what all did, the common factor by night).

    Args:
        values: nodes x nights, in time; NaN where there is no value.

    The factor of a night is the median over the nodes of their value against their own level; fewer than half
    of the nodes may be ill without moving it far. It is NaN, and what was last known is taken out, on nights
    that fewer than six known nodes measured. Only nights before count: no later night changes an alarm.
    """
    count, nights = values.shape
    level, seen = np.zeros(count), np.zeros(count)
    common = np.full(nights, np.nan)
    own = np.full_like(values, np.nan)
    last = 1.0
    for night in range(nights):
        x = values[:, night]
        there = np.isfinite(x)
        known = there & (seen >= _KNOWN_NIGHTS) & (level != 0)
        if known.sum() >= SMALLEST_CLASS:
            last = common[night] = _centre(x[known] / level[known])
        if last <= 0:  # no factor: the values change their sign
            last, common[night] = 1.0, np.nan
        own[there, night] = x[there] / last
        away = np.where(there, own[:, night] - level, 0.0)
        limit = np.where(seen >= _KNOWN_NIGHTS, _FAR * np.abs(level), np.inf)
        seen += there
        level += np.where(there, np.clip(away, -limit, limit) / np.maximum(seen, 1), 0.0)
    return own, common


def _centre(shares: Floats) -> float:
    """Return the biweight centre (Mosteller and Tukey 1977), which a tenth that is sick does not move.

    It would move a median by an eighth of the noise of a night, away from what is to be found.
    """
    centre = float(np.median(shares))
    reach = _REACH * float(np.median(np.abs(shares - centre)))
    if reach <= 0:
        return centre
    for _ in range(_ROUNDS):
        weight = np.maximum(1 - ((shares - centre) / reach) ** 2, 0.0) ** 2
        centre = float((weight * shares).sum() / weight.sum())
    return centre
