"""What the report draws of inference beyond its measurements, from the documents of the searches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.records.errors import BadInput
from shakedown.records.reading import open_plain
from shakedown.records.results import Measurement
from shakedown.records.untrusted import loads

INFERENCE_TEST = "resnet50_server"
_LARGEST_BYTES = 16 << 20


@dataclass(frozen=True)
class BatchTime:
    """Where the time of a full run went, per batch; `device_busy` is the share of the time, 0 to 1."""

    images: int
    host_ms: float
    device_ms: float
    device_busy: float


@dataclass(frozen=True)
class SearchDetail:
    """What one search says beyond its peak: images/s without copies, and the slowest full run's batches."""

    node: str
    gpus: int
    network_qps: float
    batch: BatchTime | None


def read_searches(run: Path, measurements: Iterable[Measurement]) -> tuple[SearchDetail, ...]:
    """Return what the searches of the run hold; files that cannot be read are passed over."""
    wanted: dict[str, Measurement] = {}
    for m in measurements:
        if m.test == INFERENCE_TEST and m.raw:
            wanted.setdefault(m.raw, m)
    found: list[SearchDetail] = []
    for raw, m in wanted.items():
        try:
            with open_plain(run / raw) as file:
                document = loads(file.read(_LARGEST_BYTES))
            network_qps = _network_qps(document)
            found.append(SearchDetail(m.nodes[0], int(m.params["gpus"]), network_qps, _batch(document)))
        except (BadInput, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            continue
    return tuple(found)


def _network_qps(document: Mapping[str, Any]) -> float:
    parts = [worker["profile"] for worker in document["workers"]]
    return sum(float(part["batch"]) / float(part["network_s"]) for part in parts)


def _batch(document: Mapping[str, Any]) -> BatchTime | None:
    """Return where the time of the slowest full run at the peak went; None where that cannot be read."""
    try:
        full = [run for run in document["runs"] if run["kind"] == "confirm" and "spent" in run]
        full = [run for run in full if run.get("target_qps") == document.get("peak_qps")]
        if not full:  # a run from before this was recorded
            return None
        slowest = max(full, key=lambda run: float(run["p99_ms"]))["spent"]
        batch, host, device, busy = (
            float(slowest[key]) for key in ("batch", "host_ms", "device_ms", "device_busy")
        )
        return BatchTime(round(batch), host, device, busy)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        return None
