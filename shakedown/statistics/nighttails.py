"""The tails of nightly noise: Student's t through two quantiles, of both sides together or of each apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# What is believed of the tails before there are nights: a little heavier than normal, as much as so many.
PRIOR_FREEDOM, PRIOR_NIGHTS = 8.0, 500.0
# Odd nights are counted apart: this far out the tails still hold where one night in a hundred is odd. At
# 99.5 % half of what lies beyond were odd nights, and no loss would stand out of the tails made of them.
_TAIL = 0.98
# Of one side, what is near the level tells little of its tail, and may be printed in few steps.
_NEAR = 0.8
# So many of all scores are sorted to learn the tails.
_MOST_SORTED = 60_000


@dataclass(frozen=True)
class Side:
    """The worse or the better nights: half of a t with that share of all nights."""

    freedom: float
    scale: float
    share: float

    def log_density(self, z: Floats) -> Floats:
        """Return the logarithm of the density at z."""
        from scipy.special import gammaln

        height = gammaln((self.freedom + 1) / 2) - gammaln(self.freedom / 2)
        height += np.log(2 * self.share / self.scale) - np.log(self.freedom * np.pi) / 2
        far = np.log1p((z / self.scale) ** 2 / self.freedom)
        return np.asarray(height - (self.freedom + 1) / 2 * far)

    def reached(self, rarity: Floats) -> Floats:
        """Return the size that this share of all nights reaches on this side, of its own share at most."""
        from scipy.special import stdtrit

        return np.asarray(-self.scale * stdtrit(self.freedom, np.minimum(rarity / self.share, 1.0) / 2))


@dataclass(frozen=True)
class Tails:
    """How what is new in a night is distributed, in spreads; more is worse."""

    worse: Side
    better: Side

    def log_density(self, z: Floats) -> Floats:
        """Return the logarithm of the density at z."""
        return np.where(z > 0, self.worse.log_density(z), self.better.log_density(z))

    def less_known(self, freedom: float) -> Tails:
        """Return the tails of scores whose spread is known from so many nights only."""
        worse, better = (
            replace(side, freedom=1 / (1 / side.freedom + 1 / freedom)) for side in (self.worse, self.better)
        )
        return Tails(worse, better)

    def quantile(self, below: Floats) -> Floats:
        """Return the value that this share of nights stays below; 0 < below < 1."""
        above = 1 - below
        worse = above < self.worse.share
        return np.where(worse, self.worse.reached(above), -self.better.reached(below))


def both_sides(new: Floats) -> Tails:
    """Return the tails of what is new in nights, NaN where there is none."""
    there = new[np.isfinite(new)]

    def side(of: Floats) -> Side:
        share = (len(of) + PRIOR_NIGHTS / 2) / (len(there) + PRIOR_NIGHTS)
        return Side(*through_quantiles(of, _NEAR), share)

    return Tails(side(there[there > 0]), side(-there[there <= 0]))


def through_quantiles(scores: Floats, near: float = 0.5) -> tuple[float, float]:
    """Return freedom and scale of the t with the same `near` quantile and 98 % point as |scores|."""
    from scipy.special import ndtri, stdtrit

    found = np.abs(scores[np.isfinite(scores)])
    if len(found) > _MOST_SORTED:
        found = found[:: len(found) // _MOST_SORTED + 1]
    weight = len(found) / (len(found) + PRIOR_NIGHTS)
    normal = float(ndtri((1 + near) / 2))
    inverse, size = 1 / PRIOR_FREEDOM, normal
    if len(found) >= 100:
        size, far = (float(q) for q in np.quantile(found, (near, _TAIL)))
        ratios, inverses = _table(near)
        inverse = float(np.interp(far / max(size, 1e-12), ratios, inverses))
    inverse = weight * inverse + (1 - weight) / PRIOR_FREEDOM
    size = weight * size + (1 - weight) * normal
    return 1 / inverse, size / float(stdtrit(1 / inverse, (1 + near) / 2))


@lru_cache(maxsize=2)
def _table(near: float) -> tuple[Floats, Floats]:
    """Return how far apart both quantiles are, and 1 / freedom for it."""
    from scipy.special import stdtrit

    inverse = np.linspace(0.002, 1.0, 200)
    return stdtrit(1 / inverse, (1 + _TAIL) / 2) / stdtrit(1 / inverse, (1 + near) / 2), inverse
