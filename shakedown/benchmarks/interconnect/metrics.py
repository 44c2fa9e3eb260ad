"""The way to every GPU, and copies over it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.interconnect.order import CopiesOrder, PathOrder
from shakedown.benchmarks.interconnect.pcie_path import gpu_paths, judge_paths
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
from shakedown.topology.host_map import parse_topology


def pcie_path(output: Output[PathOrder]) -> Iterator[Value]:
    """Yield 0 or 1 for every GPU and question: whether what was found differs from the plan."""
    document = _document(output.text, output.file)
    order = output.order
    topology = parse_topology(json.dumps(document.get("topology")), file=str(output.file))
    judged = judge_paths(
        gpu_paths(topology), order.path, gpus=order.gpus, loaded=document.get("loaded") is True
    )
    for gpu, what, wrong, detail in judged:
        params: Params = {"gpu": gpu, "what": what}
        yield "wrong", float(wrong), "1", Better.LOWER, params, detail


def copies(output: Output[CopiesOrder]) -> Iterator[Value]:
    """Yield one direction's rates: of each GPU alone, of several at once, and what a wrong pin leaves."""
    rows = _rows(output.text, output.file)
    alone = {
        (row["pin"], row["gpus"][0], direction): median
        for row in rows
        if len(row["gpus"]) == 1
        for direction, median in _medians(row).items()
    }
    direction = output.record.direction or ""
    for row in rows:
        value = _medians(row).get(direction)
        if row["pin"] == "near" and value is not None:
            count = len(row["gpus"])
            params: Params = {"gpus": count, "gpu": row["gpus"][0]} if count == 1 else {"gpus": count}
            yield "bandwidth", value, "GB/s", Better.HIGHER, params
    for (pin, gpu, way), value in alone.items():
        near = alone.get(("near", gpu, way))
        if pin == "far" and way == direction and near:
            cost = f"the wrong NUMA pin costs {1 - value / near:.1%}: {value:.2f} of {near:.2f} GB/s"
            yield "far_pin", value / near, "x", Better.HIGHER, {"gpu": gpu}, cost


def _medians(row: dict[str, Any]) -> dict[str, float]:
    """Return the sum over the row's GPUs of each one's median rate, in GB/s, by direction."""
    duplex = "_duplex" if "+" in row["traffic"] else ""
    return {
        f"{direction}{duplex}": sum(statistics.median(samples) for samples in by_gpu.values())
        for direction, by_gpu in row["gb_per_s"].items()
    }


def _rows(text: str, file: Path) -> list[dict[str, Any]]:
    """Return the document's rows, each with a positive number for every sample of every GPU."""
    rows = _document(text, file).get("rows")
    try:
        assert isinstance(rows, list) and rows
        for row in rows:
            assert row["pin"] in {"near", "far"} and row["traffic"] in {"h2d", "d2h", "h2d+d2h"}
            gpus = [str(int(gpu)) for gpu in row["gpus"]]
            assert gpus and set(row["gb_per_s"]) == set(row["traffic"].split("+"))
            for by_gpu in row["gb_per_s"].values():
                assert sorted(by_gpu) == sorted(gpus)
                assert all(samples and all(float(s) > 0 for s in samples) for samples in by_gpu.values())
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput("not the document of the copies", fix="run the job again", file=file) from error
    return rows


def _document(text: str, file: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, ValidationError) as error:
        raise BadInput(f"no JSON: {error}", file=file) from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise BadInput("not a document of schema 1", file=file)
    return document
