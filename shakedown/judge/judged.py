"""The one way from a run's files to its verdict: every cell, what explains the mesh's results, the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shakedown.judge.localise.causes_of_run import CausesOfRun
from shakedown.judge.verdict import Judged, judge_cells, summarise
from shakedown.records.counters import CounterReading
from shakedown.records.cycle_search import no_cycle_search
from shakedown.records.results import Measurement
from shakedown.records.verdict import CauseVerdict, Verdict
from shakedown.run.folder import Run


@dataclass(frozen=True)
class JudgedRun:
    """A run with the verdict on each of its cells; causes and the whole are worked out when asked for.

    `measurements` and `counters` are empty unless `judge_run` was told to keep them.
    """

    run: Run
    cells: Judged
    measurements: Sequence[Measurement]
    counters: Sequence[CounterReading]
    _passed_by: CausesOfRun

    @cached_property
    def causes(self) -> tuple[CauseVerdict, ...]:
        """What explains the results of the mesh. Raises BadInput if cabling or paths cannot be read."""
        return self._passed_by.causes(self.run)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the run. Raises BadInput as `causes` does."""
        return summarise(self.run.plan, self.cells, self.run.problems, self.causes)


def judge_run(run: Run, *, keep: bool = False) -> JudgedRun:
    """Judge every cell of a run.

    Args:
        run: the opened folder; its lines are read here.
        keep: hold the lines for what needs them beside the verdict. A large run has millions.

    Raises:
        BadInput: a line cannot be read.
    """
    passing = CausesOfRun(run.plan)
    measurements, counters = passing.measurements(run.measurements()), passing.counters(run.counters())
    if not keep:
        return JudgedRun(run, judge_cells(run.plan, measurements, counters), (), (), passing)
    kept, read = list(measurements), list(counters)
    return JudgedRun(run, judge_cells(run.plan, kept, read), kept, read, passing)


def judge_folder(folder: Path) -> Verdict:
    """Read a run folder and judge it. Raises BadInput."""
    # The cells are gone when the search for cycles resumes: it would walk through all of them.
    with no_cycle_search():
        return judge_run(Run(folder)).verdict
