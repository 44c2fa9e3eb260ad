"""What a report is made from: the records of one judged run, indexed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shakedown.benchmarks.inference.report_data import SearchDetail
from shakedown.benchmarks.interconnect.report_data import GpuWay
from shakedown.benchmarks.lora.report_data import Series, Training
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better
from shakedown.records.counters import CounterReading
from shakedown.records.plan import Plan, PlanItem, Reference
from shakedown.records.results import Measurement
from shakedown.records.snapshot import Snapshot
from shakedown.records.verdict import CellVerdict, Verdict


@dataclass(frozen=True)
class Place:
    """Where a cell lies in the plan."""

    item: PlanItem
    item_index: int
    nodes: tuple[str, ...]
    rail: str | None
    direction: str | None


@dataclass(frozen=True)
class Source:
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

    @property
    def losses(self) -> tuple[Series, ...]:
        """The training curves."""
        return tuple(training.loss for training in self.trainings)

    @cached_property
    def places(self) -> dict[str, Place]:
        """The place of every planned cell, by cell id."""
        return {
            cell: Place(item, index, nodes, rail, direction)
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
