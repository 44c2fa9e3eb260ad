"""Seconds and memory of `shakedown compare`: `python research/bench_compare.py [NODES ...]`.

Two made-up runs of NODES x 20 metrics, a third of the nodes upgraded, one of them slow afterwards. The real
command in a process of its own, three times; the least counts, because other work only ever adds.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

SIZES = (128, 1024)
METRICS, REPEATS = 20, 3


def write_run(folder: Path, run: str, count: int, *, upgraded: bool) -> None:
    """Write plan, results and inventory."""
    nodes = [f"node{i:05d}" for i in range(count)]
    shared = {"stage": "fabric", "test": "ib_write_bw", "unit": "Gb/s", "better": "higher"}
    items = [
        {**shared, "metric": f"m{i}", "nodes": [[n] for n in nodes], "reference": "rate"}
        for i in range(METRICS)
    ]
    rate = {"id": "rate", "value": 390.0, "tolerance": 0.5, "unit": "Gb/s", "better": "higher"}
    plan = {"schema": 1, "run": run, "system": "bench", "created": f"2026-01-0{1 + upgraded}T00:00:00Z"}
    plan |= {
        "nodes": nodes,
        "items": items,
        "references": {"rate": rate | {"kind": "physical", "source": "x"}},
    }
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan))
    generator = random.Random(run)
    with (folder / "results.jsonl").open("w") as results:
        for number, node in enumerate(nodes):
            for metric in range(METRICS):
                value = generator.gauss(390, 1.2) * (0.6 if upgraded and number == 3 else 1)
                line = {"schema": 1, "run": run, **shared, "metric": f"m{metric}", "value": round(value, 2)}
                results.write(json.dumps(line | {"nodes": [node], "state": "COMPLETED"}) + "\n")
    parts = [
        {
            "host": node,
            "kind": "nic",
            "name": f"fab{i}",
            "attributes": {"firmware": "22.2" if upgraded and number < count // 3 else "22.1"},
        }
        for number, node in enumerate(nodes)
        for i in range(8)
    ]
    inventory = {"schema": 1, "run": run, "taken": "2026-01-01T00:00:00Z", "components": parts}
    (folder / "inventory.json").write_text(json.dumps(inventory))


def compare(a: Path, b: Path) -> tuple[float, float, float]:
    """Run the command and return (CPU seconds, wall seconds, peak MiB)."""
    sink = os.open(os.devnull, os.O_WRONLY)
    started = time.perf_counter()
    command = [sys.executable, "-m", "shakedown", "compare", str(a), str(b), "--changed", "nic.firmware"]
    child = os.posix_spawn(sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, sink, 1)])
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - started
    os.close(sink)
    if os.waitstatus_to_exitcode(status) != 1:
        sys.exit("expected worse")
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def main() -> None:
    """Print a table."""
    print(f"{'nodes':>6} {'metrics':>8} {'CPU s':>7} {'wall s':>7} {'MiB':>6}")
    for nodes in [int(a) for a in sys.argv[1:]] or SIZES:
        with tempfile.TemporaryDirectory() as name:
            a, b = Path(name) / "a", Path(name) / "b"
            write_run(a, "a", nodes, upgraded=False)
            write_run(b, "b", nodes, upgraded=True)
            runs = [compare(a, b) for _ in range(REPEATS)]
        cpu, wall, peak = (min(r[i] for r in runs) for i in range(3))
        print(f"{nodes:6} {METRICS:8} {cpu:7.2f} {wall:7.2f} {peak:6.0f}", flush=True)


if __name__ == "__main__":
    main()
