"""What two nights in a row say of a step: how much more likely they are with one loss in both than without.

A night is expected where the night before leads, as far as neighbouring nights hang together; what is new in
it has the tails that all series show, for the worse and for the better apart (`nighttails`). Two nights that
are off by the same are a step where two that are off as far, but differently, are not. The ratio is the
likelihood over losses of every size from `_SMALLEST` to `_FURTHEST`, none preferred (uniform in the
logarithm), to that of no loss, in which either night, or both, may have been odd.

How often nights without a loss reach a ratio depends on their noise, too: exponential interference reaches
one of 8.8 three times as often as t4. So what a ratio must reach is found for the noise at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.nighttails import Tails

Floats = NDArray[np.float64]

# False alarms of two nights, by the noise found: per night, 0.6 in 1,000 years. The noise is not known that
# well: the benchmark counts what comes of it (tests/bench/bench_alarms.py).
FALSE_PER_NIGHT = 0.6 / 365_000
# However rare larger ratios are: the logarithm that must be reached.
_LEAST = 8.8
# Losses in spreads. What is smaller is for more than two nights to tell: with it, as many false alarms under
# heavy tails would leave fewer of the losses that two nights are enough for.
_SMALLEST, _FURTHEST = 6.0, 25.0
# Losses that are integrated over: around both nights, to where the tails have ended.
_POINTS, _BEYOND = 41, 6.0
# Odd nights are off by sizes of two powers of ten, none preferred: logarithm of the largest to the smallest.
_ODD_SIZES = 4.6
# A night before that was this far off, in spreads, leads no further.
_LEADS = 3.0
# The level's error: where and how much of it (Gauss and Hermite).
_ERRORS, _LIKELY = np.polynomial.hermite_e.hermegauss(5)
# Steps that are drawn to see how often such ratios come of none.
_DRAWN = 4096


@dataclass(frozen=True)
class Nights:
    """What is known of the noise of the nights in question, by row; tails of all."""

    lead: Floats  # rows x 2: correlation of each of the two nights with the one before it
    ar: Floats
    level_nights: Floats  # that the level is known from
    odd: Floats
    tails: Tails

    def log_ratio(self, away: Floats) -> Floats:
        """Return the logarithm of the ratio for each row of three nights against the level, in spreads.

        The first is the night before the two, NaN where it is none of this level.
        """
        before = np.where(np.isfinite(away[:, 0]), away[:, 0], 0.0)
        lead = np.where(np.isfinite(away[:, 0]), self.lead[:, 0], 0.0)
        two = np.minimum(away[:, 1:], _FURTHEST)
        low = np.maximum(two.min(axis=1) - _BEYOND, _SMALLEST)
        high = np.maximum(two.max(axis=1) + _BEYOND, low + 1)
        losses = low + np.linspace(0, 1, _POINTS)[:, None] * (high - low)
        likely = self._together(before, two[:, 0] - losses, two[:, 1] - losses, lead)
        step = np.logaddexp.reduce(likely + np.log((high - low) / (_POINTS - 1) / losses), axis=0)
        inflated = (1 + self.ar) / (1 - self.ar) / self.level_nights
        error = _ERRORS[:, None] * np.sqrt(np.minimum(inflated, 1.0))
        likely = self._together(before - error, two[:, 0] - error, two[:, 1] - error, lead)
        nothing = np.logaddexp.reduce(likely + np.log(_LIKELY / _LIKELY.sum())[:, None], axis=0)
        # An odd night is off by any size, as a step is.
        odd = np.log(self.odd[:, None] / _ODD_SIZES / np.maximum(two, 1.0))
        alone = self.tails.log_density(two)
        for other in (odd[:, 0] + alone[:, 1], odd[:, 1] + alone[:, 0], odd.sum(axis=1)):
            nothing = np.logaddexp(nothing, other)
        return np.asarray(step - nothing)

    def is_step(self, away: Floats) -> NDArray[np.bool_]:
        """Return which rows of `log_ratio` are a step."""
        ratio = self.log_ratio(away)
        step = ratio > _LEAST
        for row in np.flatnonzero(step):
            lead, ar = round(float(self.lead[row, 1]), 1), round(float(self.ar[row]), 1)
            odd = float(f"{self.odd[row]:.0e}")
            step[row] = ratio[row] > limit(lead, ar, float(self.level_nights[row]), odd, self.tails)
        return np.asarray(step)

    def _together(self, before: Floats, first: Floats, second: Floats, lead: Floats) -> Floats:
        """Return the log density of two nights after the one before."""
        next_lead = self.lead[:, 1]
        new = np.sqrt(1 - lead**2), np.sqrt(1 - next_lead**2)
        first_new = (first - lead * np.clip(before, -_LEADS, _LEADS)) / new[0]
        second_new = (second - next_lead * first) / new[1]
        both = self.tails.log_density(first_new) + self.tails.log_density(second_new)
        return np.asarray(both - np.log(new[0] * new[1]))


@lru_cache(maxsize=64)
def limit(
    lead: float, ar: float, level_nights: float, odd: float, tails: Tails, share: float = FALSE_PER_NIGHT
) -> float:
    """Return the logarithm of a ratio that no more than that share of nights without a loss reaches.

    Steps are drawn and not their absence, which would take millions of nights: a ratio r comes as often
    without a step as with one, divided by r.
    """
    # Points that fill the cube evenly (Roberts 2018: multiples of the powers of the root of x^5 = x + 1).
    even = 1.1673039782614187 ** -np.arange(1, 5)
    u = (0.5 + np.arange(1, _DRAWN + 1)[:, None] * even) % 1
    sizes = np.log(_FURTHEST / _SMALLEST)
    new = tails.quantile(np.clip(u[:, 1:], 1e-9, 1 - 1e-9))
    nights = new.copy()
    for night in (1, 2):
        nights[:, night] = lead * nights[:, night - 1] + np.sqrt(1 - lead**2) * new[:, night]
    nights[:, 1:] += _SMALLEST * np.exp(u[:, :1] * sizes)
    one = np.ones(_DRAWN)
    drawn = Nights(np.full((_DRAWN, 2), lead), ar * one, level_nights * one, odd * one, tails)
    ratios = np.sort(drawn.log_ratio(nights))[::-1]
    false = sizes * np.cumsum(np.exp(-ratios)) / _DRAWN
    return float(ratios[min(int(np.searchsorted(false, share)), _DRAWN - 1)])
