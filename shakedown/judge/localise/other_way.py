"""What a NIC loses one way beyond what its other way tells.

Healthy NICs differ, and most of that they may have both ways. Then a NIC that is good by nature and lost 2 %
one way is as slow, that way, as the slowest healthy ones of many, and still far from what its other way lets
expect. That is told by a regression of one way on the other over all other NICs; it takes nothing away where
the two ways have nothing in common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shakedown.judge.localise.model import Bools, Floats
from shakedown.judge.localise.picks import MIN_SIGMA

# A line has a slope, a level and a spread: fewer say nothing of them.
_FEWEST = 5
# Of those that were measured so many must be healthy; else those that seem so may be a heap of equals only.
_MOST = 0.75


@dataclass(frozen=True, eq=False)
class Beyond:
    """What every NIC loses one way beyond what its other way tells.

    Attributes:
        effect: that, in logarithms; NaN where it cannot be told.
        error: standard deviation of that among healthy NICs.
        slope: how much of the other way's effect this way has.
        freedom: of the standard deviation.
    """

    effect: Floats
    error: Floats
    slope: Floats
    freedom: Floats


def beyond_other_way(effect: Floats, other: Floats, healthy: Bools) -> Beyond:
    """Return what is left of each way's effect, and how far a healthy NIC may lie from that.

    A NIC that is asked about has no part in it (the deleted residual of regression), and the error is that of
    a prediction: larger for one whose other way is unlike that of all others.

    Args:
        effect: of one way, of every NIC.
        other: of the other way.
        healthy: which may be.
    """
    there = np.isfinite(effect) & np.isfinite(other)
    kept = healthy & there
    # Near their middle, so that sums of squares lose no digits.
    effect, other = (v - np.median(v[kept]) if kept.any() else v for v in (effect, other))
    many = kept.sum() - kept.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = (v - _without(v, kept) / many for v in (effect, other))
        xx, yy, xy = (
            _without_own(v, w, kept) for v, w in ((effect, effect), (other, other), (effect, other))
        )
        slope = xy / yy
        left = x - slope * y
        variance = np.maximum(xx - slope * xy, 0.0) / (many - 2)
        error = np.sqrt(variance * (1 + 1 / many + y**2 / yy))
    enough = (many >= _FEWEST) & (many >= _MOST * (there.sum() - there.astype(float)))
    told = there & enough & np.isfinite(error) & (yy > many * MIN_SIGMA**2)
    nan = np.full(len(effect), np.nan)
    return Beyond(
        effect=np.where(told, left, nan),
        error=np.where(told, error, nan),
        slope=np.where(told, slope, nan),
        freedom=np.where(told, many - 2.0, 1.0),
    )


def _without(values: Floats, kept: Bools) -> Floats:
    """Return the sum of those kept, for each without itself."""
    own = np.where(kept, values, 0.0)
    return np.asarray(own.sum() - own)


def _without_own(one: Floats, two: Floats, kept: Bools) -> Floats:
    """Return the sum of products about the means of those kept, for each without itself."""
    many = kept.sum() - kept.astype(float)
    with np.errstate(invalid="ignore"):
        products = _without(one * two, kept)
    return np.asarray(products - _without(one, kept) * _without(two, kept) / many)
