"""How long each stage was expected to take, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from shakedown.records.base import Stage
from shakedown.records.results import Measurement
from shakedown.report.source import Source

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


def stage_times(source: Source) -> tuple[StageTimeRow, ...]:
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
