"""The view model: everything the report says, computed from records alone, before any markup exists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from shakedown.judge.cells import SEVERITY
from shakedown.records.base import Outcome, Stage, tally
from shakedown.records.plan import NotCovered
from shakedown.records.results import Measurement
from shakedown.records.verdict import CauseVerdict, Coverage
from shakedown.report import tables, text, workloads
from shakedown.report import tables as evidence
from shakedown.report.findings import StoppedCells, Suspect, find, suspects
from shakedown.report.heatmaps import HeatMap, heat_maps
from shakedown.report.source import ReportSource, StageTimeRow, interval, stage_times
from shakedown.report.sweeps import Chart, loss_charts, size_sweeps
from shakedown.report.workloads import InterconnectView, TrainingView


@dataclass(frozen=True)
class StageRow:
    """One rung of the ladder."""

    stage: Stage
    outcome: Outcome | None  # None: nothing planned
    coverage: Coverage
    outcomes: dict[Outcome, int]


@dataclass(frozen=True)
class Timing:
    """What the measuring cost. Times in seconds; `busy_s` is the union of all measurements' intervals."""

    started: str
    ended: str
    wall_s: float
    busy_s: float

    @property
    def overhead_s(self) -> float:
        """Wall time in which nothing was measured."""
        return max(0.0, self.wall_s - self.busy_s)


@dataclass(frozen=True)
class Checksum:
    """What the signature block prints: `sha256sum FILES | sha256sum`."""

    sha256: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class ReportView:
    """What every renderer draws."""

    run: str
    system: str
    profile: str
    created: str
    nodes: tuple[str, ...]
    rails: tuple[str, ...]
    outcome: Outcome
    reason: str
    coverage: Coverage
    coverage_percent: str
    outcomes: dict[Outcome, int]
    stages: tuple[StageRow, ...]
    times: tuple[StageTimeRow, ...]
    not_covered: tuple[NotCovered, ...]
    can_tell: tuple[str, ...]  # the odds of its gates, and what the NICs' counters show
    caveats: tuple[str, ...]
    problems: tuple[str, ...]
    unplanned: tuple[str, ...]
    transients: tuple[str, ...]  # what passed only when it was measured again
    findings: tuple[StoppedCells, ...]
    findings_left_out: int
    suspects: tuple[Suspect, ...]
    causes: tuple[CauseVerdict, ...]
    groups: tuple[tables.GroupRow, ...]
    families: tuple[tables.FamilyRow, ...]
    cells: tuple[tables.CellRow, ...]
    cells_left_out: int
    every_cell: bool
    sweeps: tuple[Chart, ...]
    sweeps_left_out: int
    losses: tuple[Chart, ...]
    training: TrainingView | None
    interconnect: InterconnectView | None
    maps: tuple[HeatMap, ...]
    maps_left_out: int
    counters: tuple[evidence.CounterRow, ...]
    counters_left_out: int
    counters_still: int
    references: tuple[evidence.ReferenceRow, ...]
    inventory: tuple[evidence.InventoryRow, ...]
    inventory_aside: tuple[str, ...]
    inventory_left_out: int
    inventory_taken: str
    timing: Timing | None
    checksum: Checksum | None

    @property
    def raw_paths(self) -> tuple[str, ...]:
        """Paths of the raw outputs that the findings need, worst first, each once."""
        return tuple(dict.fromkeys(f.raw for f in self.findings if f.raw))


def _stages(source: ReportSource) -> tuple[StageRow, ...]:
    """Required cells by stage, as the verdict counts them: an optional cell makes no stage fail."""
    counts: dict[Stage, dict[Outcome, int]] = {}
    for item, group in zip(source.plan.items, source.verdict.groups, strict=True):
        if item.required:
            total = counts.setdefault(group.stage, dict.fromkeys(Outcome, 0))
            for outcome, count in group.outcomes.items():
                total[outcome] += count
    rows = []
    for stage in Stage:
        outcomes = counts.get(stage, dict.fromkeys(Outcome, 0))
        present = [o for o, count in outcomes.items() if count]
        coverage = source.verdict.stages.get(stage, Coverage(planned=0, measured=0))
        rows.append(StageRow(stage, max(present, key=SEVERITY.__getitem__, default=None), coverage, outcomes))
    return tuple(rows)


def timing(measurements: Iterable[Measurement]) -> Timing | None:
    """Return when the run measured and for how much of that time; None where no time was recorded."""
    # Many measurements come out of one start of a tool.
    starts = {(m.started, m.duration_s) for m in measurements}
    intervals = sorted(i for start in starts if (i := interval(*start)) is not None)
    if not intervals:
        return None
    busy = timedelta()
    start, end = intervals[0]
    for next_start, next_end in intervals[1:]:
        if next_start > end:
            busy += end - start
            start, end = next_start, next_end
        else:
            end = max(end, next_end)
    busy += end - start
    first, last = intervals[0][0], max(e for _, e in intervals)
    shown = "%Y-%m-%d %H:%M:%S %Z"
    return Timing(
        first.strftime(shown), last.strftime(shown), (last - first).total_seconds(), busy.total_seconds()
    )


def build(source: ReportSource, checksum: Checksum | None = None) -> ReportView:
    """Return the view of a judged run. Pure: the same records give the same view."""
    verdict, plan = source.verdict, source.plan
    groups = tables.group_rows(source)
    found, found_left_out = find(source)
    cells, cells_left_out, every_cell = tables.cell_rows(source)
    charts, charts_left_out = size_sweeps(source)
    maps, maps_left_out = heat_maps(source)
    counters, counters_left_out, still = evidence.counter_rows(source)
    inventory, inventory_aside, inventory_left_out = evidence.inventory_rows(source)
    return ReportView(
        run=verdict.run,
        system=plan.system,
        profile=plan.profile or "",
        created=plan.created,
        nodes=plan.nodes,
        rails=plan.rails,
        outcome=verdict.outcome,
        reason=verdict.reason,
        coverage=verdict.coverage,
        coverage_percent=text.percent(verdict.coverage.measured, verdict.coverage.planned),
        outcomes=tally(verdict.outcomes),
        stages=_stages(source),
        times=stage_times(source),
        not_covered=plan.not_covered,
        can_tell=(*plan.power, *plan.nic_counters),
        caveats=plan.caveats,
        problems=verdict.problems,
        unplanned=verdict.unplanned,
        transients=tuple(cell.reason for cell in verdict.transients),
        findings=found,
        findings_left_out=found_left_out,
        suspects=suspects(source),
        causes=verdict.causes,
        groups=groups,
        families=tables.family_rows(source, groups),
        cells=cells,
        cells_left_out=cells_left_out,
        every_cell=every_cell,
        sweeps=charts,
        sweeps_left_out=charts_left_out,
        losses=loss_charts(source),
        training=workloads.build_training(source),
        interconnect=workloads.build_interconnect(source),
        maps=maps,
        maps_left_out=maps_left_out,
        counters=counters,
        counters_left_out=counters_left_out,
        counters_still=still,
        references=evidence.reference_rows(source),
        inventory=inventory,
        inventory_aside=inventory_aside,
        inventory_left_out=inventory_left_out,
        inventory_taken=source.inventory.taken if source.inventory else "",
        timing=timing(source.measurements),
        checksum=checksum,
    )
