"""CPU-GPU path, inference and training in the report, beyond the standard tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from shakedown.benchmarks.inference.metrics import INFERENCE_TEST, BatchTime
from shakedown.benchmarks.inference.peak import bottleneck, extrapolated
from shakedown.benchmarks.interconnect.output import PATH_TEST
from shakedown.benchmarks.lora.metrics import Training
from shakedown.records.base import Outcome
from shakedown.records.results import Measurement
from shakedown.report import text
from shakedown.report.heatmaps import FAILED, STEPS, HeatMap, shrink
from shakedown.report.source import ReportSource
from shakedown.report.sweeps import MOST_POINTS, Chart, Curve

COPY_TEST = "copy"


@dataclass(frozen=True)
class PathRow:
    """One GPU's way; `wrong` are the questions whose answer differs from the plan."""

    node: str
    gpu: int
    drawn: str
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class InterconnectView:
    """The section, or nothing to show."""

    paths: tuple[PathRow, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chart: Chart | None


def _batch_words(batch: BatchTime | None) -> str:
    if batch is None:
        return "–"
    return (
        f"{text.number(batch.images)} images: {batch.host_ms:.2f} ms host, {batch.device_ms:.2f} ms GPU, "
        f"busy {text.percent(batch.device_busy, 1)}"
    )


def build_interconnect(source: ReportSource) -> InterconnectView | None:
    """Return the section; None for a run that has neither paths nor inference."""
    rates = {(m.nodes[0], int(m.params["gpus"])): m for m in source.measurements if _is(m, "rate")}
    paths = _paths(source)
    if not rates and not paths:
        return None
    searches = {(found.node, found.gpus): found for found in source.searches}
    rows = []
    points: dict[str, list[tuple[int, float, float | None, float | None]]] = {}
    for (node, gpus), rate in sorted(rates.items()):
        data = _of(source, node, gpus, "data_rate")
        if rate.value is None or data is None or data.value is None:
            continue
        h2d, ceiling = _h2d(source, node, gpus), _ceiling(source, data)
        search = searches.get((node, gpus))
        network_qps = search.network_qps if search else None
        found = bottleneck(data.value, h2d=h2d, ceiling=ceiling, network_qps=network_qps, qps=rate.value)
        alone = rates.get((node, 1))
        base = alone.value if alone else None
        scaling = f"{rate.value / (gpus * base):.3f}" if base else "–"
        rows.append(
            (
                node,
                str(gpus),
                text.number(rate.value),
                text.number(data.value),
                scaling,
                text.percent(data.value, h2d),
                text.percent(data.value, ceiling),
                found.words,
                (rate.detail or "").partition(";")[0],
                _batch_words(search.batch if search else None),
            )
        )
        points.setdefault(node, []).append((gpus, data.value, h2d, ceiling))
    header = (
        "node",
        "GPUs",
        "queries/s",
        "GB/s",
        "per GPU, of one GPU",
        "of measured H2D",
        "of ceiling",
        "what limits it",
        "latency",
        "a batch",
    )
    return InterconnectView(paths, header, tuple(rows), _chart(points))


def _is(m: Measurement, metric: str) -> bool:
    return m.test == INFERENCE_TEST and m.metric == metric and "gpus" in m.params


def _of(source: ReportSource, node: str, gpus: int, metric: str) -> Measurement | None:
    same = (m for m in source.measurements if _is(m, metric) and m.nodes[0] == node)
    return next((m for m in same if m.params["gpus"] == gpus), None)


def _h2d(source: ReportSource, node: str, gpus: int) -> float | None:
    """Return the measured rate from host to as many GPUs at once; for one GPU the lowest of all."""
    found = [
        m.value
        for m in source.measurements
        if m.test == COPY_TEST
        and m.direction == "h2d"
        and m.nodes[0] == node
        and m.params.get("gpus") == gpus
        and m.value is not None
    ]
    return min(found, default=None)


def _ceiling(source: ReportSource, data: Measurement) -> float | None:
    place = source.place(data.cell)
    return source.reference(place.item).ceiling if place else None


def _paths(source: ReportSource) -> tuple[PathRow, ...]:
    wrong: dict[tuple[str, int], list[str]] = {}
    for cell in source.verdict.cells:
        place = source.place(cell.cell)
        if place and place.item.test == PATH_TEST and cell.outcome is Outcome.FAIL:
            key = (place.nodes[0], int(place.item.params["gpu"]))
            wrong.setdefault(key, []).append(str(place.item.params["what"]))
    return tuple(
        PathRow(way.node, way.gpu, way.drawn, tuple(wrong.get((way.node, way.gpu), ())))
        for way in source.gpu_ways
    )


def _chart(points: Mapping[str, list[tuple[int, float, float | None, float | None]]]) -> Chart | None:
    """Draw the data rate over the number of GPUs, with H2D and ceiling; what was not measured is a gap."""
    if not points or max(len(found) for found in points.values()) < 2:
        return None
    curves: list[Curve] = []
    rows: list[tuple[str, ...]] = []
    for node, found in points.items():
        x = tuple(float(gpus) for gpus, *_ in found)
        curves.append(Curve(f"{node}: inference", "measured", x, tuple(rate for _, rate, *_ in found)))
        curves.append(Curve("H2D measured", "measured", x, tuple(h or math.nan for _, _, h, _ in found)))
        rates = {gpus: rate for gpus, rate, *_ in found}
        beyond = range(1, max(rates) + 1)
        for gpus in beyond:
            guess = rates.get(gpus, extrapolated(rates, gpus))
            mark = "" if gpus in rates else " (extrapolated)"
            rows.append((f"{node}, {gpus}", f"{text.number(guess)}{mark}"))
    first = next(iter(points.values()))
    ceiling = tuple(c or math.nan for *_, c in first)
    curves.append(Curve("ceiling of the links", "ceiling", tuple(float(g) for g, *_ in first), ceiling))
    return Chart(
        id="interconnect",
        title="Data rate over GPUs at once",
        x_label="GPUs",
        y_label="GB/s",
        curves=tuple(curves),
        sizes=False,
        caption="ResNet50 Server peak x bytes per image",
        header=("GPUs", "GB/s"),
        rows=tuple(rows),
    )


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


def build_training(source: ReportSource) -> TrainingView | None:
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
    texts: dict[tuple[int, int], str] = {}
    for (rank, step), ratio in training.lag.items():
        levels[rank, place[step]] = _level(ratio)
        texts[rank, place[step]] = f"{ratio:.2f}"
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
        texts=texts if len(steps) <= 20 else {},
        marks=(),
        marks_left_out=0,
        outcomes={Outcome.PASS: levels.size - behind, Outcome.FAIL: behind},
    )


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
