"""Alarms and change points on simulated nights; tests/bench/bench_alarms.py counts the rates at length."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from shakedown.statistics.alarms import LEARNING_NIGHTS, find_alarms
from shakedown.statistics.changepoints import PENALTY, _can_change, _join_costs, change_points

CV = 0.003


def nights(seed: int, series: int, count: int) -> np.ndarray:
    """Healthy values."""
    return 390 * (1 + CV * np.random.default_rng(seed).standard_normal((series, count)))


def test_a_step_of_two_percent_is_alarmed_within_two_nights():
    """Catches: an alarm that comes a week late. 99 of 100 within two nights after thirty."""
    values = nights(1, 2000, LEARNING_NIGHTS + 5)
    values[:, LEARNING_NIGHTS:] *= 0.98
    first = {a.series: a.night for a in find_alarms(values, higher=True) if a.night >= LEARNING_NIGHTS}
    in_time = sum(night <= LEARNING_NIGHTS + 1 for night in first.values())
    assert in_time >= 0.99 * 2000


def test_false_alarms_are_as_rare_as_stated():
    """Catches: a chart tuned on one seed. Six are expected of 12,000 years at most; twice that is refused."""
    assert len(find_alarms(nights(2, 12_000, LEARNING_NIGHTS + 365), higher=True)) <= 12


@pytest.mark.parametrize(
    ("higher", "factor", "alarmed"), [(True, 1.05, 0), (True, 0.95, 1), (False, 1.05, 1)]
)
def test_only_the_bad_direction_is_alarmed(higher, factor, alarmed):
    """Catches: an improvement that wakes somebody, a latency that rises and does not."""
    values = nights(3, 1, 50)
    values[:, 40:] *= factor
    assert len(find_alarms(values, higher=higher)) == alarmed


def test_a_fault_does_not_become_normal_and_ends_when_it_is_mended():
    """Catches: an alarm that is over because the baseline learnt the fault."""
    values = nights(4, 1, 200)
    values[:, 60:150] *= 0.98
    (alarm,) = find_alarms(values[:, :150], higher=True)
    assert (alarm.standing, alarm.night) == (True, pytest.approx(61, abs=1))
    (alarm,) = find_alarms(values, higher=True)
    assert not alarm.standing


def test_gaps_do_not_shift_the_alarm():
    """Catches: a node that is measured every third night and whose step is found in the wrong one."""
    values = np.full((1, 300), np.nan)
    values[:, ::3] = nights(5, 1, 100)
    values[:, 240:] *= 0.97
    (alarm,) = find_alarms(values, higher=True)
    assert 240 <= alarm.night <= 246


def test_slow_drift_is_found():
    """Catches: a link that loses a tenth of a per cent every week and never steps."""
    values = nights(6, 50, 200)
    values[:, 40:] *= 1 - 0.0002 * np.arange(160)
    assert len({a.series for a in find_alarms(values, higher=True)}) >= 45


def test_a_metric_that_prints_few_digits_does_not_alarm_for_the_last_one():
    """Catches: a baseline of identical values for which 97.5 after 97.6 is a catastrophe."""
    values = np.full((1, 80), 97.6)
    values[:, 60:] = 97.5
    assert find_alarms(values, higher=True, resolution=0.1) == []


def test_steps_are_located_to_the_night_and_single_nights_are_none():
    """Catches: two change points around one odd night, and a step a week off."""
    values = nights(7, 1, 120)[0]
    values[70:] *= 0.985
    values[30] *= 0.5
    (step,) = change_points(values)
    assert step.night == 70
    assert step.step == pytest.approx(-0.015, abs=0.003)


def test_screens_never_hide_what_the_fit_finds():
    """Catches: a shortcut that saves time by not looking."""
    import ruptures

    rng = np.random.default_rng(8)
    found = 0
    for _ in range(150):
        z = rng.standard_normal(60)
        begin, length = rng.integers(5, 40), rng.integers(3, 20)
        z[begin : begin + length] += rng.uniform(0, 4)
        ends = ruptures.KernelCPD(kernel="linear", min_size=3).fit(z.reshape(-1, 1)).predict(pen=PENALTY)
        if len(ends) > 1:
            found += 1
            assert _can_change(z)
            assert _join_costs(z)
    assert 20 < found < 150
    assert "ruptures" in sys.modules
