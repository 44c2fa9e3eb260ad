"""Seconds and memory of `shakedown verdict`: `python research/bench_verdict.py [NODES ...]`.

A made-up run of NODES x 8 rails x 20 metrics (a quarter of them counters), three samples a value, one raw
file per node and rail, one NIC at half rate. Each size is judged by the real command in a process of its
own, three times; the least time counts, because other work on the machine only ever adds. The ratios say
whether the cost is linear: CPU time per cell against that of the smallest size, which includes the start.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

SIZES = (64, 256, 1024, 4096)
RAILS, METRICS, COUNTERS, REPEATS = 8, 15, 5, 3
RATE = {"unit": "Gb/s", "better": "higher"}
COUNT = {"unit": "packets", "better": "lower"}
REFERENCES = {
    "rate": {
        "id": "rate",
        "value": 392.1,
        "tolerance": 0.05,
        "ceiling": 392.2,
        **RATE,
        "fleet_min_effect": 0.02,
    },
    "none": {"id": "none", "value": 0.0, "limit": 0.0, **COUNT},
}
PARAMS = {"size_bytes": 65536}


def write_run(folder: Path, count: int) -> int:
    """Write a run and return its number of cells."""
    nodes = [f"node{i:05d}" for i in range(count)]
    rails = [f"rail{i}" for i in range(RAILS)]
    shared = {"stage": "fabric", "test": "ib_write_bw", "nodes": [[n] for n in nodes]}
    items = [
        {**shared, **RATE, "metric": f"m{i}", "rails": rails, "params": PARAMS, "reference": "rate"}
        for i in range(METRICS)
    ]
    items += [
        {**shared, **COUNT, "metric": f"counter.c{i}", "rails": [rail], "params": {"port": f"mlx5_{number}"}}
        | {"reference": "none"}
        for i in range(COUNTERS)
        for number, rail in enumerate(rails)
    ]
    references = {k: {**v, "kind": "physical", "source": "bench"} for k, v in REFERENCES.items()}
    plan = {"schema": 1, "run": "bench", "system": "bench", "created": "2026-01-01T00:00:00Z"}
    plan |= {"nodes": nodes, "rails": rails, "items": items, "references": references}
    (folder / "raw").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    with (folder / "results.jsonl").open("w") as results, (folder / "counters.jsonl").open("w") as counters:
        for number, node in enumerate(nodes):
            for rail in rails:
                (folder / "raw" / f"{node}_{rail}.txt").touch()
            _write_node(results, counters, node, slow=number == count // 3)
    return count * RAILS * (METRICS + COUNTERS)


def _write_node(results: TextIO, counters: TextIO, node: str, *, slow: bool) -> None:
    generator = random.Random(node)
    head = {"schema": 1, "run": "bench", "stage": "fabric", "test": "ib_write_bw"}
    for rail in range(RAILS):
        tail = {"job": "4711", "raw": f"raw/{node}_rail{rail}.txt"}
        for metric in range(METRICS):
            value = 196.0 if slow and rail == 3 else round(generator.gauss(390, 0.4), 2)
            line = {**head, "metric": f"m{metric}", "value": value, **RATE, "nodes": [node]}
            line |= {"rail": f"rail{rail}", "params": PARAMS, "samples": [value - 0.1, value, value + 0.1]}
            line |= {**tail, "state": "COMPLETED", "started": "2026-01-01T00:00:00Z", "duration_s": 10.0}
            results.write(json.dumps(line) + "\n")
        for counter in range(COUNTERS):
            line = {**head, "kind": "nic", "device": node, "port": f"mlx5_{rail}", "rail": f"rail{rail}"}
            line |= {"counter": f"c{counter}", "before": 17, "after": 17, **tail}
            counters.write(json.dumps(line) + "\n")


def judge(folder: Path) -> tuple[float, float, float]:
    """Run the command and return (CPU seconds, wall seconds, peak MiB)."""
    sink = os.open(os.devnull, os.O_WRONLY)
    started = time.perf_counter()
    command = [sys.executable, "-m", "shakedown", "verdict", str(folder), "--write"]
    child = os.posix_spawn(sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, sink, 1)])
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - started
    os.close(sink)
    if os.waitstatus_to_exitcode(status) != 1:
        sys.exit("expected FAIL")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def main() -> None:
    """Print a table."""
    print(f"{'nodes':>6} {'cells':>8} {'CPU s':>7} {'wall s':>7} {'MiB':>6} {'us/cell':>8} {'ratio':>6}")
    first = None
    for nodes in [int(a) for a in sys.argv[1:]] or SIZES:
        with tempfile.TemporaryDirectory() as name:
            cells = write_run(Path(name) / "run", nodes)
            runs = [judge(Path(name) / "run") for _ in range(REPEATS)]
        cpu, wall, peak = (min(r[i] for r in runs) for i in range(3))
        per_cell = 1e6 * cpu / cells
        first = first or per_cell
        print(
            f"{nodes:6} {cells:8} {cpu:7.2f} {wall:7.2f} {peak:6.0f} {per_cell:8.1f} {per_cell / first:6.2f}",
            flush=True,
        )
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"(writing the runs took {own:.0f} MiB)")


if __name__ == "__main__":
    main()
