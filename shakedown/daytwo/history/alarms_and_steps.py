"""What a history shows: alarms, drift and steps, each with the inventory change that it coincides with."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from shakedown.daytwo.history.baselines import split_common, weekdays, without_own_weeks
from shakedown.daytwo.history.night_charts import (
    FEWEST_NIGHTS,
    LEARNING_NIGHTS,
    Alarm,
    Charts,
    learning_nights,
)
from shakedown.records.base import Better, Record
from shakedown.statistics.robust import resolution

# A night's score is the value against the series' level of late, as a normal value that is as rare: in the
# spread and the tails that the series and the others of its metric have shown (`nightnoise`). Sums of scores
# are held against what autocorrelated nights and a level known from so many nights make of them; two nights
# are weighed by their likelihood (`twonights`). No single night raises an alarm: odd nights happen, and a
# fault is there the next night too.
#
# An alarm is a reason to measure again, never a verdict.

__all__ = ["FALSE_ALARMS_PER_1000_YEARS", "FEWEST_NIGHTS", "LEARNING_NIGHTS", "Alarm", "find_alarms"]

Floats = NDArray[np.float64]

# In the worst benign noise of docs/evidence/alarms.md, a leaf's busy weeks (research/stranger_nights.py).
FALSE_ALARMS_PER_1000_YEARS = 33.2


def find_alarms(
    values: Floats,  # series x nights, in time; NaN where a night has no value
    *,
    # Whether more is better, of all or of each. Only a change for the worse gives an alarm.
    higher: bool | NDArray[np.bool_],
    # Step in which the tool prints the metric; no spread is believed to be narrower.
    resolution: float | Floats = 0.0,
    # Whether the series are one metric of many nodes, which learn their noise from each other.
    pooled: bool = True,
    # (series, night) of the first night with other parts. A step at that time is alarmed; after two weeks the
    # level with the new parts is what the next nights are held against.
    changes: Sequence[tuple[int, int]] = (),
    # The day of the week of each night, 0 to 6, if a week of each series' own is to be learnt; only for
    # series of one metric.
    weekdays: NDArray[np.intp] | None = None,
) -> list[Alarm]:
    """Return the alarms of many series."""
    # Too few nights of its own tell no week.
    if weekdays is not None and learning_nights(values) == LEARNING_NIGHTS:
        values = without_own_weeks(values, weekdays, LEARNING_NIGHTS)
    charts = Charts(values, higher, resolution, pooled=pooled)
    changed = np.zeros(values.shape, dtype=bool)
    for series, night in changes:
        changed[series, night] = True
    for night in range(values.shape[1]):
        charts.advance(night, changed[:, night])
    return charts.alarms()


# A segment is at least so long, so that one odd night or two are no change.
SHORTEST_NIGHTS = 3
SMALLEST_SERIES = 12
# Gain in squared sigmas that a change must bring. Fewer than one healthy series of a year in 1,000 shows a
# change (research/bench_alarms.py counts them); a step of 2 % at a CV of 0.3 % shows in its third night.
PENALTY = 40.0
_CLIP_SIGMAS = 3.0  # nights further than this from their neighbours' median are drawn in before the fit


@dataclass(frozen=True)
class ChangePoint:
    """A lasting step. `night` is the first index of the new level."""

    night: int
    before: float  # mean of the segment before, in the metric's unit
    after: float

    @property
    def step(self) -> float:
        """Relative size, signed as the values are."""
        return (self.after - self.before) / abs(self.before) if self.before else 0.0


def change_points(values: Floats, *, resolution: float = 0.0, smallest: float = 0.003) -> list[ChangePoint]:
    """Return the steps of one series without gaps; none if it has fewer than twelve nights.

    `smallest` is a share of the value: smaller steps are not reported.
    """
    n = len(values)
    if n < SMALLEST_SERIES:
        return []
    sigma = noise(values, resolution)
    z = (values - np.median(values)) / sigma
    middle = _running_median(z)
    z = np.clip(z, middle - _CLIP_SIGMAS, middle + _CLIP_SIGMAS)
    # Loading ruptures costs more than the exact test that it is needed (`_join_costs`); once it is loaded,
    # using it costs less.
    if not _can_change(z) or ("ruptures" not in sys.modules and not _join_costs(z)):
        return []
    import ruptures

    model = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST_NIGHTS).fit(z.reshape(-1, 1))
    ends = [0, *model.predict(pen=PENALTY)]
    means = [float(np.median(values[a:b])) for a, b in pairwise(ends)]
    found = [ChangePoint(ends[i + 1], *pair) for i, pair in enumerate(pairwise(means))]
    return [c for c in found if abs(c.step) >= smallest]


def noise(values: Floats, resolution: float = 0.0) -> float:
    """Return the standard deviation from night to night, which steps and drift do not widen.

    The MAD of first differences x 1.4826 / sqrt 2, not below the resolution or 1e-4 of the value.
    """
    differences = np.abs(np.diff(values))
    floor = max(resolution, 1e-4 * abs(float(np.median(values))), 1e-12)
    return max(float(np.median(differences)) * 1.4826 / math.sqrt(2), floor)


def _running_median(z: Floats) -> Floats:
    padded = np.concatenate([z[:1].repeat(2), z, z[-1:].repeat(2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 5)
    return np.asarray(np.partition(windows, 2, axis=1)[:, 2], dtype=np.float64)


def _can_change(z: Floats) -> bool:
    """Whether the fit could find a change at all; most series need none.

    If it finds one, joining two neighbouring segments would lose the penalty (`_join_costs`); that loss is at
    most what both gain about the common mean, so one segment alone gains half the penalty.
    """
    s = np.concatenate([[0.0], np.cumsum(z - z.mean())])
    sums = np.subtract.outer(s, s)  # of every segment
    return bool(np.any(sums * sums >= _needed(len(s))))


def _join_costs(z: Floats) -> bool:
    """Whether joining some two neighbouring segments would lose the penalty."""
    s = np.concatenate([[0.0], np.cumsum(z - z.mean())])
    for middle in range(SHORTEST_NIGHTS, len(z) - SHORTEST_NIGHTS + 1):
        left = np.arange(SHORTEST_NIGHTS, middle + 1)
        right = np.arange(SHORTEST_NIGHTS, len(z) - middle + 1)
        means = (s[middle] - s[middle - left]) / left, (s[middle + right] - s[middle]) / right
        weight = np.multiply.outer(left, right) / np.add.outer(left, right)
        if np.any(np.subtract.outer(*means) ** 2 * weight >= PENALTY):
            return True
    return False


@lru_cache(maxsize=8)
def _needed(n: int) -> Floats:
    """Return what the squared sum of a segment must reach, for every pair of its ends."""
    length = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.where(length >= SHORTEST_NIGHTS, length * PENALTY / 2, np.inf)


Times = NDArray[np.datetime64]
# A step is located to the night, give or take one; an alarm comes up to three nights after what caused it.
_STEP_SLACK, _ALARM_SLACK = 1, 3
_MOST_CAUSES = 20
_PRINTED = 300  # enough values to see in which steps a tool prints


Kind = Literal["alarm", "drift", "step"]
# Whose alarm it is when all nodes did the same in a night. No node can have this name.
ALL_NODES = "all nodes"


@dataclass(frozen=True)
class SeriesLabel:
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
    series: Sequence[SeriesLabel],  # whose they are
    times: Times,  # when the runs were, in order
    values: Floats,  # series x runs, NaN where there is no value
    events: Mapping[str, Sequence[SeenChange]],  # the inventory changes by node
    common: Sequence[SeenChange] = (),  # the changes of hosts that are no nodes
    *,
    # The series are one metric of all nodes. They learn their noise from each other then, and what all did in
    # a night is taken out of each and told once, as an alarm of all nodes; what a node does every week is no
    # alarm.
    one_metric: bool = True,
) -> list[HistoryChange]:
    """Return alarms and steps of many series (series x runs), standing alarms first, the worst first."""
    steps = _resolutions(series, values)
    by_row = [[*events.get(of.node, ()), *common] for of in series]

    def finding(
        kind: Kind,
        of: SeriesLabel,
        near: Sequence[SeenChange],
        seen: Times,
        at: int,
        slack: int,
        **more: object,
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

    def alarm(a: Alarm, of: SeriesLabel, near: Sequence[SeenChange], row: Floats) -> HistoryChange:
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
        of = SeriesLabel(ALL_NODES, series[0].metric, series[0].unit, series[0].better)
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


def _resolutions(series: Sequence[SeriesLabel], values: Floats) -> Floats:
    """Return the step in which each series' metric is printed, from values of all its nodes."""
    by_metric: dict[str, float] = {}
    for row, label in enumerate(series):
        if label.metric not in by_metric:
            finite = values[row, np.isfinite(values[row])][:_PRINTED]
            by_metric[label.metric] = resolution([float(v) for v in finite]) if len(finite) else 0.0
    return np.array([by_metric[label.metric] for label in series])
