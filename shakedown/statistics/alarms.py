"""Fast alarms on a node's nightly values: self-starting CUSUM and EWMA with a stated false-alarm rate.

Each value is held against all earlier values of its own series by Student's t and turned into a standard
normal score, Hawkins' self-starting chart (Hawkins and Olwell, Cumulative Sum Charts, 1998, chapter 7): the
scores of a healthy series are independent standard normal whatever its mean and spread, so the rate of false
alarms does not hang on how well thirty nights know them. It does hang on nights being independent and nearly
normal; an alarm is therefore a reason to measure again, never a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Nights that a series must have before it can give an alarm.
LEARNING_NIGHTS = 30
# CUSUM: half of the smallest step worth a fast alarm (3 sigma), and the decision interval. The mean time
# between false alarms is 1.8e6 nights (Brook and Evans 1972, Markov chain of 400 states).
CUSUM_K, CUSUM_H = 1.5, 4.2
# EWMA for slow drift: weight of the last night, and the limit in its own sigmas; 1.8e6 nights likewise.
EWMA_WEIGHT, EWMA_L = 0.1, 4.8
# Both together give 365,000 x 2 / 1.8e6 = 0.4; nights left out of the baseline make it a little more, which
# tests/bench/bench_alarms.py counts.
FALSE_ALARMS_PER_1000_YEARS = 0.5
# A night this far out is not taken into the baseline: a fault must not become the norm.
_SUSPECT = 3.5
# A score beyond this only says "certain"; two normal nights after it must be able to end the alarm.
_LARGEST_SCORE = 8.0
# An alarm ends when so many nights in a row are back within two sigmas.
_QUIET_NIGHTS = 3
# A smaller deviation than this share of the value raises no alarm, however quiet the metric.
SMALLEST_EFFECT = 0.003


@dataclass(frozen=True)
class Alarm:
    """One alarm. `night` counts the series' columns."""

    series: int
    night: int
    chart: Literal["cusum", "ewma"]
    effect: float  # relative, positive for an improvement: this night against the baseline
    baseline: float  # mean of the nights before, in the metric's unit
    standing: bool  # still in alarm at the last night


@dataclass
class _Charts:
    """The state of all series at once: baseline (count, mean, sum of squares) and both charts."""

    nights: Floats
    mean: Floats
    squares: Floats
    cusum: Floats
    ewma: Floats
    quiet: Floats
    alarmed: NDArray[np.intp]  # index of the standing alarm, or -1


def find_alarms(
    values: Floats, *, higher: bool | NDArray[np.bool_], resolution: float | Floats = 0.0
) -> list[Alarm]:
    """Return the alarms of many series.

    Args:
        values: series x nights, in time; NaN where a night has no value.
        higher: whether more is better, of all or of each. Only a change for the worse gives an alarm.
        resolution: step in which the tool prints the metric; no baseline is believed to be narrower.
    """
    series = values.shape[0]
    sign = np.where(np.broadcast_to(higher, series), 1.0, -1.0)
    zeros = np.zeros(series)
    state = _Charts(
        zeros.copy(),
        zeros.copy(),
        zeros.copy(),
        zeros.copy(),
        zeros.copy(),
        zeros.copy(),
        np.full(series, -1, dtype=np.intp),
    )
    found: list[Alarm] = []
    for night in range(values.shape[1]):
        _advance(state, values[:, night], night, found, sign, resolution)
    standing = set(state.alarmed[state.alarmed >= 0].tolist())
    return [
        Alarm(a.series, a.night, a.chart, a.effect, a.baseline, place in standing)
        for place, a in enumerate(found)
    ]


def _advance(
    state: _Charts, x: Floats, night: int, found: list[Alarm], sign: Floats, resolution: float | Floats
) -> None:
    """Take one night into all series."""
    there = np.isfinite(x)
    learnt = there & (state.nights >= LEARNING_NIGHTS)
    worse = -sign * _scores(state, x, resolution)
    worse = np.where(learnt, np.clip(worse, -_LARGEST_SCORE, _LARGEST_SCORE), 0.0)
    state.cusum = np.where(learnt, np.maximum(0.0, state.cusum + worse - CUSUM_K), state.cusum)
    state.ewma = np.where(learnt, (1 - EWMA_WEIGHT) * state.ewma + EWMA_WEIGHT * worse, state.ewma)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = sign * np.where(state.mean != 0, (x - state.mean) / np.abs(state.mean), 0.0)
    limit = EWMA_L * np.sqrt(EWMA_WEIGHT / (2 - EWMA_WEIGHT))
    by_cusum, by_ewma = state.cusum > CUSUM_H, state.ewma > limit
    new = learnt & (by_cusum | by_ewma) & (effect <= -SMALLEST_EFFECT) & (state.alarmed < 0)
    for i in np.flatnonzero(new):
        state.alarmed[i] = len(found)
        chart: Literal["cusum", "ewma"] = "cusum" if by_cusum[i] else "ewma"
        found.append(Alarm(int(i), night, chart, float(effect[i]), float(state.mean[i]), True))
    # An alarm stands until the values are back; its nights are no baseline.
    in_alarm = state.alarmed >= 0
    state.quiet = np.where(in_alarm & learnt, np.where(worse < 2.0, state.quiet + 1, 0.0), state.quiet)
    over = in_alarm & (state.quiet >= _QUIET_NIGHTS)
    for array in (state.cusum, state.ewma, state.quiet):
        array[over] = 0.0
    state.alarmed[over] = -1
    _learn(state, x, there & ~in_alarm & (np.abs(worse) < _SUSPECT))


def _scores(state: _Charts, x: Floats, resolution: float | Floats) -> Floats:
    """Return standard normal scores of a night against each series' baseline; positive: larger values.

    Student's t with n degrees becomes normal by (8n + 1) / (8n + 3) sqrt(n ln(1 + t^2 / n)) (Wallace, Annals
    of Mathematical Statistics 30, 1959), which is right to 0.02 for the 29 degrees and more that occur.
    """
    freedom = np.maximum(state.nights - 1, 1.0)
    # 1e-4: no RDMA or GPU benchmark repeats better than that from night to night.
    narrowest = np.maximum(resolution, 1e-4 * np.abs(state.mean))
    spread = np.maximum(np.sqrt(state.squares / freedom), narrowest)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (x - state.mean) / (spread * np.sqrt(1 + 1 / np.maximum(state.nights, 1.0)))
        size = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(t**2 / freedom))
        score = np.sign(t) * size
    known: Floats = np.nan_to_num(score, nan=0.0, posinf=_LARGEST_SCORE, neginf=-_LARGEST_SCORE)
    return known


def _learn(state: _Charts, x: Floats, which: NDArray[np.bool_]) -> None:
    """Welford's update of mean and sum of squares."""
    state.nights = state.nights + which
    delta = np.where(which, x - state.mean, 0.0)
    state.mean = state.mean + delta / np.maximum(state.nights, 1.0)
    state.squares = state.squares + np.where(which, delta * (x - state.mean), 0.0)
