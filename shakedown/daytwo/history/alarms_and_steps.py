"""What a history shows: alarms, drift and steps, each with the inventory change that it coincides with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shakedown.records.base import Better, Record
from shakedown.statistics.alarms import LEARNING_NIGHTS, Alarm, find_alarms
from shakedown.statistics.changepoints import change_points
from shakedown.statistics.commonmode import split_common
from shakedown.statistics.ownweeks import weekdays
from shakedown.statistics.robust import resolution

Floats = NDArray[np.float64]
Times = NDArray[np.datetime64]
# A step is located to the night, give or take one; an alarm comes up to three nights after what caused it.
_STEP_SLACK, _ALARM_SLACK = 1, 3
_MOST_CAUSES = 20
# Enough values to see in which steps a tool prints.
_PRINTED = 300


Kind = Literal["alarm", "drift", "step"]
# Whose alarm it is when all nodes did the same in a night. No node can have this name.
ALL_NODES = "all nodes"


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
    """One alarm, drift or step of one series."""

    kind: Kind
    node: str
    metric: str
    unit: str
    time: str  # first night of the new level, or night of the alarm; UTC
    before: float  # level before, in `unit`
    after: float
    shift: float  # relative, positive for an improvement
    standing: bool  # an alarm or drift that is not over; a step is a level until the next one
    coincides: tuple[str, ...]  # inventory changes of the node, or of what is no node, at that time


def findings(
    series: Sequence[Label],
    times: Times,
    values: Floats,
    events: Mapping[str, Sequence[SeenChange]],
    common: Sequence[SeenChange] = (),
    *,
    one_metric: bool = True,
) -> list[HistoryChange]:
    """Return alarms and steps of many series (series x runs), standing alarms first, the worst first.

    Args:
        series: whose they are.
        times: when the runs were, in order.
        values: series x runs, NaN where there is no value.
        events: the inventory changes by node.
        common: the changes of hosts that are no nodes.
        one_metric: the series are one metric of all nodes. They learn their noise from each other then, and
            what all did in a night is taken out of each and told once, as an alarm of all nodes; what
            a node does every week is no alarm.
    """
    steps = _resolutions(series, values)
    by_row = [[*events.get(of.node, ()), *common] for of in series]

    def finding(
        kind: Kind, of: Label, near: Sequence[SeenChange], seen: Times, at: int, slack: int, **more: object
    ) -> HistoryChange:
        low, high = seen[max(0, at - slack)], seen[min(len(seen) - 1, at + _STEP_SLACK)]
        causes = [str(e) for e in near if e.since < high and e.until > low]
        return HistoryChange.model_validate(
            {
                "kind": kind,
                "node": of.node,
                "metric": of.metric,
                "unit": of.unit,
                "time": f"{seen[at]}Z",
                "coincides": causes[:_MOST_CAUSES],
                **more,
            }
        )

    def alarm(a: Alarm, of: Label, near: Sequence[SeenChange], row: Floats) -> HistoryChange:
        seen = times[np.isfinite(row)]
        at = int(np.searchsorted(seen, times[a.night]))
        kind: Kind = "alarm" if a.chart == "step" else "drift"
        levels = {"before": a.baseline, "after": a.baseline + a.effect * abs(a.baseline)}
        if of.better is Better.LOWER:
            levels["after"] = a.baseline - a.effect * abs(a.baseline)
        return finding(kind, of, near, seen, at, _ALARM_SLACK, shift=a.effect, standing=a.standing, **levels)

    own, fleet = split_common(values) if one_metric else (values, None)
    higher = np.array([of.better is Better.HIGHER for of in series])
    changes = [(row, at) for row, near in enumerate(by_row) for at in _nights(near, times)]
    days = weekdays(times, LEARNING_NIGHTS) if one_metric else None
    alarms = find_alarms(
        own, higher=higher, resolution=steps, pooled=one_metric, changes=changes, weekdays=days
    )
    found = [alarm(a, series[a.series], by_row[a.series], own[a.series]) for a in alarms]
    if fleet is not None and np.isfinite(fleet).any():
        middle = float(np.nanmedian(values))
        row = (fleet * middle)[None]
        of = Label(ALL_NODES, series[0].metric, series[0].unit, series[0].better)
        # What changed on half of the nodes at once is the fleet's change too.
        often = np.bincount([at for _, at in changes], minlength=len(times)) * 2 >= len(series)
        shared = sorted({*_nights(common, times), *np.flatnonzero(often).tolist()})
        alarms = find_alarms(
            row, higher=higher[:1], resolution=steps[:1], pooled=False, changes=[(0, at) for at in shared]
        )
        found += [alarm(a, of, common, row[0]) for a in alarms]
    for row_number, of in enumerate(series):
        there = np.flatnonzero(np.isfinite(values[row_number]))
        sign = 1.0 if higher[row_number] else -1.0
        found += [
            finding(
                "step",
                of,
                by_row[row_number],
                times[there],
                c.night,
                1 + _STEP_SLACK,
                before=c.before,
                after=c.after,
                shift=sign * c.step,
                standing=False,
            )
            for c in change_points(values[row_number, there], resolution=float(steps[row_number]))
        ]
    return sorted(found, key=lambda f: (not f.standing, f.shift, f.node, f.metric, f.time))


def _nights(changes: Sequence[SeenChange], times: Times) -> list[int]:
    """Return the columns of the first nights with what changed."""
    places = {int(np.searchsorted(times, e.until)) for e in changes}
    return sorted(place for place in places if place < len(times))


def _resolutions(series: Sequence[Label], values: Floats) -> Floats:
    """Return the step in which each series' metric is printed, from values of all its nodes."""
    by_metric: dict[str, float] = {}
    for row, label in enumerate(series):
        if label.metric not in by_metric:
            finite = values[row, np.isfinite(values[row])][:_PRINTED]
            by_metric[label.metric] = resolution([float(v) for v in finite]) if len(finite) else 0.0
    return np.array([by_metric[label.metric] for label in series])
