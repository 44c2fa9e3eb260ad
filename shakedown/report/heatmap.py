"""Heat maps laid out for inline SVG: the cells are one PNG in a data URI, labels and marks lie on top."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shakedown.records.base import Outcome
from shakedown.report.matrix import FAILED, IMPOSSIBLE, INCONCLUSIVE, LEVELS, NOT_RUN, STEPS, HeatMap

# From best to at the gate, then from just below it to nothing. Blue against orange-red stays distinct
# for colour-blind readers; in grey the failed ones are darker, and they are marked besides.
_PASS = ((118, 164, 199), (224, 234, 242))
_FAIL = ((240, 150, 60), (140, 20, 20))
_FIXED = {NOT_RUN: (150, 155, 162), INCONCLUSIVE: (222, 188, 60), IMPOSSIBLE: (122, 40, 140)}

_MARK_GLYPHS = {Outcome.FAIL: "✕", Outcome.INCONCLUSIVE: "?", Outcome.NOT_RUN: "–"}
# Drawing units: a pair map, a strip of many nodes, space above, the width of a letter of a label.
_SQUARE, _STRIP, _TOP, _LABEL = 540.0, 940.0, 18.0, 6.0
_MOST_LABELS, _LONGEST = 40, 40


def _mix(a: tuple[int, int, int], b: tuple[int, int, int], share: float) -> tuple[int, ...]:
    return tuple(round(x + (y - x) * share) for x, y in zip(a, b, strict=True))


def palette() -> list[tuple[int, ...]]:
    """Return the colour of every level; level 0 (not planned) is transparent in the image."""
    colours: list[tuple[int, ...]] = [(255, 255, 255)] * LEVELS
    for step in range(STEPS):
        share = step / (STEPS - 1)
        colours[1 + step] = _mix(*_PASS, share)
        colours[FAILED + step] = _mix(*_FAIL, share)
    for lvl, colour in _FIXED.items():
        colours[lvl] = colour
    return colours


def png(heat: HeatMap) -> bytes:
    """Return the map as an indexed PNG, one pixel a cell (or block of cells)."""
    image = Image.fromarray(heat.shown, mode="P")
    image.putpalette([channel for colour in palette() for channel in colour])
    out = io.BytesIO()
    image.save(out, format="PNG", transparency=0, optimize=True)
    return out.getvalue()


def _ticks(labels: tuple[str, ...], weights: NDArray[np.int64], room: float) -> list[int]:
    """Which labels to print: all if they fit, else those with most failures first, then evenly spread."""
    most = max(2, min(_MOST_LABELS, int(room / 13)))
    if len(labels) <= most:
        return list(range(len(labels)))
    gap = len(labels) / most
    chosen: list[int] = []
    spread = np.linspace(0, len(labels) - 1, most // 3 + 2).round().astype(int).tolist()
    worst = [i for i in np.argsort(-weights, kind="stable").tolist() if weights[i] > 0][: 4 * most]
    for index in [*worst, *spread]:
        if len(chosen) < most and all(abs(index - other) >= gap for other in chosen):
            chosen.append(index)
    return sorted(chosen)


@dataclass(frozen=True)
class Label:
    """A name on an axis; x and y in drawing units."""

    x: float
    y: float
    text: str
    bad: bool


@dataclass(frozen=True)
class Number:
    """What is printed into a cell, and whether the cell is dark."""

    x: float
    y: float
    text: str
    dark: bool


@dataclass(frozen=True)
class Spot:
    """The mark of a cell that did not pass: a frame and a glyph where there is room, else a ring."""

    x: float
    y: float
    glyph: str
    title: str


@dataclass(frozen=True)
class Drawing:
    """A heat map laid out, in drawing units; the template `heatmap.html.j2` writes it."""

    id: str
    summary: str
    axes: str
    total: tuple[float, float]
    origin: tuple[float, float]
    size: tuple[float, float]
    cell: tuple[float, float]
    data: str  # base64 of the PNG
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    numbers: tuple[Number, ...]
    spots: tuple[Spot, ...]
    framed: bool


def lay_out(heat: HeatMap) -> Drawing:
    """Return a map with every position computed."""
    rows, columns = heat.levels.shape
    square = heat.row_axis == "from"
    plot = _STRIP if heat.wide else _SQUARE
    cell_w = float(min(44.0, plot / columns))
    cell_h = cell_w if square else float(min(26.0, max(_SQUARE / rows, 4.0)))
    width, height = cell_w * columns, cell_h * rows
    left = 12 + _LABEL * min(_LONGEST, max(len(r) for r in heat.rows))
    bottom = 14 + _LABEL * min(_LONGEST, max(len(c) for c in heat.columns))
    bad = heat.levels > STEPS
    weights = bad * heat.levels.astype(np.int64)

    def x_of(column: int) -> float:
        return float(round(left + cell_w * (column + 0.5), 1))

    def y_of(row: int) -> float:
        return float(round(_TOP + cell_h * (row + 0.5), 1))

    colours = palette()
    counts = ", ".join(f"{count:,} {o.value}" for o, count in heat.outcomes.items() if count)
    return Drawing(
        id=heat.id,
        summary=f"{rows:,} rows by {columns:,} columns: {counts}.",
        axes=f"{heat.row_axis} ↓  {heat.column_axis} →" if square else f"{heat.column_axis} →",
        total=(round(left + width + 12), round(_TOP + height + bottom + 4)),
        origin=(round(left, 1), _TOP),
        size=(round(width, 2), round(height, 2)),
        cell=(round(cell_w, 2), round(cell_h, 2)),
        data=base64.b64encode(png(heat)).decode(),
        rows=tuple(
            Label(left - 5, y_of(r) + 3.5, heat.rows[r][:_LONGEST], bool(bad[r].any()))
            for r in _ticks(heat.rows, weights.max(axis=1), height)
        ),
        columns=tuple(
            Label(x_of(c) + 3, _TOP + height + 8, heat.columns[c][:_LONGEST], bool(bad[:, c].any()))
            for c in _ticks(heat.columns, weights.max(axis=0), width)
        ),
        numbers=tuple(
            Number(x_of(c), y_of(r) + 3.5, shown, _is_dark(colours[int(heat.levels[r, c])]))
            for (r, c), shown in heat.texts.items()
        ),
        spots=tuple(Spot(x_of(m.column), y_of(m.row), _MARK_GLYPHS[m.outcome], m.title) for m in heat.marks),
        framed=min(cell_w, cell_h) >= 10,
    )


def _is_dark(colour: tuple[int, ...]) -> bool:
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def legend() -> tuple[tuple[str, str], ...]:
    """Return the key to the colours: CSS colour and what it means."""
    colours = palette()
    return tuple(
        (f"rgb({', '.join(str(v) for v in colours[lvl])})", label)
        for label, lvl in (
            ("far above the gate", 1),
            ("at the gate", STEPS),
            ("just below the gate", FAILED),
            ("far below the gate", FAILED + STEPS - 1),
            ("inconclusive", INCONCLUSIVE),
            ("not run", NOT_RUN),
            ("above the ceiling", IMPOSSIBLE),
        )
    )
