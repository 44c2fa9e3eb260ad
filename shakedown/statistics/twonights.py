"""What two nights in a row say of a step: how much more likely they are with one loss in both than without.

The night before them tells what they would be if nothing happened, as far as neighbouring nights hang
together. The tails say how far one night is off by itself: two nights that are off by the same are a step
where two that are off as far, but differently, are not. The ratio is the likelihood over losses of every size
from `_SMALLEST` on, none preferred (uniform in the logarithm), to that of no loss, in which either night, or
both, may have been odd.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.nightnoise import CLIP, Noise, normal_scores

Floats = NDArray[np.float64]

# Losses in spreads. What is smaller is for more than two nights to tell: with it, as many false alarms under
# heavy tails would leave fewer of the losses that two nights are enough for.
_SMALLEST = 6.0
# Losses that are integrated over: around both nights, to where the tails have ended.
_POINTS, _BEYOND = 41, 6.0
# Odd nights are off by sizes of two powers of ten, none preferred: logarithm of the largest to the smallest.
_ODD_SIZES = 4.6
# Further out, in spreads, nothing is more certain.
_FURTHEST = 25.0


def log_ratio(away: Floats, before: Floats, nights: Floats, noise: Noise) -> Floats:
    """Return the logarithm of the ratio for each row.

    Args:
        away: rows x 2, the nights against the level, in spreads.
        before: the score of the night before them, NaN where it is none of this level.
        nights: the nights that the level is known from.
        noise: the rows' noise.
    """
    ar, unsure = noise.ar[:, 0], np.minimum((1 + noise.ar[:, 0]) / (1 - noise.ar[:, 0]) / nights, 1.0)
    # Covariance of the three nights against a level that the nights before them made.
    last = (1 - ar**nights) / (1 - ar) / nights
    lags = np.arange(3)
    shared = last[:, None] * ar[:, None] ** (lags + 1)
    covariance = ar[:, None, None] ** np.abs(np.subtract.outer(lags, lags)) + unsure[:, None, None]
    covariance = covariance - shared[:, :, None] - shared[:, None, :]
    size = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    covariance = covariance / (size[:, :, None] * size[:, None, :])
    # What the night before leaves open, and expects.
    known = np.isfinite(before)
    to_before = np.where(known[:, None], covariance[:, 1:, 0], 0.0)
    expected = to_before * np.clip(np.where(known, before, 0.0) / size[:, 0], -CLIP, CLIP)[:, None]
    variance = 1 - to_before**2
    between = covariance[:, 1, 2] - to_before[:, 0] * to_before[:, 1]
    determinant = variance[:, 0] * variance[:, 1] - between**2
    from scipy.special import gammaln

    tail = noise.tail
    of_t = gammaln((tail + 1) / 2) - gammaln(tail / 2) - np.log(tail * np.pi) / 2
    of_t = of_t - np.log(noise.scale * size[:, 1:])

    def densities(z: Floats) -> tuple[Floats, Floats]:
        """Return log densities of points x rows x 2: of both nights together, and of each alone."""
        z = z / size[:, 1:]
        score = normal_scores(z, noise)
        off = score - expected
        a, b = off[..., 0], off[..., 1]
        square = (variance[:, 1] * a**2 + variance[:, 0] * b**2 - 2 * between * a * b) / determinant
        # Where the tails are not normal, by as much as they are heavier.
        own = of_t - (tail + 1) / 2 * np.log1p((z / noise.scale) ** 2 / tail) + score**2 / 2
        together = own.sum(axis=-1) - (square + np.log(determinant)) / 2
        return together, own - (off**2 / variance + np.log(variance)) / 2

    away = np.minimum(away, _FURTHEST)
    low = np.maximum(away.min(axis=1) - _BEYOND, _SMALLEST)
    high = np.maximum(away.max(axis=1) + _BEYOND, low + 1)
    losses = low + np.linspace(0, 1, _POINTS)[:, None] * (high - low)
    together, _ = densities(away - losses[:, :, None])
    step = np.logaddexp.reduce(together + np.log((high - low) / (_POINTS - 1) / losses), axis=0)
    together, alone = densities(away)
    # An odd night is off by any size, as a step is.
    odd = np.log(noise.odd / _ODD_SIZES / np.maximum(away, 1.0))
    nothing = np.logaddexp(together, odd.sum(axis=1))
    nothing = np.logaddexp(nothing, odd[:, 0] + alone[:, 1])
    nothing = np.logaddexp(nothing, odd[:, 1] + alone[:, 0])
    return np.asarray(step - nothing)
