"""The one way from a run's files to its verdict: every cell, what explains the mesh's results, the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shakedown.evidence.window import paths_flaws, snapshot_flaws
from shakedown.judge.localise.pair_results import PairResults, PlannedPairs
from shakedown.judge.verdict import Judged, judge_cells, summarise
from shakedown.nics.rates import counts_errors
from shakedown.nos.readings import IDLE, OF_UPLINK
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.program import no_cycle_search
from shakedown.records.reading import BadInput
from shakedown.records.results import CounterReading, Measurement
from shakedown.records.verdict import CauseVerdict, Verdict
from shakedown.run.folder import Run

# With two nodes neither can be told from its partner.
_FEWEST_NODES = 3
# Beyond this a verdict would spend longer on causes than on judging; `shakedown localise` has the time.
_MOST_CELLS = 500_000
# The same for a mesh of few pairs of many nodes, whose matrices are large and empty: 1,024 nodes x 8 rails.
_MOST_PLACES = 1024 * 1024 * 8


def _must_carry(items: Iterable[PlanItem]) -> set[tuple[str, str]]:
    """Return the (leaf, port) of uplinks of which the plan requires that they carry traffic."""
    return {
        (nodes[0], str(item.params["port"]))
        for item in items
        if item.metric == f"counter.{IDLE}" and item.required and item.not_run is None
        for nodes in item.nodes
    }


class CausesOfRun:
    """Watches measurements and counters go by, and localises afterwards; idle where there is no mesh."""

    def __init__(self, plan: Plan, watch: Callable[[Measurement], None] | None = None) -> None:
        self._watch = watch
        planned = PlannedPairs(plan.items)
        nodes, rails = len(planned.nodes()), len(planned.rails())
        self._wanted = (
            nodes >= _FEWEST_NODES and planned.count <= _MOST_CELLS and rails * nodes**2 <= _MOST_PLACES
        )
        self._pairs = PairResults(planned)
        self._readings: list[CounterReading] = []
        self._must_carry = _must_carry(plan.items)
        self._idle: list[CounterReading] = []

    def measurements(self, found: Iterable[Measurement]) -> Iterator[Measurement]:
        """Pass measurements on."""
        for m in found:
            if self._wanted:
                self._pairs.add(m)
            if self._watch:
                self._watch(m)
            yield m

    def counters(self, found: Iterable[CounterReading]) -> Iterator[CounterReading]:
        """Pass counter readings on."""
        for reading in found:
            if self._wanted and counts_errors(reading.counter):
                self._readings.append(reading)
            elif reading.counter in OF_UPLINK:
                self._idle.append(reading)
            yield reading

    def causes(self, run: Run) -> tuple[CauseVerdict, ...]:
        """Return what explains the results that went by.

        Raises:
            BadInput: the run's cabling or paths cannot be read.
        """
        if not self._pairs and not self._idle:
            return ()
        from shakedown.judge.localise.suspects import causes_and_suspects, idle_uplinks

        readings = sorted(self._readings, key=lambda r: (r.kind, r.device, r.port, r.counter, r.test))
        of_pairs = causes_and_suspects(self._pairs, run, readings)[0] if self._pairs else []
        return tuple(
            CauseVerdict(
                element=str(cause.element),
                blamed=cause.blamed,
                confidence=round(cause.confidence, 3),
                effect=round(cause.effect, 3),
                evidence=cause.evidence,
                rivals=tuple(str(rival) for rival in cause.rivals),
                proposal=cause.proposal,
            )
            for cause in (*idle_uplinks(self._idle, self._must_carry), *of_pairs)
        )


@dataclass(frozen=True)
class JudgedRun:
    """A run with the verdict on each of its cells; causes and the whole are worked out when asked for."""

    run: Run
    cells: Judged
    _passed_by: CausesOfRun

    @cached_property
    def causes(self) -> tuple[CauseVerdict, ...]:
        """What explains the results of the mesh. Raises BadInput if cabling or paths cannot be read."""
        return self._passed_by.causes(self.run)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the run. Raises BadInput as `causes` does."""
        return summarise(self.run.plan, self.cells, self.run.problems, self.causes)


def judge_run(run: Run, watch: Callable[[Measurement], None] | None = None) -> JudgedRun:
    """Judge every cell of a run.

    Args:
        run: the opened folder; its lines are read here, and none is kept: a large run has millions.
        watch: is shown each measurement as it goes by.

    Raises:
        BadInput: a line cannot be read.
    """
    if run.snapshot is not None:
        run.problems.extend(snapshot_flaws(run.snapshot, run.ran, run.plan))
    with suppress(BadInput):  # collecting has refused it
        run.problems.extend(paths_flaws(run.own_paths or (), run.ran, run.plan))
    run.problems.extend(run.strays())
    passing = CausesOfRun(run.plan, watch)
    measurements, counters = passing.measurements(run.measurements()), passing.counters(run.counters())
    return JudgedRun(run, judge_cells(run.plan, measurements, counters), passing)


def judge_folder(folder: Path, *, simulated: bool = False) -> Verdict:
    """Read a run folder, which may be `simulated` if so said, and judge it. Raises BadInput."""
    # The cells are gone when the search for cycles resumes: it would walk through all of them.
    with no_cycle_search():
        return judge_run(Run(folder, simulated=simulated)).verdict
