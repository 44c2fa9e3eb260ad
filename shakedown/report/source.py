"""What a report is made from: the records of one judged run, indexed once, and the time each stage took."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from shakedown.benchmarks.inference.metrics import SearchDetail
from shakedown.benchmarks.interconnect.output import GpuWay
from shakedown.benchmarks.lora.metrics import Training, TrainingSeries
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan, PlanItem, Reference
from shakedown.records.results import CounterReading, Measurement, Snapshot
from shakedown.records.verdict import CellVerdict, Verdict


@dataclass(frozen=True)
class CellPlace:
    """Where a cell lies in the plan."""

    item: PlanItem
    item_index: int
    nodes: tuple[str, ...]
    rail: str | None
    direction: str | None


@dataclass(frozen=True)
class ReportSource:
    """One judged run.

    `judged` holds the verdict on every planned cell, `verdict` the run's. `trainings`, `gpu_ways` and
    `searches` are what the benchmarks read from their raw files for the report.
    """

    plan: Plan
    measurements: Sequence[Measurement]
    counters: Sequence[CounterReading]
    inventory: Snapshot | None
    judged: Judged
    verdict: Verdict
    trainings: Sequence[Training] = field(default_factory=tuple)
    gpu_ways: Sequence[GpuWay] = field(default_factory=tuple)
    searches: Sequence[SearchDetail] = field(default_factory=tuple)
    said_by_others: Sequence[str] = ()  # into tools' outputs, harmless

    @property
    def losses(self) -> tuple[TrainingSeries, ...]:
        """The training curves."""
        return tuple(training.loss for training in self.trainings)

    @cached_property
    def places(self) -> dict[str, CellPlace]:
        """The place of every planned cell, by cell id."""
        return {
            cell: CellPlace(item, index, nodes, rail, direction)
            for index, item in enumerate(self.plan.items)
            for cell, nodes, rail, direction in item.cells()
        }

    def attempts(self, cells: Sequence[CellVerdict]) -> dict[str, list[Measurement]]:
        """Return all measurements of the given cells, by cell id, oldest attempt first."""
        wanted = {c.cell for c in cells}
        # Naming the cell of every measurement costs more than all else here; most are of other nodes.
        groups = {(p.item.test, p.nodes) for c in wanted if (p := self.places.get(c)) is not None}
        found: dict[str, list[Measurement]] = {}
        for measurement in self.measurements:
            if (measurement.test, measurement.nodes) in groups and (cell := measurement.cell) in wanted:
                found.setdefault(cell, []).append(measurement)
        for attempts in found.values():
            attempts.sort(key=lambda m: m.attempt)
        return found

    @property
    def by_item(self) -> list[tuple[CellVerdict, ...]]:
        """The judged cells of every plan item, in the plan's order."""
        return [block.cells for block in self.judged.items]

    @cached_property
    def cells(self) -> list[CellVerdict]:
        """Every planned cell, in the plan's order."""
        return [cell for block in self.judged.items for cell in block.cells]

    def reference(self, item: PlanItem) -> Reference:
        """The reference that an item is judged against (the plan guarantees that it exists)."""
        return self.plan.references[item.reference]


def margin(value: float, gate: float, better: Better) -> float:
    """Return how a value stands to its gate: 1 at the gate, below 1 worse, above 1 better.

    A gate of zero (an error counter) knows only met (1) or not met (0).
    """
    if better is Better.LOWER:
        value, gate = gate, value
    if gate == 0:
        return 1.0 if value >= 0 else 0.0
    return max(0.0, value / gate)


Interval = tuple[datetime, datetime]


@dataclass(frozen=True)
class StageTimeRow:
    """One stage, in seconds. `took_s`: from its first measurement's start to its last one's end."""

    stage: Stage
    expected_s: int
    limit_s: int
    node_hours: float  # expected
    took_s: float | None  # None: no time was recorded


def interval(started: str | None, duration_s: float | None) -> Interval | None:
    """Return when something began and ended; None where that is not known."""
    if started is None or duration_s is None or duration_s < 0:
        return None
    try:
        start = datetime.fromisoformat(started)
        if start.tzinfo is None:
            return None
        return start, start + timedelta(seconds=duration_s)
    except (ValueError, OverflowError):
        return None


def stage_times(source: ReportSource) -> tuple[StageTimeRow, ...]:
    """Return expectation and time of each stage; nothing for a plan that expects nothing."""
    expected = source.plan.expectation
    if expected is None:
        return ()
    took = _took(source.measurements)
    return tuple(
        StageTimeRow(
            of.stage, of.expected_s, of.limit_s, round(of.expected_node_s / 3600, 1), took.get(of.stage)
        )
        for of in expected.stages
    )


def _took(measurements: Iterable[Measurement]) -> dict[Stage, float]:
    spans: dict[Stage, Interval] = {}
    # Many measurements come out of one start of a tool.
    for stage, started, duration_s in {(m.stage, m.started, m.duration_s) for m in measurements}:
        if (one := interval(started, duration_s)) is not None:
            first, last = spans.get(stage, one)
            spans[stage] = min(first, one[0]), max(last, one[1])
    return {stage: (last - first).total_seconds() for stage, (first, last) in spans.items()}
