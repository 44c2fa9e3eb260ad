"""Fast alarms on a node's nightly values: steps by bounded scores over two to eight nights, and drift.

A night's score is the value against the series' level of late, as a normal value that is as rare: in the
spread and the tails that the series and the others of its metric have shown (`nightnoise`). Sums of scores
are held against what autocorrelated nights and a level known from so many nights make of them; two nights are
weighed by their likelihood (`twonights`). No single night raises an alarm: odd nights happen, and a fault is
there the next night too.

An alarm is a reason to measure again, never a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shakedown.statistics.nightcharts import LEARNING_NIGHTS, SMALLEST_EFFECT, Alarm, Charts
from shakedown.statistics.ownweeks import without_own_weeks

__all__ = ["FALSE_ALARMS_PER_1000_YEARS", "LEARNING_NIGHTS", "SMALLEST_EFFECT", "Alarm", "find_alarms"]

Floats = NDArray[np.float64]

# In the worst benign noise of tests/bench/bench_alarms.py: the worst row of docs/evidence/alarms.md.
FALSE_ALARMS_PER_1000_YEARS = 7.16


def find_alarms(
    values: Floats,
    *,
    higher: bool | NDArray[np.bool_],
    resolution: float | Floats = 0.0,
    pooled: bool = True,
    changes: Sequence[tuple[int, int]] = (),
    weekdays: NDArray[np.intp] | None = None,
) -> list[Alarm]:
    """Return the alarms of many series.

    Args:
        values: series x nights, in time; NaN where a night has no value.
        higher: whether more is better, of all or of each. Only a change for the worse gives an alarm.
        resolution: step in which the tool prints the metric; no spread is believed to be narrower.
        pooled: whether the series are one metric of many nodes, which learn their noise from each other.
        changes: (series, night) of the first night with other parts. A step at that time is alarmed; after
            two weeks the level with the new parts is what the next nights are held against.
        weekdays: the day of the week of each night, 0 to 6, if a week of each series' own is to be learnt;
            only for series of one metric.
    """
    if weekdays is not None:
        values = without_own_weeks(values, weekdays, LEARNING_NIGHTS)
    charts = Charts(values, higher, resolution, pooled=pooled)
    changed = np.zeros(values.shape, dtype=bool)
    for series, night in changes:
        changed[series, night] = True
    for night in range(values.shape[1]):
        charts.advance(night, changed[:, night])
    return charts.alarms()
