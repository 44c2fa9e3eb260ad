"""Change points of a series, for history: PELT on the mean (Killick et al. 2012), through `ruptures`."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# A segment is at least so long, so that one odd night or two are no change.
SHORTEST_NIGHTS = 3
SMALLEST_SERIES = 12
# Gain in squared sigmas that a change must bring. Fewer than one healthy series of a year in 1,000 shows a
# change (tests/bench/bench_alarms.py counts them); a step of 2 % at a CV of 0.3 % shows in its third night.
PENALTY = 40.0
# Nights further than this from their neighbours' median are drawn in before the fit.
_CLIP_SIGMAS = 3.0


@dataclass(frozen=True)
class ChangePoint:
    """A lasting step. `night` is the first index of the new level."""

    night: int
    before: float  # mean of the segment before, in the metric's unit
    after: float

    @property
    def step(self) -> float:
        """Relative size, signed as the values are."""
        return (self.after - self.before) / abs(self.before) if self.before else 0.0


def change_points(values: Floats, *, resolution: float = 0.0, smallest: float = 0.003) -> list[ChangePoint]:
    """Return the steps of one series without gaps; none if it has fewer than twelve nights.

    `smallest` is a share of the value: smaller steps are not reported.
    """
    n = len(values)
    if n < SMALLEST_SERIES:
        return []
    sigma = noise(values, resolution)
    z = (values - np.median(values)) / sigma
    middle = _running_median(z)
    z = np.clip(z, middle - _CLIP_SIGMAS, middle + _CLIP_SIGMAS)
    # Loading ruptures costs more than the exact test that it is needed (`_join_costs`); once it is loaded,
    # using it costs less.
    if not _can_change(z) or ("ruptures" not in sys.modules and not _join_costs(z)):
        return []
    import ruptures

    model = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST_NIGHTS).fit(z.reshape(-1, 1))
    ends = [0, *model.predict(pen=PENALTY)]
    means = [float(np.median(values[a:b])) for a, b in pairwise(ends)]
    found = [ChangePoint(ends[i + 1], *pair) for i, pair in enumerate(pairwise(means))]
    return [c for c in found if abs(c.step) >= smallest]


def noise(values: Floats, resolution: float = 0.0) -> float:
    """Return the standard deviation from night to night, which steps and drift do not widen.

    The MAD of first differences x 1.4826 / sqrt 2, not below the resolution or 1e-4 of the value.
    """
    differences = np.abs(np.diff(values))
    floor = max(resolution, 1e-4 * abs(float(np.median(values))), 1e-12)
    return max(float(np.median(differences)) * 1.4826 / math.sqrt(2), floor)


def _running_median(z: Floats) -> Floats:
    padded = np.concatenate([z[:1].repeat(2), z, z[-1:].repeat(2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 5)
    return np.asarray(np.partition(windows, 2, axis=1)[:, 2], dtype=np.float64)


def _can_change(z: Floats) -> bool:
    """Whether the fit could find a change at all; most series need none.

    If it finds one, joining two neighbouring segments would lose the penalty (`_join_costs`); that loss is at
    most what both gain about the common mean, so one segment alone gains half the penalty.
    """
    s = np.concatenate([[0.0], np.cumsum(z - z.mean())])
    sums = np.subtract.outer(s, s)  # of every segment
    return bool(np.any(sums * sums >= _needed(len(s))))


def _join_costs(z: Floats) -> bool:
    """Whether joining some two neighbouring segments would lose the penalty."""
    s = np.concatenate([[0.0], np.cumsum(z - z.mean())])
    for middle in range(SHORTEST_NIGHTS, len(z) - SHORTEST_NIGHTS + 1):
        left = np.arange(SHORTEST_NIGHTS, middle + 1)
        right = np.arange(SHORTEST_NIGHTS, len(z) - middle + 1)
        means = (s[middle] - s[middle - left]) / left, (s[middle + right] - s[middle]) / right
        weight = np.multiply.outer(left, right) / np.add.outer(left, right)
        if np.any(np.subtract.outer(*means) ** 2 * weight >= PENALTY):
            return True
    return False


@lru_cache(maxsize=8)
def _needed(n: int) -> Floats:
    """Return what the squared sum of a segment must reach, for every pair of its ends."""
    length = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.where(length >= SHORTEST_NIGHTS, length * PENALTY / 2, np.inf)
