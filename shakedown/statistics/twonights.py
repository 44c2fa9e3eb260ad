"""What two nights in a row say of a step: how much more likely they are with one loss in both than without.

The night before them tells what they would be if nothing happened, as far as neighbouring nights hang
together. The tails say how far one night is off by itself: two nights that are off by the same are a step
where two that are off as far, but differently, are not. The ratio is the likelihood over losses of every size
from `_SMALLEST` on, none preferred (uniform in the logarithm), to that of no loss.
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

    def log_density(z: Floats) -> Floats:
        """Of points x rows x 2, without what does not depend on them."""
        z = z / size[:, 1:]
        score = normal_scores(z, noise)
        a, b = np.moveaxis(score - expected, -1, 0)
        square = (variance[:, 1] * a**2 + variance[:, 0] * b**2 - 2 * between * a * b) / determinant
        own = score**2 - (noise.tail + 1) * np.log1p((z / noise.scale) ** 2 / noise.tail)
        return np.asarray((own.sum(axis=-1) - square) / 2)

    away = np.minimum(away, _FURTHEST)
    low = np.maximum(away.min(axis=1) - _BEYOND, _SMALLEST)
    high = np.maximum(away.max(axis=1) + _BEYOND, low + 1)
    losses = low + np.linspace(0, 1, _POINTS)[:, None] * (high - low)
    ratios = log_density(away - losses[:, :, None]) - log_density(away)
    prior = (high - low) / (_POINTS - 1) / losses
    most = ratios.max(axis=0)
    return np.asarray(most + np.log((np.exp(ratios - most) * prior).sum(axis=0)))
