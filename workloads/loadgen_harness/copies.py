"""Copy rates between host and GPU: each direction, both at once, each GPU alone and several at once.

    srun python -m loadgen_harness.copies FOLDER | --load GPUS

FOLDER/spec.json says what to measure. The method is nvbandwidth's (memcpy_ce tests): pinned memory, 512 MiB a
copy, 16 copies between two CUDA events, the median of several samples; so the two agree. Host memory is taken
while this process runs on the wanted NUMA node, where the driver then finds it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from loadgen_harness.workers import cpus_near, numa_of_gpu
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.noted import node_name

TEST = "copy"
_MIB = 1 << 20


class Lane:
    """One GPU with its buffers on one NUMA node, and a stream for each direction."""

    def __init__(self, gpu: int, node: int | None, size_bytes: int) -> None:
        self.gpu, self.node = gpu, node
        self.device = torch.device("cuda", gpu)
        before = os.sched_getaffinity(0)
        near = cpus_near(node) & before if node is not None and node >= 0 else set()
        try:
            if near:
                os.sched_setaffinity(0, near)
            self.host = {d: _pinned(size_bytes) for d in ("h2d", "d2h")}
        finally:
            os.sched_setaffinity(0, before)
        self.remote = {
            d: torch.empty(size_bytes, dtype=torch.uint8, device=self.device) for d in ("h2d", "d2h")
        }
        self.streams = {d: torch.cuda.Stream(self.device) for d in ("h2d", "d2h")}

    def copy(self, direction: str, times: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """Start copies in one direction; returns the events around them."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = self.streams[direction]
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            first.record(stream)
            for _ in range(times):
                if direction == "h2d":
                    self.remote["h2d"].copy_(self.host["h2d"], non_blocking=True)
                else:
                    self.host["d2h"].copy_(self.remote["d2h"], non_blocking=True)
            last.record(stream)
        return first, last


def _pinned(size_bytes: int) -> torch.Tensor:
    """Return pinned memory of this size; PyTorch's cache would hand out another node's, so it is emptied."""
    torch._C._host_emptyCache()
    return torch.ones(size_bytes, dtype=torch.uint8).pin_memory()


def measure(
    lanes: list[Lane], directions: tuple[str, ...], spec: dict[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """Return GB/s (10^9 byte/s) of every sample, by direction and GPU; all lanes and directions at once."""
    size, times = int(spec["size_mib"]) * _MIB, int(spec["iterations"])
    found: dict[str, dict[str, list[float]]] = {d: {str(lane.gpu): [] for lane in lanes} for d in directions}
    for sample in range(int(spec["samples"]) + 1):
        torch.cuda.synchronize()
        for lane in lanes:
            torch.cuda.synchronize(lane.device)
        # The other direction and the other GPUs must be at work from begin to end of what is timed: extra
        # copies before and after each timed block see to that.
        extra = 0 if len(lanes) == 1 and len(directions) == 1 else max(1, times // 4)
        events = {}
        for part in ("before", "timed", "after"):
            for lane in lanes:
                for direction in directions:
                    pair = lane.copy(direction, times if part == "timed" else extra)
                    if part == "timed":
                        events[direction, lane.gpu] = pair
        for lane in lanes:
            torch.cuda.synchronize(lane.device)
        if sample == 0:
            continue  # warm-up
        for (direction, gpu), (first, last) in events.items():
            found[direction][str(gpu)].append(size * times / (first.elapsed_time(last) * 1e6))
    return found


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure all that the spec asks for; one row for each set of GPUs, kind of traffic and pin."""
    size = int(spec["size_mib"]) * _MIB
    numa = {gpu: numa_of_gpu(gpu) for gpu in range(max(spec["at_once"]))}
    nodes = sorted(int(p.name[4:]) for p in Path("/sys/devices/system/node").glob("node[0-9]*"))
    done: list[dict[str, Any]] = []
    for pin in spec["pins"]:
        if pin == "far" and len(nodes) < 2:
            continue  # one NUMA node: there is no wrong one
        lanes = []
        for gpu, node in numa.items():
            other = next((n for n in nodes if n != node), None)
            lanes.append(Lane(gpu, node if pin == "near" else other, size))
        sets = [[lane] for lane in lanes]
        if pin == "near":
            sets += [lanes[:count] for count in spec["at_once"] if count > 1]
        for chosen in sets:
            for directions in (("h2d",), ("d2h",), ("h2d", "d2h")):
                samples = measure(chosen, directions, spec)
                done.append(
                    {
                        "pin": pin,
                        "gpus": [lane.gpu for lane in chosen],
                        "numa": [lane.node for lane in chosen],
                        "gpu_numa": [numa[lane.gpu] for lane in chosen],
                        "traffic": "+".join(directions),
                        "gb_per_s": samples,
                    }
                )
                medians = {d: [statistics.median(v) for v in by.values()] for d, by in samples.items()}
                shown = ", ".join(f"{d} {sum(v):.2f}" for d, v in medians.items())
                print(f"{pin} pin, GPUs {done[-1]['gpus']}: {shown} GB/s", flush=True)
        del lanes, sets
    return done


def load(gpus: int) -> None:
    """Copy to all GPUs until killed, so that their links are awake."""
    lanes = [Lane(gpu, None, 64 * _MIB) for gpu in range(gpus)]
    events = [lane.copy("h2d", 4) for lane in lanes]
    print("copying", flush=True)
    while True:
        for _, last in events:
            last.synchronize()
        events = [lane.copy("h2d", 16) for lane in lanes]


def main() -> int:
    """Measure, and write one document and a journal line for every direction; or copy until killed."""
    if sys.argv[1:2] == ["--load"] and len(sys.argv) == 3:
        load(int(sys.argv[2]))
    if len(sys.argv) != 2:
        print("usage: python -m loadgen_harness.copies FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    spec = json.loads((folder / "spec.json").read_bytes())
    node, clock = node_name(), Clock()
    document: dict[str, Any] = {"schema": 1, "node": node, "rows": []}
    problem: dict[str, str] | None = None
    try:
        document["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        document["numa_nodes"] = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
        document["rows"] = rows(spec)
    except (RuntimeError, AssertionError) as error:  # CUDA's errors; a lost GPU is one of them
        problem = {"kind": "other", "message": f"CUDA: {error}"[:1900]}
    (folder / "copies.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    journal = Journal(folder)
    for direction in ("h2d", "d2h", "h2d_duplex", "d2h_duplex"):
        journal.add(
            "copies", TEST, "copies.json", [node], clock, 1 if problem else 0, problem, direction=direction
        )
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
