"""What the report draws of the paths between CPU and GPUs beyond their measurements, from the raw files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.interconnect.pcie_path import gpu_paths
from shakedown.records.errors import BadInput
from shakedown.records.reading import open_plain
from shakedown.records.results import Measurement
from shakedown.records.untrusted import loads
from shakedown.topology.host_map import parse_topology

PATH_TEST = "pcie_path"
_LARGEST_BYTES = 16 << 20


@dataclass(frozen=True)
class GpuWay:
    """One GPU's way from the root port, drawn in one line."""

    node: str
    gpu: int
    drawn: str


def read_ways(run: Path, measurements: Iterable[Measurement]) -> tuple[GpuWay, ...]:
    """Return the way of every GPU of the run; files that cannot be read are passed over."""
    files: dict[str, str] = {}
    for m in measurements:
        if m.test == PATH_TEST and m.raw:
            files.setdefault(m.raw, m.nodes[0])
    ways: list[GpuWay] = []
    for raw, node in files.items():
        try:
            with open_plain(run / raw) as file:
                document = loads(file.read(_LARGEST_BYTES))
            topology = parse_topology(json.dumps(document["topology"]))
            ways += [GpuWay(node, path.index, path.drawn()) for path in gpu_paths(topology)]
        except (BadInput, ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
            continue
    return tuple(ways)
