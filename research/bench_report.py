"""Seconds and bytes of the report by number of nodes: `python research/bench_report.py [NODES ...]`.

The run is made up: 8 rails, single-node, pair, collective and counter metrics, one NIC at half rate. Each
size is written to a folder and reported by the real command, so that reading, judging and writing count.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/unit/report"))

from synthetic_run import Faults, make_plan, write

SIZES = (64, 256, 1024)
METRICS = 15  # 20 metrics in all: about 164,000 cells at 1,024 nodes


def main() -> None:
    """Print a table. CPU seconds count as well: wall time grows with whatever else the machine does."""
    names = ("nodes", "cells", "wall s", "CPU s", "us/cell", "html MB", "junit MB", "prom MB")
    print(" ".join(f"{name:>8}" for name in names))
    for nodes in [int(a) for a in sys.argv[1:]] or SIZES:
        plan = make_plan(nodes, metrics=METRICS)
        cells = sum(len(item) for item in plan.items)
        with tempfile.TemporaryDirectory() as folder:
            run = write(Path(folder) / "run", plan, Faults(slow_rail=(plan.nodes[nodes // 3], "rail3")))
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [sys.executable, "-m", "shakedown", "report", str(run)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode != 1:
                sys.exit(f"expected FAIL: {done.stdout}{done.stderr}")
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            sizes = [(run / f).stat().st_size / 1e6 for f in ("report.html", "junit.xml", "metrics.prom")]
        row = (f"{wall:.2f}", f"{cpu:.2f}", f"{1e6 * cpu / cells:.1f}", *(f"{size:.2f}" for size in sizes))
        print(" ".join(f"{value:>8}" for value in (nodes, cells, *row)), flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
