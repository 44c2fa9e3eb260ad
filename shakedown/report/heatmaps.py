"""Heat maps: node x node or rail x node as numbers, laid out for inline SVG with the cells as one PNG."""

import base64
import io
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shakedown.judge.cells import Rule
from shakedown.records.base import Outcome, Stage
from shakedown.records.plan import Reference
from shakedown.records.verdict import Cells, CellVerdict
from shakedown.report import text
from shakedown.report.source import ReportSource, margin

# A cell's level orders cells from best to worst, so that shrinking a map to what a page can show is a
# maximum: a block of cells looks like its worst member, and no failure is averaged away.

# Levels: 0 not planned; 1..STEPS passed, best to at the gate; then not run, inconclusive, then failed,
# from just below the gate to nothing at all; last, above the ceiling.
STEPS = 12
NOT_RUN = STEPS + 1
INCONCLUSIVE = STEPS + 2
FAILED = STEPS + 3  # .. FAILED + STEPS - 1
IMPOSSIBLE = FAILED + STEPS
LEVELS = IMPOSSIBLE + 1

MOST_PIXELS = 512  # per side; larger maps are shrunk by whole blocks
MOST_MAPS = 24
MOST_MARKS = 150
WITH_TEXT = 12  # maps up to this size print each cell's percentage
# More than this share of its reference is an error of measurement, and would not fit its square.
_MOST_PERCENT = 1e5


@dataclass(frozen=True)
class Mark:
    """A cell that did not pass, to be marked and named on the map."""

    row: int
    column: int
    outcome: Outcome
    title: str


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A map of levels with its labels. `shown` is `levels` shrunk by `block` in each direction."""

    id: str
    title: str
    unit: str
    row_axis: str
    column_axis: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    levels: NDArray[np.uint8]
    block: tuple[int, int]
    shown: NDArray[np.uint8]
    texts: dict[tuple[int, int], str]
    marks: tuple[Mark, ...]
    marks_left_out: int
    outcomes: dict[Outcome, int]

    @property
    def wide(self) -> bool:
        """Whether the map needs the width of the page."""
        return self.row_axis != "from" and len(self.columns) > WITH_TEXT


def levels_of(cells: Sequence[CellVerdict], reference: Reference) -> NDArray[np.uint8]:
    """Return the levels of an item's cells. The best colour is the ceiling, or else the reference."""
    gate, better = reference.gate, reference.better
    best = max(
        margin(limit, gate, better) for limit in (reference.value, reference.ceiling) if limit is not None
    )
    standing, kind = array("d"), bytearray()
    for c in cells:  # a large mesh has millions in one item: they are seen once, and a few bytes kept of each
        standing.append(0.0 if c.value is None else margin(c.value, gate, better))
        kind.append(IMPOSSIBLE if c.rule == Rule.IMPOSSIBLE else _LEVELS.get(c.outcome, 0))
    stand, found = np.frombuffer(standing), np.frombuffer(kind, dtype=np.uint8)
    above = (stand - 1) / (best - 1) if best > 1 else np.ones_like(stand)
    passed = 1 + np.rint((STEPS - 1) * (1 - np.clip(above, 0, 1)))
    failed = FAILED + np.rint((STEPS - 1) * (1 - np.clip(stand, 0, 1)))
    return np.where(found == 1, passed, np.where(found == FAILED, failed, found)).astype(np.uint8)


# Of those that passed or failed, the first.
_LEVELS = {
    Outcome.PASS: 1,
    Outcome.FAIL: FAILED,
    Outcome.NOT_RUN: NOT_RUN,
    Outcome.INCONCLUSIVE: INCONCLUSIVE,
}


def shrink(levels: NDArray[np.uint8]) -> tuple[tuple[int, int], NDArray[np.uint8]]:
    """Return the block (rows, columns) and the map in which each pixel is the worst cell of its block."""
    rows, columns = levels.shape
    block = (-(-rows // MOST_PIXELS), -(-columns // MOST_PIXELS))
    padded = np.zeros((-(-rows // block[0]) * block[0], -(-columns // block[1]) * block[1]), dtype=np.uint8)
    padded[:rows, :columns] = levels
    shape = (padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])
    return block, padded.reshape(shape).max(axis=(1, 3))


class _Builder:
    """Collects the cells of one map, a vector of them at a time."""

    def __init__(self, title: str, unit: str, axes: tuple[str, str]) -> None:
        self.title, self.unit, self.axes = title, unit, axes
        self.rows: dict[str, int] = {}
        self.parts: list[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.uint8]]] = []
        self.cells: list[tuple[Cells, range, Reference]] = []
        self.outcomes: Counter[Outcome] = Counter()
        self.failed = False

    def row(self, name: str) -> int:
        return self.rows.setdefault(name, len(self.rows))

    def add(
        self,
        rows: NDArray[np.intp],
        columns: NDArray[np.intp],
        levels: NDArray[np.uint8],
        cells: Cells,
        which: range,
        reference: Reference,
    ) -> None:
        self.parts.append((rows, columns, levels))
        self.cells.append((cells, which, reference))
        self.failed = self.failed or bool((levels > STEPS).any())

    def build(self, number: int, devices: tuple[str, ...]) -> HeatMap:
        """Return the map with its axes cut down to the devices that have cells, in the plan's order."""
        pairs = self.axes[0] == "from"
        columns_used = np.unique(np.concatenate([c for _, c, _ in self.parts]))
        used = columns_used
        if pairs:
            used = np.union1d(used, np.concatenate([r for r, _, _ in self.parts]))
        position = np.zeros(len(devices), dtype=np.intp)
        position[used] = np.arange(len(used))
        labels = tuple(devices[i] for i in used.tolist())
        row_labels = labels if pairs else tuple(self.rows)
        levels = np.zeros((len(row_labels), len(labels)), dtype=np.uint8)
        placed = []
        for (rows, columns, found), (cells, which, reference) in zip(self.parts, self.cells, strict=True):
            at = (position[rows] if pairs else rows, position[columns])
            np.maximum.at(levels, at, found)
            placed.append((at, found, cells, which, reference))
        block, shown = shrink(levels)
        marks, unmarked = _marks(placed)
        small = len(labels) <= WITH_TEXT and len(row_labels) <= 2 * WITH_TEXT
        return HeatMap(
            id=f"map-{number}",
            title=self.title,
            unit=self.unit,
            row_axis=self.axes[0],
            column_axis=self.axes[1],
            rows=row_labels,
            columns=labels,
            levels=levels,
            block=block,
            shown=shown,
            texts=_texts(placed, levels) if small else {},
            marks=marks,
            marks_left_out=unmarked,
            outcomes={o: self.outcomes[o] for o in Outcome},
        )


_Placed = list[tuple[tuple[NDArray[np.intp], NDArray[np.intp]], NDArray[np.uint8], Cells, range, Reference]]


def _marks(placed: _Placed) -> tuple[tuple[Mark, ...], int]:
    """Return the worst cells that did not pass, and how many more there are."""
    bad: list[tuple[int, float, int, int, CellVerdict]] = []
    for (rows, columns), found, cells, which, _ in placed:
        for i in np.flatnonzero(found > STEPS).tolist():
            cell = cells[which[i]]
            bad.append((-int(found[i]), -_beyond(cell), int(rows[i]), int(columns[i]), cell))
    bad.sort(key=lambda entry: entry[:4])
    marks = tuple(Mark(row, column, cell.outcome, cell.reason) for *_, row, column, cell in bad[:MOST_MARKS])
    return marks, len(bad) - len(marks)


def _beyond(cell: CellVerdict) -> float:
    """How far a value lies from its gate, as a fraction of that; without one it is worse than any."""
    if cell.value is None or cell.gate is None:
        return float("inf")
    return abs(cell.value - cell.gate) / (abs(cell.gate) or 1.0)


def _texts(placed: _Placed, levels: NDArray[np.uint8]) -> dict[tuple[int, int], str]:
    """Return what a small map prints into each cell; of several cells in one place, the worst one's."""
    texts = {}
    for (rows, columns), found, cells, which, reference in placed:
        for row, column, lvl, i in zip(rows.tolist(), columns.tolist(), found.tolist(), which, strict=True):
            if lvl == levels[row, column]:
                texts[row, column] = _shown(cells[i], reference.value)
    return texts


def _shown(cell: CellVerdict, reference: float) -> str:
    if cell.value is None:
        return "–" if cell.outcome is Outcome.NOT_RUN else "?"
    if not reference:
        return text.number(cell.value) if cell.value < 1000 else f"{cell.value / 1000:.3g}k"
    percent = 100 * cell.value / reference  # infinite for 1e308
    return f"{int(percent)}" if -_MOST_PERCENT < percent < _MOST_PERCENT else "!"


def heat_maps(source: ReportSource) -> tuple[tuple[HeatMap, ...], int]:
    """Return maps, those with failures first, and how many were left out.

    Pair tests give one map per item and rail: data flows from the row's node to the column's. Single-node
    tests give one map per test: a row per metric, rail and direction, a column per node. All ports of a
    device share a row of counters, which shows the worst of them.
    """
    devices = tuple(
        dict.fromkeys(
            (*source.plan.nodes, *(n for i in source.plan.items for group in i.nodes for n in group))
        )
    )
    number_of = {name: number for number, name in enumerate(devices)}
    builders: dict[tuple[object, ...], _Builder] = {}
    for index, item in enumerate(source.plan.items):
        widths = {len(nodes) for nodes in item.nodes}
        if widths not in ({1}, {2}) or len({n for nodes in item.nodes for n in nodes}) < 2:
            continue
        if widths == {2} and len(item.nodes) == 1 and item.stage is not Stage.FABRIC:
            continue  # a collective over the only two nodes there are, no pair test
        nodes = np.array([[number_of[n] for n in group] for group in item.nodes], dtype=np.intp)
        reference, cells = source.reference(item), source.by_item[index]
        shape = (len(item.nodes), len(item.rails), len(item.directions))
        levels, outcomes = levels_of(cells, reference).reshape(shape), cells.outcomes()
        parameters = text.params(item.params)
        for r, rail in enumerate(item.rails):
            for d, direction in enumerate(item.directions):
                # The plan's order: nodes, then rails, then directions.
                some = range(r * shape[2] + d, len(cells), shape[1] * shape[2])
                found = levels[:, r, d]
                if widths == {2}:
                    name = " · ".join(p for p in (f"{item.test} {item.metric}", rail, parameters) if p)
                    builder = builders.setdefault(
                        ("pairs", index, rail), _Builder(name, item.unit, ("from", "to"))
                    )
                    if direction != "reverse":
                        builder.add(nodes[:, 0], nodes[:, 1], found, cells, some, reference)
                    if direction != "forward":
                        builder.add(nodes[:, 1], nodes[:, 0], found, cells, some, reference)
                else:
                    counter = item.metric.startswith("counter.")
                    title = f"counters of stage {item.stage}" if counter else item.test
                    builder = builders.setdefault(
                        ("counters", item.stage) if counter else ("nodes", item.stage, item.test),
                        _Builder(f"{title}, every node", "", ("metric", "node")),
                    )
                    parts = (
                        (item.metric.removeprefix("counter."),)
                        if counter
                        else (item.metric, rail, direction, parameters)
                    )
                    row = np.full(len(nodes), builder.row(" ".join(p for p in parts if p)), dtype=np.intp)
                    builder.add(row, nodes[:, 0], found, cells, some, reference)
                builder.outcomes.update(outcomes[some.start :: some.step])
    ordered = sorted(builders.values(), key=lambda b: not b.failed)
    kept = ordered[:MOST_MAPS]
    return tuple(b.build(n, devices) for n, b in enumerate(kept, 1)), len(ordered) - len(kept)


# From best to at the gate, then from just below it to nothing. Blue against orange-red stays distinct
# for colour-blind readers; in grey the failed ones are darker, and they are marked besides.
_PASS = ((118, 164, 199), (224, 234, 242))
_FAIL = ((240, 150, 60), (140, 20, 20))
_FIXED_HEAT = {NOT_RUN: (150, 155, 162), INCONCLUSIVE: (222, 188, 60), IMPOSSIBLE: (122, 40, 140)}

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
    for lvl, colour in _FIXED_HEAT.items():
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
