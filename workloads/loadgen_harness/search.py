"""The search for the peak rate: which LoadGen run comes next, from the runs so far and nothing else.

Short probes close a bracket by bisection, and its upper end is asked twice; then full runs confirm the lower
one. Because the next step depends on the journal alone, a search that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["probe", "confirm"]


@dataclass(frozen=True)
class Limits:
    """How fine and how long to search. Rates are queries/s."""

    start_qps: float
    resolution: float = 0.005  # relative width of the bracket at which bisection ends
    confirmations: int = 3
    growth: float = 1.05  # from a rate that was met to the next one tried, while none has failed
    shrink: float = 0.85  # from a rate that failed to the next one tried, squared after two failures, ...
    floor_qps: float = 1.0  # below this the bound counts as never met
    most_runs: int = 60


@dataclass(frozen=True)
class SearchRun:
    """One LoadGen run of the search. `finished` is False for a run of which only the start is known."""

    kind: Kind
    target_qps: float
    valid: bool
    wall_s: float
    finished: bool = True


@dataclass(frozen=True)
class Step:
    """The next run to make."""

    kind: Kind
    target_qps: float


@dataclass(frozen=True)
class End:
    """The search is over: with a confirmed peak, or without one and why."""

    peak_qps: float | None
    reason: str


@dataclass(frozen=True)
class Bracket:
    """The highest rate met and the lowest one failed, of runs of one kind."""

    low: float | None
    high: float | None

    def closed(self, resolution: float) -> bool:
        """Whether both ends are known and lie within the resolution of each other."""
        return (
            self.low is not None and self.high is not None and self.high - self.low <= resolution * self.low
        )


def bracket(runs: Sequence[SearchRun], kind: Kind) -> Bracket:
    """Return the bracket of one kind's runs.

    Where noise contradicts itself, the failure at the lower rate is believed. Of two probes at one rate the
    second counts; a full run that failed stays failed.
    """
    met: dict[float, bool] = {}
    for run in runs:
        if run.kind == kind and run.finished:
            met[run.target_qps] = run.valid and (kind == "probe" or met.get(run.target_qps, True))
    high = min((rate for rate, good in met.items() if not good), default=None)
    lower = [rate for rate, good in met.items() if good and (high is None or rate < high)]
    return Bracket(max(lower, default=None), high)


def _times(runs: Sequence[SearchRun], rate: float | None) -> int:
    return sum(1 for run in runs if run.kind == "probe" and run.finished and run.target_qps == rate)


def _second_opinion(runs: Sequence[SearchRun], probed: Bracket, resolution: float) -> Step | None:
    """The rate that bounds the search from above, asked once more before it is believed.

    A host that was disturbed for some seconds fails probes far below its peak: what one short probe said
    must not be the answer. Where a failure proves to have been a disturbance, the next higher one is in doubt
    as well.
    """
    if probed.high is None or _times(runs, probed.high) > 1:
        return None
    last = next((run for run in reversed(runs) if run.kind == "probe" and run.finished), None)
    overturned = last is not None and last.valid and _times(runs, last.target_qps) > 1
    return Step("probe", probed.high) if probed.closed(resolution) or overturned else None


def next_step(runs: Sequence[SearchRun], limits: Limits) -> Step | End:
    """Return the next run, or how the search ended."""
    if len(runs) >= limits.most_runs:
        return End(None, f"no peak within {limits.most_runs} runs")
    confirmed = bracket(runs, "confirm")
    if confirmed.low is None and confirmed.high is None:
        probed = bracket(runs, "probe")
        failed = sum(1 for run in runs if run.kind == "probe" and run.finished and not run.valid)
        step = _second_opinion(runs, probed, limits.resolution) or _next_probe(probed, failed, limits)
        if step is not None:
            return step
        assert probed.low is not None
        return Step("confirm", probed.low)
    return _next_confirmation(runs, confirmed, limits)


def _next_probe(probed: Bracket, failed: int, limits: Limits) -> Step | End | None:
    """The next short probe; None once the bracket is closed."""
    if probed.low is None and probed.high is None:
        return Step("probe", _rounded(limits.start_qps))
    if probed.low is None:
        assert probed.high is not None
        lower = _rounded(probed.high * limits.shrink**failed)
        if lower < limits.floor_qps:
            return End(None, f"the latency bound was never met, not even at {probed.high:g} queries/s")
        return Step("probe", lower)
    if probed.high is None:
        return Step("probe", _rounded(probed.low * limits.growth))
    if probed.closed(limits.resolution):
        return None
    return Step("probe", _rounded((probed.low + probed.high) / 2))


def _next_confirmation(runs: Sequence[SearchRun], confirmed: Bracket, limits: Limits) -> Step | End:
    """A rate counts once as many full runs as asked for met the bound and none failed it."""
    if confirmed.low is None:
        assert confirmed.high is not None
        failed = sorted({r.target_qps for r in runs if r.kind == "confirm" and r.finished and not r.valid})
        # Short probes were too optimistic. One resolution below, then two, four, ...
        lower = _rounded(failed[-1] * (1 - limits.resolution * 2 ** (len(failed) - 1)))
        if lower < limits.floor_qps or len(failed) > 7:
            return End(None, f"the latency bound was never met in a full run, not at {failed[0]:g} queries/s")
        return Step("confirm", lower)
    if confirmed.high is not None and not confirmed.closed(limits.resolution):
        return Step("confirm", _rounded((confirmed.low + confirmed.high) / 2))
    times = sum(1 for r in runs if r.kind == "confirm" and r.finished and r.target_qps == confirmed.low)
    if times >= limits.confirmations:
        return End(confirmed.low, f"met the bound in {times} full runs")
    return Step("confirm", confirmed.low)


def wasted_s(runs: Sequence[SearchRun]) -> float:
    """Return the seconds spent on runs that could not change the answer.

    Those are runs at a rate already decided when they began (not above a rate met, or not below one failed,
    by runs of the same kind; repeats that confirm are none), and runs that were cut off and said nothing.
    """
    lost = 0.0
    for place, run in enumerate(runs):
        known = bracket(runs[:place], run.kind)
        below = known.low is not None and (
            run.target_qps < known.low or (run.target_qps == known.low and run.kind == "probe")
        )
        asked = run.kind == "confirm" or _times(runs[:place], run.target_qps) > 1
        above = known.high is not None and (
            run.target_qps > known.high or (run.target_qps == known.high and asked)
        )
        if below or above or not run.finished:
            lost += run.wall_s
    return lost


def _rounded(qps: float) -> float:
    """Five digits: a rate that is written down and read back is the same rate."""
    return float(f"{qps:.5g}")
