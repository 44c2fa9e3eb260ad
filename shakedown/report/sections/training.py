"""What the report shows of training besides the loss: throughput, lag of ranks, traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from shakedown.benchmarks.lora.report_data import Training
from shakedown.records.base import Better, Outcome
from shakedown.report import text
from shakedown.report.matrix import FAILED, STEPS, HeatMap, shrink
from shakedown.report.source import Source
from shakedown.report.sweeps import MOST_POINTS, Chart, Curve

# A rank this much slower than the others is at the gate (reference lora-rank-skew); twice as slow is darkest.
_GATE, _DARKEST = 1.1, 2.0


@dataclass(frozen=True)
class TrafficRow:
    """Expected against measured bytes per step, as shown."""

    job: str
    where: str
    expected: str
    measured: str
    share: str


@dataclass(frozen=True)
class TrainingView:
    """What the section on training draws."""

    rates: tuple[Chart, ...]
    maps: tuple[HeatMap, ...]
    traffic: tuple[TrafficRow, ...]


def build(source: Source) -> TrainingView | None:
    """Return the section, None for a run without training."""
    if not source.trainings:
        return None
    maps = [_map(number, training) for number, training in enumerate(source.trainings, 1)]
    return TrainingView(
        tuple(_rate(number, training) for number, training in enumerate(source.trainings, 1)),
        tuple(drawn for drawn in maps if drawn is not None),
        tuple(row for training in source.trainings for row in _traffic(training)),
    )


def _thinned(count: int) -> list[int]:
    last = count - 1
    return sorted({*range(0, count, max(1, -(-last // MOST_POINTS))), last})


def _rate(number: int, training: Training) -> Chart:
    steps, rates = training.loss.x, training.samples_per_s
    drawn = _thinned(len(steps))
    printed = drawn[:: max(1, len(drawn) // 20)]
    centre = median(rates)
    slowest = min(rates[1:] or rates)
    curve = Curve("samples/s", "measured", tuple(steps[i] for i in drawn), tuple(rates[i] for i in drawn))
    return Chart(
        id=f"rate-{number}",
        title=training.loss.label,
        x_label="step",
        y_label="samples/s",
        curves=(curve,),
        sizes=False,
        better=Better.HIGHER,
        caption=f"median {text.number(centre)}, slowest step after the first {text.number(slowest)}",
        header=("step", "samples/s"),
        rows=tuple((text.number(steps[i]), text.number(rates[i])) for i in printed),
    )


def _level(ratio: float) -> int:
    """Return a colour: up to the gate the levels of what passed, above it those of what failed."""
    if ratio <= _GATE:
        share = max(0.0, ratio - 1) / (_GATE - 1)
        return 1 + round(share * (STEPS - 1))
    return FAILED + min(STEPS - 1, round((ratio - _GATE) / (_DARKEST - _GATE) * (STEPS - 1)))


def _map(number: int, training: Training) -> HeatMap | None:
    """Return rank x step: each rank's own computing over the median of all ranks' at that step."""
    steps = sorted({step for _, step in training.lag})
    if len(training.ranks) < 2 or not steps:
        return None
    levels = np.zeros((len(training.ranks), len(steps)), dtype=np.uint8)
    place = {step: column for column, step in enumerate(steps)}
    for (rank, step), ratio in training.lag.items():
        levels[rank, place[step]] = _level(ratio)
    block, shown = shrink(levels)
    behind = int((levels > STEPS).sum())
    return HeatMap(
        id=f"lag-{number}",
        title=training.loss.label,
        unit="own computing over the median of all ranks",
        row_axis="rank",
        column_axis="step",
        rows=training.ranks,
        columns=tuple(str(step) for step in steps),
        levels=levels,
        block=block,
        shown=shown,
        texts=_texts(training, place) if len(steps) <= 20 else {},
        marks=(),
        marks_left_out=0,
        outcomes={Outcome.PASS: levels.size - behind, Outcome.FAIL: behind},
    )


def _texts(training: Training, place: dict[int, int]) -> dict[tuple[int, int], str]:
    return {(rank, place[step]): f"{ratio:.2f}" for (rank, step), ratio in training.lag.items()}


def _traffic(training: Training) -> Sequence[TrafficRow]:
    return [
        TrafficRow(
            training.loss.label,
            row.where,
            f"{row.expected_bytes / 1e9:,.3f}",
            "not readable" if row.measured_bytes is None else f"{row.measured_bytes / 1e9:,.3f}",
            "–" if row.measured_bytes is None else f"{100 * row.measured_bytes / row.expected_bytes:.0f} %",
        )
        for row in training.traffic
    ]
