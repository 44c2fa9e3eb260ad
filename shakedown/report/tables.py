"""The tables of results: every test against its reference, and every cell."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from shakedown.judge.cells import SEVERITY
from shakedown.records.base import Better, Outcome, Stage
from shakedown.records.plan import ReferenceKind
from shakedown.records.results import Measurement
from shakedown.records.verdict import CellVerdict
from shakedown.report import text
from shakedown.report.findings import because, where
from shakedown.report.source import Source, margin

# Up to this many planned cells every one is a row; above it passed cells are summed up per test.
ALL_CELLS = 1500
MOST_CELLS = 1000


@dataclass(frozen=True)
class GroupRow:
    """All cells of one plan item, against their reference."""

    outcome: Outcome  # the worst outcome among its required cells
    stage: Stage
    test: str
    metric: str
    params: str
    rails: str  # those of the plan item, "rail0,rail1"; empty if it has none
    unit: str
    better: Better
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    worst_value: float | None
    median_value: float | None
    best_value: float | None
    gate_value: float
    worst: str
    median: str
    best: str
    gate: str
    reference: str
    reference_id: str
    kind: ReferenceKind
    source: str
    set_by: str
    percent_of_reference: str  # of the worst value
    percent_of_ceiling: str  # of the value nearest the ceiling
    required: bool
    not_run: str | None
    standing: float  # of the worst value to its gate: 1 is at the gate, below 1 outside it


@dataclass(frozen=True)
class CellRow:
    """One cell against its reference."""

    outcome: Outcome
    stage: Stage
    test: str
    metric: str
    where: str
    unit: str
    value: str
    sort_value: float | None
    gate: str
    reference: str
    reference_id: str
    kind: ReferenceKind
    source: str
    percent_of_reference: str
    percent_of_ceiling: str
    samples: int
    spread: str
    rule: str
    reason: str
    raw: str | None


@dataclass(frozen=True)
class FamilyRow:
    """One metric of one test over all its sizes and ports, shown by the item that stands worst."""

    outcome: Outcome
    items: int
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    tightest: GroupRow


def group_rows(source: Source) -> tuple[GroupRow, ...]:
    """Return one row per plan item, in the plan's order."""
    rows = []
    for group, item, cells in zip(source.verdict.groups, source.plan.items, source.by_item, strict=True):
        reference = source.reference(item)
        present = [o for o, count in group.outcomes.items() if count] or [Outcome.NOT_RUN]
        values = [c.value for c in cells if c.value is not None]
        rows.append(
            GroupRow(
                outcome=max(present, key=SEVERITY.__getitem__),
                stage=item.stage,
                test=item.test,
                metric=item.metric,
                params=text.params(item.params),
                rails=",".join(rail for rail in item.rails if rail),
                unit=text.unit(item.unit),
                better=item.better,
                planned=group.planned,
                measured=group.measured,
                outcomes=group.outcomes,
                worst_value=group.worst,
                median_value=group.median,
                best_value=group.best,
                gate_value=reference.gate,
                worst=text.number(group.worst),
                median=text.number(group.median),
                best=text.number(group.best),
                gate=text.number(reference.gate),
                reference=text.number(reference.value),
                reference_id=reference.id,
                kind=reference.kind,
                source=reference.source,
                set_by=reference.set_by or "",
                percent_of_reference=text.percent(group.worst, reference.value),
                percent_of_ceiling=text.percent(max(values, default=None), reference.ceiling),
                required=item.required,
                not_run=item.not_run,
                standing=margin(group.worst, reference.gate, item.better) if group.worst is not None else 0.0,
            )
        )
    return tuple(rows)


# Parameters that vary within one metric of one test without making it another test.
_VARYING = {"size_bytes", "port"}


def family_rows(source: Source, groups: tuple[GroupRow, ...]) -> tuple[FamilyRow, ...]:
    """Return one row for all items that differ in message size or port alone, in the plan's order."""
    families: dict[tuple[str, ...], list[GroupRow]] = {}
    for item, group in zip(source.plan.items, groups, strict=True):
        fixed = text.params({k: v for k, v in item.params.items() if k not in _VARYING})
        families.setdefault((item.stage, item.test, item.metric, item.unit, fixed), []).append(group)
    rows = []
    for members in families.values():
        total = {o: sum(m.outcomes.get(o, 0) for m in members) for o in Outcome}
        tightest = min(members, key=lambda m: (-SEVERITY[m.outcome], m.standing))
        rows.append(
            FamilyRow(
                outcome=tightest.outcome,
                items=len(members),
                planned=sum(m.planned for m in members),
                measured=sum(m.measured for m in members),
                outcomes=total,
                tightest=tightest,
            )
        )
    return tuple(rows)


def spread(samples: tuple[float, ...]) -> str:
    """Return the spread of repeats as the coefficient of variation in percent (from two samples on)."""
    if len(samples) < 2:
        return "–"
    mean = statistics.fmean(samples)
    return f"±{100 * statistics.stdev(samples) / abs(mean):.2g} %" if mean else "–"


def _judged(cell: CellVerdict, attempts: list[Measurement]) -> Measurement | None:
    """The attempt whose value the verdict used; the latest with that value."""
    for attempt in reversed(attempts):
        if attempt.value == cell.value:
            return attempt
    return None


def cell_row(source: Source, cell: CellVerdict, attempts: list[Measurement]) -> CellRow:
    """Return the row of one cell."""
    place = source.places[cell.cell]
    item, reference = place.item, source.reference(place.item)
    measurement = _judged(cell, attempts)
    samples = measurement.samples if measurement else ()
    return CellRow(
        outcome=cell.outcome,
        stage=item.stage,
        test=item.test,
        metric=item.metric,
        where=where(place),
        unit=text.unit(item.unit),
        value=text.number(cell.value),
        sort_value=cell.value,
        gate=text.number(cell.gate if cell.gate is not None else reference.gate),
        reference=text.number(reference.value),
        reference_id=reference.id,
        kind=reference.kind,
        source=reference.source,
        percent_of_reference=text.percent(cell.value, reference.value),
        percent_of_ceiling=text.percent(cell.value, cell.ceiling),
        samples=len(samples) or (1 if cell.value is not None else 0),
        spread=spread(samples),
        rule=cell.rule,
        reason=because(cell),
        raw=cell.raw,
    )


def cell_rows(source: Source) -> tuple[tuple[CellRow, ...], int, bool]:
    """Return rows, how many non-passed cells were left out, and whether passed cells are among the rows."""
    bad = [c for c in source.verdict.cells if c.cell in source.places]
    every = len(source.cells) <= ALL_CELLS
    shown = bad if every else bad[:MOST_CELLS]
    left_out = len(bad) - len(shown)
    if every:
        shown = [*shown, *(c for c in source.cells if c.outcome is Outcome.PASS)]
    attempts = source.attempts(shown)
    rows = tuple(cell_row(source, c, attempts.get(c.cell, [])) for c in shown)
    return rows, left_out, every
