"""What the charts would find if they knew more: `python research/bench_alarm_truths.py`.

Nodes of t4 noise, as in `bench_alarms.py`. Each line gives the charts one thing that they otherwise learn:
what all nodes did, level, spread, autocorrelation, tails, how often nights are odd. Columns: false steps per
1,000 node-metric-years, and how many losses of 2 % are alarmed within two nights after so many.
"""

from __future__ import annotations

import math
import sys
from unittest.mock import patch

import numpy as np

from night_models import CV, MODELS, NODES
from shakedown.daytwo.history.alarms_and_steps import LEARNING_NIGHTS, Alarm, find_alarms
from shakedown.daytwo.history.baselines import split_common
from shakedown.daytwo.history.night_charts import ChartFloats, Charts
from shakedown.daytwo.history.night_noise import NightNoise, Tails, TailSide

SEED = 20260303
YEAR = 365
BASELINES = (LEARNING_NIGHTS + 1, 90, 365)
ALL = ("fleet", "level", "spread", "autocorrelation", "tails", "odd nights")
LINES: dict[str, tuple[str, ...]] = {"nothing": ()} | {name: (name,) for name in ALL} | {"all of it": ALL}


def found(values: ChartFloats, level: ChartFloats, truths: tuple[str, ...]) -> list[Alarm]:
    """Return the alarms of charts that know these truths."""
    own = values if "fleet" in truths else split_common(values)[0]
    learn, levels = Charts._for_all, Charts._level

    def noise(charts: Charts, learnt: NightNoise, begun: np.ndarray) -> NightNoise:
        known = learn(charts, learnt, begun)
        if "spread" in truths:
            known.spread = CV * level[:, 0]
        if "autocorrelation" in truths:
            known.ar = np.zeros_like(known.ar)
        if "tails" in truths:
            scale = CV / math.sqrt(2) / float((known.spread / level[:, 0]).mean())
            known.tail, known.scale = np.full_like(known.tail, 4.0), scale
            known.new = Tails(TailSide(4.0, scale, 0.5), TailSide(4.0, scale, 0.5))
        if "odd nights" in truths:
            known.odd = np.full_like(known.odd, 1e-4)
        return known

    def late(charts: Charts) -> tuple[ChartFloats, ChartFloats]:
        if "level" not in truths:
            return levels(charts)
        return -level[:, 0], np.full(len(level), 1e9)

    with patch.object(Charts, "_for_all", noise), patch.object(Charts, "_level", late):
        return find_alarms(own, higher=True)


def line(truths: tuple[str, ...], years: int) -> tuple[float, list[float]]:
    """Return false steps per 1,000 years and detection after so many nights."""
    false = 0
    grids = max(1, round(years / NODES))
    for grid in range(grids):
        rng = np.random.default_rng([SEED, grid])
        level = 390 * (1 + 0.02 * rng.standard_normal((NODES, 1)))
        values = level * (1 + MODELS["t4"](rng, LEARNING_NIGHTS + YEAR))
        false += sum(a.chart == "step" for a in found(values, level, truths))
    detection = []
    for baseline in BASELINES:
        hit = planted = 0
        for grid in range(max(1, 6144 // NODES)):
            rng = np.random.default_rng([SEED, baseline, grid])
            level = 390 * (1 + 0.02 * rng.standard_normal((NODES, 1)))
            values = level * (1 + MODELS["t4"](rng, baseline + 2))
            sick = rng.random(NODES) < 0.1
            values[sick, baseline:] *= 0.98
            alarms = found(values, level, truths)
            hit += len({a.series for a in alarms if sick[a.series] and a.night >= baseline})
            planted += int(sick.sum())
        detection.append(hit / planted)
    return 1000 * false / (grids * NODES), detection


def main() -> None:
    """Print the table."""
    years = int(sys.argv[1]) if len(sys.argv) > 1 else 6144
    print("| told the truth of | false | " + " | ".join(f"-2 % after {b}" for b in BASELINES) + " |")
    print("|---" * 5 + "|", flush=True)
    for name, truths in LINES.items():
        false, detection = line(truths, years)
        print(f"| {name} | {false:.2f} | " + " | ".join(f"{d:.1%}" for d in detection) + " |", flush=True)


if __name__ == "__main__":
    main()
