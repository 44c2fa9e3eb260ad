"""What a report is made from: the records of one judged run, indexed once, and the time each stage took."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from shakedown.benchmarks.inference.metrics import SearchDetail
from shakedown.benchmarks.interconnect.output import GpuWay
from shakedown.benchmarks.lora.metrics import Training, TrainingSeries
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Stage
from shakedown.records.plan import CellPlaces, Plan, PlanItem, Reference
from shakedown.records.results import CounterReading, Measurement, Snapshot
from shakedown.records.verdict import Cells, Verdict


@dataclass(frozen=True, slots=True)
class CellPlace:
    """Where a cell lies in the plan."""

    item: PlanItem
    item_index: int
    nodes: tuple[str, ...]
    rail: str | None
    direction: str | None


Start = tuple[Stage, str | None, float | None]  # a stage, when a measurement began, and its seconds


class Attempt(NamedTuple):
    """One measurement of a cell, and its repeats."""

    number: int
    value: float | None
    samples: tuple[float, ...]


class Passing:
    """What the report takes of the measurements while they go by, of which a large mesh has millions.

    Attributes:
        kept: those of the tests `drawn` and of the application stage, which are shown beside their cells.
        starts: when measurements began, and how long they took.
        raw: the test of each raw output.
        repeated: by cell, what was measured again or has more than one sample.
    """

    def __init__(self, drawn: Container[str] = ()) -> None:
        self._drawn = drawn
        self.kept: list[Measurement] = []
        self.starts: set[Start] = set()
        self.raw: dict[str, str] = {}
        self.repeated: dict[str, list[Attempt]] = {}

    def add(self, m: Measurement) -> None:
        """Take what is needed of one."""
        self.starts.add((m.stage, m.started, m.duration_s))
        if m.raw:
            self.raw[m.raw] = m.test
        if m.attempt > 1 or len(m.samples) > (m.value is not None):
            self.repeated.setdefault(m.cell, []).append(Attempt(m.attempt, m.value, m.samples))
        if m.stage is Stage.APPLICATION or m.test in self._drawn:
            self.kept.append(m)


@dataclass(frozen=True)
class ReportSource:
    """One judged run.

    `judged` holds the verdict on every planned cell, `verdict` the run's. `trainings`, `gpu_ways` and
    `searches` are what the benchmarks read from their raw files for the report. `passing` has seen every
    measurement where `measurements` are those that it kept. `counters` are read once.
    """

    plan: Plan
    measurements: Sequence[Measurement]
    counters: Iterable[CounterReading]
    inventory: Snapshot | None
    judged: Judged
    verdict: Verdict
    trainings: Sequence[Training] = field(default_factory=tuple)
    gpu_ways: Sequence[GpuWay] = field(default_factory=tuple)
    searches: Sequence[SearchDetail] = field(default_factory=tuple)
    said_by_others: Sequence[str] = ()  # into tools' outputs, harmless
    passing: Passing | None = None

    @property
    def losses(self) -> tuple[TrainingSeries, ...]:
        """The training curves."""
        return tuple(training.loss for training in self.trainings)

    @cached_property
    def places(self) -> CellPlaces:
        """Where each planned cell lies."""
        return CellPlaces(self.plan.items)

    def place(self, cell: str) -> CellPlace | None:
        """Return the place of a cell by its id; None: it is not planned."""
        found = self.places.named(cell)
        if found is None:
            return None
        _, _, _, nodes, rail, direction, _ = cell.split("/", 6)
        ends = tuple(nodes.split(","))
        on, way = (None if end == "-" else end for end in (rail, direction))
        return CellPlace(self.plan.items[found[0]], found[0], ends, on, way)

    def planned(self, cell: str) -> CellPlace:
        """Return the place of a cell that the plan has. Raises KeyError."""
        if (place := self.place(cell)) is None:
            raise KeyError(cell)
        return place

    @cached_property
    def seen(self) -> Passing:
        """What every measurement left."""
        found = self.passing or Passing()
        for m in self.measurements if self.passing is None else ():
            found.add(m)
        return found

    def attempts(self, cell: str) -> list[Attempt]:
        """Return what is known of a cell's measurements beside its value, oldest attempt first."""
        return sorted(self.seen.repeated.get(cell, ()), key=lambda one: one.number)

    @cached_property
    def by_item(self) -> list[Cells]:
        """The judged cells of every plan item, in the plan's order."""
        return [block.cells for block in self.judged.items]

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
    took = _took(source.seen.starts)
    return tuple(
        StageTimeRow(
            of.stage, of.expected_s, of.limit_s, round(of.expected_node_s / 3600, 1), took.get(of.stage)
        )
        for of in expected.stages
    )


def _took(starts: Iterable[Start]) -> dict[Stage, float]:
    spans: dict[Stage, Interval] = {}
    for stage, started, duration_s in starts:
        if (one := interval(started, duration_s)) is not None:
            first, last = spans.get(stage, one)
            spans[stage] = min(first, one[0]), max(last, one[1])
    return {stage: (last - first).total_seconds() for stage, (first, last) in spans.items()}
