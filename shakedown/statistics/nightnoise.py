"""The noise of nightly values: spread, autocorrelation, tails and odd nights, shared within a metric.

Thirty nights of one series know its spread to 13 % and its autocorrelation to 0.18, too little for a rate of
one false alarm in a thousand years. All nodes measure the same metric, so what thirty nights of one leave
open is taken from all (empirical Bayes; variances as in Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.nighttails import Tails, both_sides, through_quantiles

Floats = NDArray[np.float64]

# Residuals beyond this many spreads are drawn in before they count, while learning and after.
CLIP = 3.0
# What is believed of a series alone, without others of its metric: AR(1) of nightly benchmarks on shared
# machines.
PRIOR_AR, PRIOR_AR_SD = 0.2, 0.2
MOST_AR = 0.9
# A worse night with a smaller probability than this, by the tails found, is an odd one: no tail explains it.
ODD_SCORE = 4.0
# One odd night in so many is thought of beside those counted.
_ODD_PRIOR_NIGHTS = 1500.0
# What all series show of it weighs as much as so many nights of one at least.
_OWN_NIGHTS = 200
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
    new: Tails  # of what the night before did not lead to expect, of all series
    closer: float  # by so much more than `ar` nights are correlated that have no gap between them

    def of(self, series: NDArray[np.intp]) -> Noise:
        """Return the noise of some series as columns, to stand against their nights."""
        rows = (series, np.newaxis)
        spread, ar, tail, odd = (known[rows] for known in (self.spread, self.ar, self.tail, self.odd))
        return Noise(spread, ar, tail, self.scale, odd, self.new, self.closer)

    def lead(self, series: NDArray[np.intp], gaps: NDArray[np.intp]) -> Floats:
        """Return the correlation with the night before, that many nights ago."""
        return _lead(self.ar[series], gaps, self.closer)


def learn(
    residuals: Floats, scores: Floats, when: NDArray[np.intp], odd: Floats, nights: Floats, *, pooled: bool
) -> Noise:
    """Return the noise of series.

    Args:
        residuals: series x nights, about the series' level, in time, NaN after the last.
        scores: residuals in the spreads that were known then, NaN where there is none.
        when: which night each of them was.
        odd: odd nights for the worse that each series had.
        nights: nights that were looked at for them.
        pooled: whether the series are of one metric, and share what they know.
    """
    ar = _autocorrelation(residuals, pooled=pooled)
    spread, known = _spread(residuals, ar, pooled=pooled)
    shown = scores if pooled else scores[:0]
    freedom, scale = through_quantiles(shown)
    tail = np.full(len(spread), freedom)
    if not pooled:  # the tails that all show have in them how little is known of each spread
        tail = 1 / (1 / tail + 1 / known)
    gaps = np.diff(when, axis=1)
    closer = _closer(residuals, gaps == 1) if pooled else 0.0
    lead = _lead(ar[:, None], gaps, closer)
    new = both_sides(_new(shown, lead[: len(shown)]))
    if not pooled:
        new = new.less_known(float(known.min()))
    return Noise(spread, ar, tail, scale, _odd(odd, nights, pooled=pooled), new, closer)


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


def _lead(ar: Floats, gaps: NDArray[np.intp], closer: float) -> Floats:
    return np.asarray(np.minimum(ar + np.where(gaps == 1, closer, 0.0), MOST_AR))


def _products(r: Floats) -> tuple[Floats, Floats]:
    """Return for each two neighbouring nights their product and mean square, 0 where one is missing."""
    both = np.isfinite(r[:, 1:]) & np.isfinite(r[:, :-1])
    product, square = r[:, 1:] * r[:, :-1], (r[:, 1:] ** 2 + r[:, :-1] ** 2) / 2
    return np.where(both, product, 0.0), np.where(both, square, 0.0)


def _closer(r: Floats, close: NDArray[np.bool_]) -> float:
    """Return by how much more nights without a gap between are correlated than all, over all series."""
    product, square = _products(r)
    # Each series weighs the same, however wide its noise.
    every = 1 / np.maximum(square.mean(axis=1, keepdims=True), 1e-300)
    product, square = product * every, square * every
    close = close & (square > 0)
    if close.sum() == (square > 0).sum() or not close.any():
        return 0.0
    return max(float(product[close].sum() / square[close].sum() - product.sum() / square.sum()), 0.0)


def _autocorrelation(r: Floats, *, pooled: bool) -> Floats:
    products, squares = _products(r)
    n = np.maximum((squares > 0).sum(axis=1), 1)
    raw = products.sum(axis=1) / np.maximum(squares.sum(axis=1), 1e-300)
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
    squares = np.where(there, r**2, 0.0)
    variance = squares.sum(axis=1) / n / np.maximum(1 - 1 / mean_nights, 0.3)
    variance = np.maximum(variance, 1e-300)
    if not pooled or len(variance) < 3:
        return np.sqrt(variance), freedom
    # The variance of a log variance is about 2 / freedom (trigamma of half of it) where nights are normal.
    # Nights with heavy tails tell less of it: t4 ones, drawn in, as much as seven of ten.
    peaked = (squares**2).sum(axis=1) / n / np.maximum(squares.sum(axis=1) / n, 1e-300) ** 2
    freedom = freedom * 2 / np.clip(float(np.mean(peaked)) - 1, 1.0, 8.0)
    logs = np.log(variance) + 1 / freedom
    own = 2 / freedom
    weight = 1 / own
    centre = float((weight * logs).sum() / weight.sum())
    shared = 2 / max(_between(squares, there), 2 / 1000)
    held = (shared * np.exp(centre) + freedom * variance) / (shared + freedom)
    return np.sqrt(held), freedom + shared


def _between(squares: Floats, there: NDArray[np.bool_]) -> float:
    """Return how much the logarithms of variances differ between series, and a standard error more.

    It is what the first and the second half of the nights have in common, however heavy the tails.
    """
    place = there.cumsum(axis=1)
    first = place <= place[:, -1:] // 2
    halves = [
        np.where(half, squares, 0.0).sum(axis=1) / np.maximum((half & there).sum(axis=1), 1)
        for half in (first, ~first)
    ]
    # A series that did not move for half of its nights is not to speak for all.
    covariance = np.cov(np.log(np.maximum(halves, max(1e-4 * float(np.median(halves)), 1e-300))))
    error = np.sqrt((covariance[0, 0] * covariance[1, 1] + covariance[0, 1] ** 2) / len(squares))
    return float(covariance[0, 1] + error)


def _new(scores: Floats, lead: Floats) -> Floats:
    """Return what each night has that the night before did not lead to expect."""
    lead = np.where(np.isfinite(scores[:, :-1]), lead, 0.0)
    before = np.clip(np.nan_to_num(scores[:, :-1]), -CLIP, CLIP)
    new = scores.copy()
    new[:, 1:] = (scores[:, 1:] - lead * before) / np.sqrt(1 - lead**2)
    return new


def _odd(odd: Floats, nights: Floats, *, pooled: bool) -> Floats:
    """Return the probability of an odd night, of each series' own count and everyone's share."""
    total, looked = (float(odd.sum()), float(nights.sum())) if pooled else (0.0, 0.0)
    share = max((total + 1) / (looked + _ODD_PRIOR_NIGHTS), 1e-4)
    # One odd night may be chance: a series' own count begins with the second.
    if not pooled:
        return np.asarray((np.maximum(odd - 1, 0) + share * _OWN_NIGHTS) / (nights + _OWN_NIGHTS))
    # How much of a series' own count is believed follows from how much more the counts differ than chance
    # makes them (negative binomial by moments, and a standard error more).
    mean = share * float(nights.mean())
    chance = np.sqrt((mean + 2 * mean**2) / len(odd))
    more = max(float(np.mean((odd - share * nights) ** 2)) - mean + float(chance), 1e-300)
    weight = max(share * nights.mean() ** 2 / more, _OWN_NIGHTS)
    own = (np.maximum(odd - 1, 0) + share * weight) / (nights + weight)
    # A series that had none was lucky, no better than the others.
    return np.asarray(np.maximum(own, share), dtype=np.float64)
