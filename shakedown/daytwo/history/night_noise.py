"""The noise of nightly values: spread, autocorrelation, tails and odd nights, shared within a metric."""

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
_NEAR = 0.8  # of one side, what is near the level tells little of its tail, and may be printed in few steps
_LEAST_SIZE = 0.5  # of the near scores, against normal ones
_MOST_SORTED = 60_000  # so many of all scores are sorted to learn the tails


@dataclass(frozen=True)
class TailSide:
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

    worse: TailSide
    better: TailSide

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

    def side(of: Floats) -> TailSide:
        share = (len(of) + PRIOR_NIGHTS / 2) / (len(there) + PRIOR_NIGHTS)
        return TailSide(*through_quantiles(of, _NEAR), share)

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
    # Values that stand still, as they are printed, have no scores, and are not without noise.
    size = max(weight * size + (1 - weight) * normal, _LEAST_SIZE * normal)
    return 1 / inverse, size / float(stdtrit(1 / inverse, (1 + near) / 2))


@lru_cache(maxsize=2)
def _table(near: float) -> tuple[Floats, Floats]:
    """Return how far apart both quantiles are, and 1 / freedom for it."""
    from scipy.special import stdtrit

    inverse = np.linspace(0.002, 1.0, 200)
    return stdtrit(1 / inverse, (1 + _TAIL) / 2) / stdtrit(1 / inverse, (1 + near) / 2), inverse


# Thirty nights of one series know its spread to 13 % and its autocorrelation to 0.18, too little for a rate
# of one false alarm in a thousand years. All nodes measure the same metric, so what thirty nights of one
# leave open is taken from all (empirical Bayes; variances as in Smyth, Stat. Appl. Genet. Mol. Biol. 3,
# 2004).


CLIP = 3.0  # residuals beyond this many spreads are drawn in before they count, while learning and after
# What is believed of a series alone, without others of its metric: AR(1) of nightly benchmarks on shared
# machines.
PRIOR_AR, PRIOR_AR_SD = 0.2, 0.2
MOST_AR = 0.9
# A worse night with a smaller probability than this, by the tails found, is an odd one: no tail explains it.
ODD_SCORE = 4.0
_ODD_PRIOR_NIGHTS = 1500.0  # one odd night in so many is thought of beside those counted
_OWN_NIGHTS = 200  # what all series show of it weighs as much as so many nights of one at least
_SAME_LEVEL = 0.999  # two nights of one level differ by more in one of a thousand


@dataclass
class NightNoise:
    """What is known of the noise of many series, as arrays by series unless said."""

    spread: Floats  # in the values' unit
    ar: Floats  # correlation from one night to the next, 0 to 0.9
    tail: Floats  # degrees of freedom of the Student's t that has the series' tails
    scale: float  # of that t, in spreads
    odd: Floats  # probability of an odd night for the worse
    new: Tails  # of what the night before did not lead to expect, of all series
    closer: float  # by so much more than `ar` nights are correlated that have no gap between them

    def __post_init__(self) -> None:
        """Raise ArithmeticError for what is no number: compared with one, every loss would look healthy."""
        tails = [one for side in (self.new.worse, self.new.better) for one in (side.freedom, side.scale)]
        for known in (self.spread, self.ar, self.tail, self.odd, (self.scale, self.closer, *tails)):
            if not np.isfinite(known).all():
                raise ArithmeticError(f"the noise of nights cannot be told from these values: {known}")

    def of(self, series: NDArray[np.intp]) -> NightNoise:
        """Return the noise of some series as columns, to stand against their nights."""
        rows = (series, np.newaxis)
        spread, ar, tail, odd = (known[rows] for known in (self.spread, self.ar, self.tail, self.odd))
        return NightNoise(spread, ar, tail, self.scale, odd, self.new, self.closer)

    def lead(self, series: NDArray[np.intp], gaps: NDArray[np.intp]) -> Floats:
        """Return the correlation with the night before, that many nights ago."""
        return _lead(self.ar[series], gaps, self.closer)


def learn(
    residuals: Floats,  # series x nights, about the series' level, in time, NaN after the last
    scores: Floats,  # residuals in the spreads that were known then, NaN where there is none
    when: NDArray[np.intp],  # which night each of them was
    odd: Floats,  # odd nights for the worse that each series had
    nights: Floats,  # nights that were looked at for them
    # The least spread of each: values that are printed in steps may stand still and are not without noise.
    least: Floats,
    *,
    pooled: bool,  # whether the series are of one metric, and share what they know
) -> NightNoise:
    """Return the noise of series."""
    ar = _autocorrelation(residuals, pooled=pooled)
    spread, known = _spread(residuals, ar, least, pooled=pooled)
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
    return NightNoise(spread, ar, tail, scale, _odd(odd, nights, pooled=pooled), new, closer)


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


def normal_scores(z: Floats, noise: NightNoise) -> Floats:
    """Return what a normal value as rare as z would be, by the tails that all series show."""
    # Imported here for its cost: few questions to a history need it.
    from scipy.special import ndtri, stdtr

    size = -ndtri(stdtr(noise.tail, -np.abs(z) / noise.scale))
    return np.asarray(np.sign(z) * size, dtype=np.float64)


def one_level(noise: NightNoise) -> Floats:
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


def _spread(r: Floats, ar: Floats, least: Floats, *, pooled: bool) -> tuple[Floats, Floats]:
    there = np.isfinite(r)
    n = np.maximum(there.sum(axis=1), 2)
    # Nights that hang together are fewer: for the mean by the first factor, for the variance by the second.
    mean_nights = n * (1 - ar) / (1 + ar)
    freedom = np.maximum(n * (1 - ar**2) / (1 + ar**2) - 1, 1.0)
    squares = np.where(there, r**2, 0.0)
    variance = squares.sum(axis=1) / n / np.maximum(1 - 1 / mean_nights, 0.3)
    variance = np.maximum(variance, np.maximum(least**2, 1e-300))
    if not pooled or len(variance) < 3:
        return np.sqrt(variance), freedom
    # The variance of a log variance is about 2 / freedom (trigamma of half of it) where nights are normal.
    # Nights with heavy tails tell less of it: t4 ones, drawn in, as much as seven of ten.
    mean = squares.sum(axis=1) / n
    peaked = (squares**2).sum(axis=1) / n / np.where(mean > 0, mean, 1.0) ** 2  # 1e-300 squared is 0
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
