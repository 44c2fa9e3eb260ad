"""CPU-GPU path and inference in the report: every GPU's way, the peak by GPUs, and what limits it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.benchmarks.inference.peak import bottleneck, extrapolated
from shakedown.benchmarks.interconnect.pcie_path import gpu_paths
from shakedown.records.base import Outcome
from shakedown.records.errors import BadInput
from shakedown.records.results import Measurement
from shakedown.report import text
from shakedown.report.source import InterconnectRaw, Source
from shakedown.report.sweeps import Chart, Curve
from shakedown.run import folder as runs
from shakedown.topology.host_map import parse_topology

_LARGEST = 16 << 20
INFERENCE, COPY, PATH = "resnet50_server", "copy", "pcie_path"


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


def read(run: Path, measurements: Iterable[Measurement]) -> InterconnectRaw:
    """Return what the raw files of path and search hold; files that cannot be read are passed over."""
    wanted: dict[str, Measurement] = {}
    for m in measurements:
        if m.test in (PATH, INFERENCE) and m.raw:
            wanted.setdefault(m.raw, m)
    paths: list[tuple[str, int, str]] = []
    network: list[tuple[str, int, float]] = []
    spent: list[tuple[str, int, str]] = []
    for raw, m in wanted.items():
        try:
            with runs.open_plain(run / raw) as file:
                document = json.loads(file.read(_LARGEST))
            if m.test == PATH:
                topology = parse_topology(json.dumps(document["topology"]))
                paths += [(m.nodes[0], path.index, path.drawn()) for path in gpu_paths(topology)]
            else:
                network.append((m.nodes[0], int(m.params["gpus"]), _network_qps(document)))
                spent.append((m.nodes[0], int(m.params["gpus"]), _spent(document)))
        except (BadInput, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            continue
    return InterconnectRaw(tuple(paths), tuple(network), tuple(spent))


def _network_qps(document: Mapping[str, Any]) -> float:
    parts = [worker["profile"] for worker in document["workers"]]
    return sum(float(part["batch"]) / float(part["network_s"]) for part in parts)


def _spent(document: Mapping[str, Any]) -> str:
    """Where the time of the slowest full run at the peak went, per batch."""
    full = [
        run
        for run in document["runs"]
        if run["kind"] == "confirm" and run.get("target_qps") == document.get("peak_qps") and "spent" in run
    ]
    if not full:  # a run of before it was kept
        return "–"
    slowest = max(full, key=lambda run: float(run["p99_ms"]))["spent"]
    batch, host, device, busy = (
        float(slowest[key]) for key in ("batch", "host_ms", "device_ms", "device_busy")
    )
    return (
        f"{text.number(round(batch))} images: {host:.2f} ms host, {device:.2f} ms GPU, "
        f"busy {text.percent(busy, 1)}"
    )


def build(source: Source) -> InterconnectView | None:
    """Return the section; None for a run that has neither paths nor inference."""
    rates = {(m.nodes[0], int(m.params["gpus"])): m for m in source.measurements if _is(m, "rate")}
    paths = _paths(source)
    if not rates and not paths:
        return None
    network = {(node, gpus): qps for node, gpus, qps in source.interconnect.network_qps}
    spent = {(node, gpus): words for node, gpus, words in source.interconnect.spent}
    rows = []
    points: dict[str, list[tuple[int, float, float | None, float | None]]] = {}
    for (node, gpus), rate in sorted(rates.items()):
        data = _of(source, node, gpus, "data_rate")
        if rate.value is None or data is None or data.value is None:
            continue
        h2d, ceiling = _h2d(source, node, gpus), _ceiling(source, data)
        found = bottleneck(
            data.value, h2d=h2d, ceiling=ceiling, network_qps=network.get((node, gpus)), qps=rate.value
        )
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
                spent.get((node, gpus), "–"),
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
    return m.test == INFERENCE and m.metric == metric and "gpus" in m.params


def _of(source: Source, node: str, gpus: int, metric: str) -> Measurement | None:
    same = (m for m in source.measurements if _is(m, metric) and m.nodes[0] == node)
    return next((m for m in same if m.params["gpus"] == gpus), None)


def _h2d(source: Source, node: str, gpus: int) -> float | None:
    """Return the measured rate from host to as many GPUs at once; for one GPU the lowest of all."""
    found = [
        m.value
        for m in source.measurements
        if m.test == COPY
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
        if place and place.item.test == PATH and cell.outcome is Outcome.FAIL:
            key = (place.nodes[0], int(place.item.params["gpu"]))
            wrong.setdefault(key, []).append(str(place.item.params["what"]))
    return tuple(
        PathRow(node, gpu, drawn, tuple(wrong.get((node, gpu), ())))
        for node, gpu, drawn in source.interconnect.paths
    )


def _chart(points: Mapping[str, list[tuple[int, float, float | None, float | None]]]) -> Chart | None:
    """Draw the data rate over the number of GPUs, with H2D and ceiling; what nobody measured is a gap."""
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


def rates_of(folder: Path) -> dict[int, float]:
    """Return the data rate in GB/s by number of GPUs of a run on one node.

    Raises:
        BadInput: the run has no measured data rate, or several nodes have one.
    """
    found = [
        m
        for m in runs.Run(folder).measurements()
        if _is(m, "data_rate") and m.value is not None and m.problem is None and m.state == "COMPLETED"
    ]
    if not found:
        raise BadInput("no data rate of inference was measured", fix="see shakedown verdict", file=folder)
    if len({m.nodes for m in found}) > 1:
        raise BadInput("several nodes have inference", fix="compare runs of one node each", file=folder)
    return {int(m.params["gpus"]): float(m.value or 0) for m in found}
