"""What a history shows: alarms and lasting steps, each with the inventory change that it coincides with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shakedown.records.base import Better, Record
from shakedown.statistics.alarms import find_alarms
from shakedown.statistics.changepoints import change_points
from shakedown.statistics.robust import resolution

Floats = NDArray[np.float64]
Times = NDArray[np.datetime64]
# A step is located to the night, give or take one; an alarm comes up to three nights after what caused it.
_STEP_SLACK, _ALARM_SLACK = 1, 3
_MOST_CAUSES = 20
# Enough values to see in which steps a tool prints.
_PRINTED = 300


Kind = Literal["alarm", "step"]


@dataclass(frozen=True)
class Label:
    """Whose series it is."""

    node: str
    metric: str
    unit: str
    better: Better


class SeenChange(Protocol):
    """An inventory change between two runs that saw the host."""

    @property
    def since(self) -> np.datetime64:
        """The last run with the old part."""

    @property
    def until(self) -> np.datetime64:
        """The first run with the new one."""


class HistoryChange(Record):
    """One alarm or step of one series."""

    kind: Kind
    node: str
    metric: str
    unit: str
    time: str  # first night of the new level, or night of the alarm; UTC
    before: float  # level before, in `unit`
    after: float
    shift: float  # relative, positive for an improvement
    standing: bool  # an alarm that is not over; a step is a level until the next one
    coincides: tuple[str, ...]  # inventory changes of the node, or of what is no node, at that time


def findings(
    series: Sequence[Label],
    times: Times,
    values: Floats,
    events: Mapping[str, Sequence[SeenChange]],
    common: Sequence[SeenChange] = (),
) -> list[HistoryChange]:
    """Return alarms and steps of many series (series x runs), standing alarms first, the worst first.

    `events` are the inventory changes by node, `common` those of hosts that are no nodes.
    """
    steps = _resolutions(series, values)
    higher = np.array([s.better is Better.HIGHER for s in series])

    def finding(kind: Kind, row: int, night: int, slack: int, **more: object) -> HistoryChange:
        seen = times[np.isfinite(values[row])]
        at = int(np.searchsorted(seen, times[night]))
        low, high = seen[max(0, at - slack)], seen[min(len(seen) - 1, at + _STEP_SLACK)]
        of = series[row]
        near = [str(e) for e in (*events.get(of.node, ()), *common) if e.since < high and e.until > low]
        return HistoryChange.model_validate(
            {
                "kind": kind,
                "node": of.node,
                "metric": of.metric,
                "unit": of.unit,
                "time": f"{times[night]}Z",
                "coincides": near[:_MOST_CAUSES],
                **more,
            }
        )

    found = [
        finding(
            "alarm",
            a.series,
            a.night,
            _ALARM_SLACK,
            before=a.baseline,
            after=float(values[a.series, a.night]),
            shift=a.effect,
            standing=a.standing,
        )
        for a in find_alarms(values, higher=higher, resolution=steps)
    ]
    for row in range(len(series)):
        there = np.flatnonzero(np.isfinite(values[row]))
        sign = 1.0 if higher[row] else -1.0
        found += [
            finding(
                "step",
                row,
                int(there[c.night]),
                1 + _STEP_SLACK,
                before=c.before,
                after=c.after,
                shift=sign * c.step,
                standing=False,
            )
            for c in change_points(values[row, there], resolution=float(steps[row]))
        ]
    return sorted(found, key=lambda f: (not f.standing, f.shift, f.node, f.metric, f.time))


def _resolutions(series: Sequence[Label], values: Floats) -> Floats:
    """Return the step in which each series' metric is printed, from values of all its nodes."""
    by_metric: dict[str, float] = {}
    for row, label in enumerate(series):
        if label.metric not in by_metric:
            finite = values[row, np.isfinite(values[row])][:_PRINTED]
            by_metric[label.metric] = resolution([float(v) for v in finite]) if len(finite) else 0.0
    return np.array([by_metric[label.metric] for label in series])
