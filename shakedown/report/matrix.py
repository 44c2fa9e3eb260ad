"""Heat maps as numbers: node x node for pair tests, rail x node for single-node tests.

A cell's level orders cells from best to worst, so that shrinking a map to what a page can show is a
maximum: a block of cells looks like its worst member, and no failure is averaged away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shakedown.core.records import CellVerdict, Outcome
from shakedown.report import text
from shakedown.report.findings import because, where
from shakedown.report.source import Place, Source, margin

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


def level(cell: CellVerdict, place: Place, gate: float, best: float) -> int:
    """Return a cell's level; `best` is the margin drawn as the best (ceiling or reference over gate)."""
    if cell.outcome is Outcome.NOT_RUN:
        return NOT_RUN
    if cell.outcome is Outcome.INCONCLUSIVE or cell.value is None:
        return INCONCLUSIVE
    standing = margin(cell.value, gate, place.item.better)
    if cell.outcome is Outcome.PASS:
        above = (standing - 1) / (best - 1) if best > 1 else 1.0
        return 1 + int(round((STEPS - 1) * (1 - min(1.0, max(0.0, above)))))
    if standing >= 1:
        return IMPOSSIBLE if cell.rule == "impossible" else FAILED
    return FAILED + int(round((STEPS - 1) * (1 - standing)))


def shrink(levels: NDArray[np.uint8]) -> tuple[tuple[int, int], NDArray[np.uint8]]:
    """Return the block (rows, columns) and the map in which each pixel is the worst cell of its block."""
    rows, columns = levels.shape
    block = (-(-rows // MOST_PIXELS), -(-columns // MOST_PIXELS))
    padded = np.zeros((-(-rows // block[0]) * block[0], -(-columns // block[1]) * block[1]), dtype=np.uint8)
    padded[:rows, :columns] = levels
    shape = (padded.shape[0] // block[0], block[0], padded.shape[1] // block[1], block[1])
    return block, padded.reshape(shape).max(axis=(1, 3))


class _Builder:
    """Collects the cells of one map."""

    def __init__(self, title: str, unit: str, axes: tuple[str, str]) -> None:
        self.title, self.unit, self.axes = title, unit, axes
        self.entries: list[tuple[str, str, int, CellVerdict, Place, str]] = []
        self.rows: dict[str, None] = {}
        self.columns: dict[str, None] = {}

    def add(self, row: str, column: str, lvl: int, cell: CellVerdict, place: Place, shown: str) -> None:
        self.rows.setdefault(row)
        self.columns.setdefault(column)
        self.entries.append((row, column, lvl, cell, place, shown))

    def build(self, number: int, node_order: dict[str, int]) -> HeatMap:
        columns = sorted(self.columns, key=lambda c: node_order.get(c, len(node_order)))
        rows = (
            sorted(self.rows, key=lambda r: node_order.get(r, len(node_order)))
            if self.axes[0] == "from"
            else list(self.rows)
        )
        row_at, column_at = {r: i for i, r in enumerate(rows)}, {c: i for i, c in enumerate(columns)}
        levels = np.zeros((len(rows), len(columns)), dtype=np.uint8)
        texts: dict[tuple[int, int], str] = {}
        outcomes = dict.fromkeys(Outcome, 0)
        for outcome in {cell.cell: cell.outcome for _, _, _, cell, _, _ in self.entries}.values():
            outcomes[outcome] += 1
        bad = []
        small = len(columns) <= WITH_TEXT and len(rows) <= 2 * WITH_TEXT
        for row, column, lvl, cell, place, shown in self.entries:
            at = (row_at[row], column_at[column])
            levels[at] = max(levels[at], lvl)
            if small:
                texts[at] = shown
            if cell.outcome is not Outcome.PASS:
                bad.append((-lvl, at, cell, place))
        bad.sort(key=lambda entry: entry[:2])
        marks = tuple(
            Mark(*at, cell.outcome, f"{where(place)}: {because(cell)}")
            for _, at, cell, place in bad[:MOST_MARKS]
        )
        block, shown_levels = shrink(levels)
        return HeatMap(
            id=f"map-{number}",
            title=self.title,
            unit=self.unit,
            row_axis=self.axes[0],
            column_axis=self.axes[1],
            rows=tuple(rows),
            columns=tuple(columns),
            levels=levels,
            block=block,
            shown=shown_levels,
            texts=texts,
            marks=marks,
            marks_left_out=len(bad) - len(marks),
            outcomes=outcomes,
        )


def _pair_ends(place: Place) -> tuple[tuple[str, str], ...]:
    first, second = place.nodes
    if place.direction == "reverse":
        return ((second, first),)
    if place.direction == "forward":
        return ((first, second),)
    return ((first, second), (second, first))


def heat_maps(source: Source) -> tuple[tuple[HeatMap, ...], int]:
    """Return maps, those with failures first, and how many were left out.

    Pair tests give one map per item and rail: data flows from the row's node to the column's. Single-node
    tests give one map per test: a row per metric, rail and direction, a column per node.
    """
    builders: dict[tuple[object, ...], _Builder] = {}
    for index, item in enumerate(source.plan.items):
        widths = {len(nodes) for nodes in item.nodes}
        if widths - {1, 2} or len(widths) != 1 or len({n for nodes in item.nodes for n in nodes}) < 2:
            continue
        reference = source.reference(item)
        best = max(
            margin(reference.value, reference.gate, item.better),
            margin(reference.ceiling, reference.gate, item.better) if reference.ceiling is not None else 0.0,
        )
        parameters = text.params(item.params)
        for cell in source.by_item[index]:
            place = source.places[cell.cell]
            lvl = level(cell, place, reference.gate, best)
            shown = _shown(cell, reference.value)
            if widths == {2}:
                key: tuple[object, ...] = ("pairs", index, place.rail)
                name = f"{item.test} {item.metric}" + (f" · {place.rail}" if place.rail else "")
                builder = builders.setdefault(
                    key,
                    _Builder(name + (f" · {parameters}" if parameters else ""), item.unit, ("from", "to")),
                )
                for row, column in _pair_ends(place):
                    builder.add(row, column, lvl, cell, place, shown)
            else:
                counter = item.metric.startswith("counter.")
                key = ("counters", item.stage) if counter else ("nodes", item.stage, item.test)
                title = f"counters of stage {item.stage}" if counter else item.test
                builder = builders.setdefault(key, _Builder(f"{title}, every node", "", ("metric", "node")))
                # All ports of a device share a row of counters, which shows the worst of them.
                parts = (
                    (item.metric.removeprefix("counter."),)
                    if counter
                    else (item.metric, place.rail, place.direction, parameters)
                )
                builder.add(" ".join(p for p in parts if p), place.nodes[0], lvl, cell, place, shown)
    node_order = {node: i for i, node in enumerate(source.plan.nodes)}
    ordered = sorted(
        builders.values(), key=lambda b: all(entry[3].outcome is Outcome.PASS for entry in b.entries)
    )
    kept = ordered[:MOST_MAPS]
    return tuple(b.build(n, node_order) for n, b in enumerate(kept, 1)), len(ordered) - len(kept)


def _shown(cell: CellVerdict, reference: float) -> str:
    if cell.value is None:
        return "–" if cell.outcome is Outcome.NOT_RUN else "?"
    if not reference:
        return text.number(cell.value)
    return f"{int(100 * cell.value / reference)}"
