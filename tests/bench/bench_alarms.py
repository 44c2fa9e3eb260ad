"""False alarms and detection delay of the nightly alarms and change points, by simulation.

`python tests/bench/bench_alarms.py [SERIES]` prints, for committed seeds and independent normal nights:
false alarms and false change points per 1,000 node-metric-years, and after how many nights a step is alarmed.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from shakedown.statistics.alarms import LEARNING_NIGHTS, find_alarms
from shakedown.statistics.changepoints import change_points

SEED = 20260301
YEAR = 365
CV = 0.003
LEVEL = 390.0
MAX_ALARMS = 1.0  # per 1,000 node-metric-years
MAX_NIGHTS = 2


def nights(rng: np.random.Generator, series: int, count: int) -> np.ndarray:
    """Healthy values: each series with a level of its own, 0.3 % from night to night."""
    level = LEVEL * (1 + 0.02 * rng.standard_normal((series, 1)))
    return level * (1 + CV * rng.standard_normal((series, count)))


def false_alarms(series: int) -> float:
    """Return false alarms per 1,000 series-years, counted after the learning nights."""
    values = nights(np.random.default_rng(SEED), series, LEARNING_NIGHTS + YEAR)
    return 1000 * len(find_alarms(values, higher=True)) / series


def delays(series: int, step: float, baseline: int) -> list[int]:
    """Return after how many nights the step was alarmed, 1 being its first night; 99 if never in ten."""
    values = nights(np.random.default_rng([SEED, baseline, int(1e4 * step)]), series, baseline + 10)
    values[:, baseline:] *= 1 - step
    first = dict.fromkeys(range(series), 99)
    for alarm in find_alarms(values, higher=True):
        if alarm.night >= baseline:
            first[alarm.series] = min(first[alarm.series], alarm.night - baseline + 1)
    return list(first.values())


def false_changes(series: int) -> float:
    """Return false change points per 1,000 series-years."""
    values = nights(np.random.default_rng([SEED, 1]), series, YEAR)
    return 1000 * sum(bool(change_points(row)) for row in values) / series


def main() -> None:
    """Print the figures; exit status 1 if one that is asked for does not hold."""
    series = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    started = time.process_time()
    rate = false_alarms(series)
    print(f"false alarms per 1,000 node-metric-years: {rate:.2f} ({series:,} years; at most {MAX_ALARMS})")
    good = rate <= MAX_ALARMS
    for baseline in (LEARNING_NIGHTS, 90, 365):
        for step in (0.005, 0.01, 0.02):
            found = np.array(delays(5000, step, baseline))
            within = float(np.mean(found <= MAX_NIGHTS))
            print(
                f"step {step:.1%} after {baseline:3} nights: median {np.median(found):.0f} nights, "
                f"99 % within {np.quantile(found, 0.99):.0f}, {within:.2%} within {MAX_NIGHTS}"
            )
            good &= step < 0.02 or within >= 0.99
    changes = false_changes(series // 5)
    print(f"false change points per 1,000 node-metric-years: {changes:.2f} ({series // 5:,} years)")
    print(f"CPU {time.process_time() - started:.0f} s")
    sys.exit(0 if good and changes <= MAX_ALARMS else 1)


if __name__ == "__main__":
    main()
