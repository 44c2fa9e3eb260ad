"""A series as one line: of text, or of points for a drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = "·"


def text(values: Sequence[float], width: int = 60) -> str:
    """Return the last `width` nights in block characters, a dot where there is no value."""
    shown = list(values)[-width:]
    low, high = _span(shown)
    return "".join(GAP if math.isnan(v) else BLOCKS[min(7, int(8 * (v - low) / (high - low)))] for v in shown)


def points(
    values: Sequence[float], at: Sequence[float], width: float, height: float
) -> list[list[tuple[float, float]]]:
    """Return unbroken stretches of (x, y) in a box, y downwards. `at` are places from 0 to 1."""
    low, high = _span(values)
    stretches: list[list[tuple[float, float]]] = [[]]
    for value, place in zip(values, at, strict=True):
        if math.isnan(value):
            stretches.append([])
        else:
            y = height * (1 - (value - low) / (high - low))
            stretches[-1].append((round(width * place, 1), round(y, 1)))
    return [s for s in stretches if s]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the range to draw: at least 4 % of the value, so that noise does not look like a storm."""
    finite = [v for v in values if not math.isnan(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    least = 0.04 * max(abs(low), abs(high)) or 1.0
    spare = max(0.0, least - (high - low)) / 2
    return low - spare, high + spare
