"""What is said of whole rails, and of the fabric as a whole."""

from __future__ import annotations

import numpy as np

from shakedown.judge.localise.fit import DOUBTFUL
from shakedown.judge.localise.groups import robust_sigma
from shakedown.judge.localise.levels import APART, Deviations
from shakedown.judge.localise.model import Element, Explanation, Floats, Matrix

# A whole rail is compared with the other rails only, so it must differ by more.
RAIL_EFFECT = 0.02
RAIL_SIGMAS = 5.0


def slow_rails(matrix: Matrix, level: Floats) -> list[Explanation]:
    """Return the rails whose level is below the other rails'."""
    if len(matrix.rails) < 2:
        return []
    away = level - np.nanmedian(level) if len(matrix.rails) > 2 else level - np.nanmax(level)
    needed = max(RAIL_EFFECT, RAIL_SIGMAS * robust_sigma(level) if len(matrix.rails) > 4 else 0.0)
    enough = len(matrix.rails) > 2
    return [
        Explanation(
            element=Element("rail", rail=matrix.rails[r]),
            pattern="slow",
            effect=float(np.expm1(away[r])),
            z=float(-away[r] / RAIL_EFFECT * RAIL_SIGMAS),
            cells=int(np.isfinite(matrix.values[r]).sum()),
            partners=len(matrix.rails) - 1,
            share=1.0,
            confidence=1.0 if enough else 0.5,
            rivals=(),
            blamed=enough,
            label=matrix.label,
            why=() if enough else ("of two rails one cannot tell which is the exception",),
        )
        for r in np.flatnonzero(away < -needed)
    ]


def collisions(seen: Deviations, matrix: Matrix) -> list[Explanation]:
    """Return that many results are far below the rest, scattered over good NICs."""
    if seen.clean == 1:
        return []
    with np.errstate(invalid="ignore"):
        low = seen.residual[seen.residual < np.log1p(-APART)]
    return [
        Explanation(
            element=Element("fabric"),
            pattern="intermittent",
            effect=float(np.expm1(np.median(low))) if low.size else 0.0,
            z=float("inf"),
            cells=int(low.size),
            partners=len(matrix.nodes),
            share=1 - seen.clean,
            confidence=DOUBTFUL,
            rivals=(),
            blamed=False,
            label=matrix.label,
            why=("their NICs are well with others, so flows may have shared links: see how they are hashed",),
        )
    ]
