"""Heat maps as inline SVG: the cells are one PNG in a data URI, the labels and marks are drawn on top."""

from __future__ import annotations

import base64
import io

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from shakedown.core.records import Outcome
from shakedown.report import text
from shakedown.report.matrix import FAILED, IMPOSSIBLE, INCONCLUSIVE, LEVELS, NOT_RUN, STEPS, HeatMap

# From best to at the gate, then from just below it to nothing. Blue against orange-red stays distinct
# for colour-blind readers and in grey: passed cells are dark, then light, failed ones are marked as well.
_PASS = ((38, 84, 124), (178, 206, 222))
_FAIL = ((240, 150, 60), (140, 20, 20))
_FIXED = {NOT_RUN: (150, 155, 162), INCONCLUSIVE: (222, 188, 60), IMPOSSIBLE: (122, 40, 140)}

_MARK_GLYPHS = {Outcome.FAIL: "✕", Outcome.INCONCLUSIVE: "?", Outcome.NOT_RUN: "–"}
_PLOT = 560.0  # drawing units for the wider side
_LABEL = 6.0  # width of a character of a label
_MOST_LABELS = 32


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


def _ticks(labels: tuple[str, ...], weights: np.ndarray, room: float) -> list[int]:
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


def draw(heat: HeatMap) -> Markup:
    """Return a map as SVG markup, safe to put into the page."""
    rows, columns = heat.levels.shape
    square = heat.row_axis == "from"
    cell_w = min(44.0, _PLOT / columns)
    cell_h = cell_w if square else max(13.0, min(26.0, _PLOT / rows / 3))
    width, height = cell_w * columns, cell_h * rows
    left = 12 + _LABEL * min(40, max(len(r) for r in heat.rows))
    bottom = 14 + _LABEL * min(24, max(len(c) for c in heat.columns))
    bad = heat.levels > STEPS
    weights = bad * heat.levels.astype(np.int64)
    parts: list[Markup] = []
    add = parts.append
    total_w, total_h = left + width + 12, 22 + height + bottom
    summary = ", ".join(f"{count:,} {o}" for o, count in heat.outcomes.items() if count)
    add(
        Markup(
            '<svg class="heat" role="img" aria-labelledby="{id}-title {id}-desc" viewBox="0 0 {w:.1f} {h:.1f}" '
            'style="max-width:{px:.0f}px">'
            '<desc id="{id}-desc">{rows} rows by {columns} columns: {summary}.</desc>'
        ).format(
            id=heat.id, w=total_w, h=total_h, px=1.25 * total_w, rows=rows, columns=columns, summary=summary
        )
    )
    add(
        Markup(
            '<rect class="heat-ground" x="{x:.1f}" y="18" width="{w:.1f}" height="{h:.1f}"/>'
            '<image x="{x:.1f}" y="18" width="{w:.2f}" height="{h:.2f}" preserveAspectRatio="none" '
            'href="data:image/png;base64,{data}"/>'
        ).format(
            x=left,
            w=width,
            h=height,
            data=base64.b64encode(png(heat)).decode(),
        )
    )
    row_room = height if rows > 1 else 13
    for r in _ticks(heat.rows, weights.max(axis=1, initial=0), row_room):
        add(
            Markup('<text class="{cls}" x="{x:.1f}" y="{y:.1f}" text-anchor="end">{label}</text>').format(
                cls="bad" if bad[r].any() else "",
                x=left - 5,
                y=18 + cell_h * (r + 0.5) + 3.5,
                label=text.inert(heat.rows[r])[:40],
            )
        )
    for c in _ticks(heat.columns, weights.max(axis=0, initial=0), width):
        x, y = left + cell_w * (c + 0.5) + 3, 18 + height + 8
        add(
            Markup(
                '<text class="{cls}" transform="translate({x:.1f} {y:.1f}) rotate(-90)" text-anchor="end">{label}</text>'
            ).format(cls="bad" if bad[:, c].any() else "", x=x, y=y, label=text.inert(heat.columns[c])[:24])
        )
    if heat.texts:
        add(_texts(heat, left, cell_w, cell_h))
    for mark in heat.marks:
        add(_mark(mark.row, mark.column, mark.outcome, mark.title, left, cell_w, cell_h, bool(heat.texts)))
    add(
        Markup('<text class="axis" x="{x:.1f}" y="11">{label}</text></svg>').format(
            x=left, label=f"{heat.row_axis} ↓  {heat.column_axis} →" if square else f"{heat.column_axis} →"
        )
    )
    return Markup("").join(parts)


def _texts(heat: HeatMap, left: float, cell_w: float, cell_h: float) -> Markup:
    colours = palette()
    out = []
    for (r, c), shown in heat.texts.items():
        red, green, blue = colours[int(heat.levels[r, c])]
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 140
        out.append(
            Markup('<text class="{cls}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{shown}</text>').format(
                cls="on-dark" if dark else "on-light",
                x=left + cell_w * (c + 0.5),
                y=18 + cell_h * (r + 0.5) + 3.5,
                shown=shown,
            )
        )
    return Markup("").join(out)


def _mark(
    row: int,
    column: int,
    outcome: Outcome,
    title: str,
    left: float,
    cell_w: float,
    cell_h: float,
    outline: bool,
) -> Markup:
    x, y = left + cell_w * column, 18 + cell_h * row
    label = escape(text.inert(title))
    if outline or min(cell_w, cell_h) >= 10:
        # Room for a frame around the cell, and a glyph in its corner that needs no colour.
        return Markup(
            '<g class="mark"><title>{label}</title><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"/>'
            '<text x="{tx:.1f}" y="{ty:.1f}" text-anchor="end">{glyph}</text></g>'
        ).format(
            label=label,
            x=x + 0.7,
            y=y + 0.7,
            w=cell_w - 1.4,
            h=cell_h - 1.4,
            tx=x + cell_w - 2,
            ty=y + 8.5,
            glyph=_MARK_GLYPHS[outcome],
        )
    return Markup(
        '<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{label}</title></circle>'
    ).format(x=x + cell_w / 2, y=y + cell_h / 2, label=label)


def legend() -> Markup:
    """Return the key to the colours, as one line of swatches with words."""
    colours = palette()
    entries = (
        ("far above the gate", 1),
        ("at the gate", STEPS),
        ("just below the gate", FAILED),
        ("far below the gate", FAILED + STEPS - 1),
        ("inconclusive", INCONCLUSIVE),
        ("not run", NOT_RUN),
        ("above the ceiling", IMPOSSIBLE),
    )
    return Markup("").join(
        Markup('<span><i style="background:rgb({rgb})"></i>{label}</span>').format(
            rgb=",".join(str(v) for v in colours[lvl]), label=label
        )
        for label, lvl in entries
    )
