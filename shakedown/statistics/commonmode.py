"""What all nodes of a metric do together in a night: taken out of each node, and told as the fleet's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.robust import SMALLEST_CLASS

Floats = NDArray[np.float64]

# Nights that a node must have before it says anything about the others.
_KNOWN_NIGHTS = 5

# Beyond so many median deviations from the centre a node says nothing of it: three standard deviations. The
# usual 4.685 takes in a quarter that lost as much, and tells of a loss of all.
_REACH, _ROUNDS = 3 * 1.4826, 4


def split_common(values: Floats) -> tuple[Floats, Floats]:
    """Return (each node's values without what all did, the common factor by night).

    Args:
        values: nodes x nights, in time; NaN where there is no value.

    The factor of a night is the centre over the nodes of their value against their own level; fewer than half
    of the nodes may be ill without moving it far. It is NaN, and what was last known is taken out, on nights
    that fewer than six known nodes measured. Only nights before count: no later night changes an alarm.

    A node's level is the median of its first nights, and then moves as far as the night's centre weighs it:
    over all nodes that sums to nothing. Levels that are means would follow one-sided noise, whose mean is not
    its centre, and each night's factor would push them on.
    """
    count, nights = values.shape
    level, seen = np.zeros(count), np.zeros(count)
    first = np.full((count, _KNOWN_NIGHTS), np.nan)
    common = np.full(nights, np.nan)
    own = np.full_like(values, np.nan)
    last = 1.0
    for night in range(nights):
        x = values[:, night]
        there = np.isfinite(x)
        known = there & (seen >= _KNOWN_NIGHTS) & (level != 0)
        weight = np.zeros(count)
        if known.sum() >= SMALLEST_CLASS:
            last, weight[known] = _centre(x[known] / level[known])
            common[night] = last
        if last <= 0:  # no factor: the values change their sign
            last, common[night], weight[:] = 1.0, np.nan, 0.0
        own[there, night] = x[there] / last
        new = np.flatnonzero(there & (seen < _KNOWN_NIGHTS))
        first[new, seen[new].astype(np.intp)] = own[new, night]
        seen += there
        if len(new):
            level[new] = np.nanmedian(first[new], axis=1)
        level += weight * (np.where(known, own[:, night], level) - level) / np.maximum(seen, 1)
    return own, common


def _centre(shares: Floats) -> tuple[float, Floats]:
    """Return the biweight centre (Mosteller and Tukey 1977), and what each share weighs in it.

    A tenth that is sick does not move it. It would move a median by an eighth of the noise of a night, away
    from what is to be found.
    """
    centre, weight = float(np.median(shares)), np.zeros_like(shares)
    reach = _REACH * float(np.median(np.abs(shares - centre)))
    for _ in range(_ROUNDS if reach > 0 else 0):
        weight = np.maximum(1 - ((shares - centre) / reach) ** 2, 0.0) ** 2
        centre = float((weight * shares).sum() / weight.sum())
    return centre, weight
