"""The noise of nightly values: spread, autocorrelation, tails and odd nights, shared within a metric.

Thirty nights of one series know its spread to 13 % and its autocorrelation to 0.18, too little for a rate of
one false alarm in a thousand years. All nodes measure the same metric, so what thirty nights of one leave
open is taken from all (empirical Bayes; variances as in Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Residuals beyond this many spreads are drawn in before they count, while learning and after.
CLIP = 3.0
# What is believed of a series alone, without others of its metric: AR(1) of nightly benchmarks on shared
# machines, and tails a little heavier than normal. Their weights are in series and in nights.
PRIOR_AR, PRIOR_AR_SD = 0.2, 0.2
PRIOR_FREEDOM, PRIOR_NIGHTS = 8.0, 500.0
MOST_AR = 0.9
# A worse night with a smaller probability than this, by the tails found, is an odd one: no tail explains it.
ODD_SCORE = 4.0
# One odd night in so many is thought of beside those counted.
_ODD_PRIOR_NIGHTS = 1500.0
# So many of all scores are sorted to learn the tails.
_MOST_SORTED = 60_000
# Odd nights are counted apart: this far out the tails still hold where one night in a hundred is odd. At
# 99.5 % half of what lies beyond were odd nights, and no loss would stand out of the tails made of them.
_TAIL = 0.98
# Two nights of one level differ by more in one of a thousand.
_SAME_LEVEL = 0.999


@dataclass
class Noise:
    """What is known of the noise of many series, as arrays by series unless said."""

    spread: Floats  # in the values' unit
    ar: Floats  # correlation from one night to the next, 0 to 0.9
    tail: Floats  # degrees of freedom of the Student's t that has the series' tails
    scale: float  # of that t, in spreads
    odd: Floats  # probability of an odd night for the worse

    def of(self, series: NDArray[np.intp]) -> Noise:
        """Return the noise of some series as columns, to stand against their nights."""
        rows = (series, np.newaxis)
        return Noise(self.spread[rows], self.ar[rows], self.tail[rows], self.scale, self.odd[rows])


def learn(residuals: Floats, scores: Floats, odd: Floats, nights: Floats, *, pooled: bool) -> Noise:
    """Return the noise of series.

    Args:
        residuals: series x nights, about the series' level, in time, NaN after the last.
        scores: residuals in the spreads that were known then, NaN where there is none.
        odd: odd nights for the worse that each series had.
        nights: nights that were looked at for them.
        pooled: whether the series are of one metric, and share what they know.
    """
    ar = _autocorrelation(residuals, pooled=pooled)
    spread, known = _spread(residuals, ar, pooled=pooled)
    freedom, scale = _tails(scores if pooled else scores[:0])
    tail = np.full(len(spread), freedom)
    if not pooled:  # the tails that all show have in them how little is known of each spread
        tail = 1 / (1 / tail + 1 / known)
    return Noise(spread, ar, tail, scale, _odd(odd, nights, pooled=pooled))


def first_residuals(values: Floats) -> tuple[Floats, Floats]:
    """Return (level, residuals) of learning nights: a winsorised mean, which odd nights do not move."""
    middle = np.median(values, axis=1)
    spread = np.median(np.abs(values - middle[:, None]), axis=1) * 1.4826
    # A metric of few digits has a MAD of zero and still a spread.
    spread = np.where(spread > 0, spread, np.std(values, axis=1))
    limit = CLIP * spread[:, None]
    level = (middle[:, None] + np.clip(values - middle[:, None], -limit, limit)).mean(axis=1)
    return level, np.clip(values - level[:, None], -limit, limit)


def window_variance(length: int, ar: Floats) -> Floats:
    """Return the variance of the sum of so many neighbouring AR(1) nights of variance 1."""
    total = np.full_like(ar, float(length))
    for lag in range(1, length):
        total += 2 * (length - lag) * ar**lag
    return total


def normal_scores(z: Floats, noise: Noise) -> Floats:
    """Return what a normal value as rare as z would be, by the tails that all series show."""
    # Imported here for its cost: few questions to a history need it.
    from scipy.special import ndtri, stdtr

    size = -ndtri(stdtr(noise.tail, -np.abs(z) / noise.scale))
    return np.asarray(np.sign(z) * size, dtype=np.float64)


def one_level(noise: Noise) -> Floats:
    """Return how far apart two nights of one level can be, in the values' unit, by the tails found."""
    from scipy.special import stdtrit

    far = stdtrit(noise.tail, (1 + _SAME_LEVEL) / 2) * noise.scale
    return np.asarray(np.sqrt(2) * far * noise.spread, dtype=np.float64)


def _autocorrelation(r: Floats, *, pooled: bool) -> Floats:
    both = np.isfinite(r[:, 1:]) & np.isfinite(r[:, :-1])
    n = np.maximum(both.sum(axis=1), 1)
    products = np.where(both, r[:, 1:] * r[:, :-1], 0.0).sum(axis=1)
    squares = np.where(both, (r[:, 1:] ** 2 + r[:, :-1] ** 2) / 2, 0.0).sum(axis=1)
    raw = products / np.maximum(squares, 1e-300)
    # Kendall's correction of the bias downwards (Biometrika 41, 1954).
    found = np.clip(raw + (1 + 3 * raw) / n, -MOST_AR, MOST_AR)
    own = (1 - np.minimum(found, 0.8) ** 2) / n
    if pooled and len(found) > 1:
        weight = 1 / own
        centre = float((weight * found).sum() / weight.sum())
        between = max(float(np.var(found)) - float(own.mean()), 0.05**2)
        # Few series do not know their centre well either: the prior counts as one of them.
        centre = (centre * len(found) + PRIOR_AR) / (len(found) + 1)
    else:
        centre, between = PRIOR_AR, PRIOR_AR_SD**2
    both_know = (found / own + centre / between) / (1 / own + 1 / between)
    # Negative autocorrelation would make charts bolder; it is not believed.
    return np.asarray(np.clip(both_know, 0.0, MOST_AR), dtype=np.float64)


def _spread(r: Floats, ar: Floats, *, pooled: bool) -> tuple[Floats, Floats]:
    there = np.isfinite(r)
    n = np.maximum(there.sum(axis=1), 2)
    # Nights that hang together are fewer: for the mean by the first factor, for the variance by the second.
    mean_nights = n * (1 - ar) / (1 + ar)
    freedom = np.maximum(n * (1 - ar**2) / (1 + ar**2) - 1, 1.0)
    variance = np.where(there, r**2, 0.0).sum(axis=1) / n / np.maximum(1 - 1 / mean_nights, 0.3)
    variance = np.maximum(variance, 1e-300)
    if not pooled or len(variance) < 3:
        return np.sqrt(variance), freedom
    logs = np.log(variance) + 1 / freedom
    # The variance of a log variance is about 2 / freedom (trigamma of half of it).
    own = 2 / freedom
    weight = 1 / own
    centre = float((weight * logs).sum() / weight.sum())
    between = float(np.mean((logs - centre) ** 2) - own.mean())
    shared = 2 / max(between, 2 / 1000)
    held = (shared * np.exp(centre) + freedom * variance) / (shared + freedom)
    return np.sqrt(held), freedom + shared


def _tails(scores: Floats) -> tuple[float, float]:
    """Return freedom and scale of the t whose median and 98 % point are those of |scores|."""
    found = np.abs(scores[np.isfinite(scores)])
    if len(found) > _MOST_SORTED:
        found = found[:: len(found) // _MOST_SORTED + 1]
    weight = len(found) / (len(found) + PRIOR_NIGHTS)
    inverse, median = 1 / PRIOR_FREEDOM, 0.6745
    if len(found) >= 100:
        half, far = (float(q) for q in np.quantile(found, (0.5, _TAIL)))
        ratios, inverses = _tail_table()
        inverse = float(np.interp(far / max(half, 1e-12), ratios, inverses))
        median = half
    inverse = weight * inverse + (1 - weight) / PRIOR_FREEDOM
    median = weight * median + (1 - weight) * 0.6745
    from scipy.special import stdtrit

    return 1 / inverse, median / float(stdtrit(1 / inverse, 0.75))


@lru_cache(maxsize=1)
def _tail_table() -> tuple[Floats, Floats]:
    from scipy.special import stdtrit

    inverse = np.linspace(0.002, 1.0, 200)
    high = 1 - (1 - _TAIL) / 2
    return stdtrit(1 / inverse, high) / stdtrit(1 / inverse, 0.75), inverse


def _odd(odd: Floats, nights: Floats, *, pooled: bool) -> Floats:
    """Return the probability of an odd night, of each series' own count and everyone's share."""
    total, looked = (float(odd.sum()), float(nights.sum())) if pooled else (0.0, 0.0)
    share = max((total + 1) / (looked + _ODD_PRIOR_NIGHTS), 1e-4)
    # One odd night may be chance: a series' own count begins with the second. A series that had none was
    # lucky, no better than the others.
    own = (np.maximum(odd - 1, 0) + share * 200) / (nights + 200)
    return np.asarray(np.maximum(own, share) if pooled else own, dtype=np.float64)
