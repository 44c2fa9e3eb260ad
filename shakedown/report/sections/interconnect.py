"""CPU-GPU path and inference in the report: every GPU's way, the peak by GPUs, and what limits it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shakedown.benchmarks.inference.peak import bottleneck, extrapolated
from shakedown.benchmarks.inference.report_data import INFERENCE_TEST, BatchTime
from shakedown.benchmarks.interconnect.report_data import PATH_TEST
from shakedown.records.base import Outcome
from shakedown.records.results import Measurement
from shakedown.report import text
from shakedown.report.source import Source
from shakedown.report.sweeps import Chart, Curve

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


def build(source: Source) -> InterconnectView | None:
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


def _of(source: Source, node: str, gpus: int, metric: str) -> Measurement | None:
    same = (m for m in source.measurements if _is(m, metric) and m.nodes[0] == node)
    return next((m for m in same if m.params["gpus"] == gpus), None)


def _h2d(source: Source, node: str, gpus: int) -> float | None:
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


def _ceiling(source: Source, data: Measurement) -> float | None:
    place = source.places.get(data.cell)
    return source.reference(place.item).ceiling if place else None


def _paths(source: Source) -> tuple[PathRow, ...]:
    wrong: dict[tuple[str, int], list[str]] = {}
    for cell in source.verdict.cells:
        place = source.places.get(cell.cell)
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
