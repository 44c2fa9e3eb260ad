"""Seconds and bytes of the report against the number of nodes: `python tests/bench/bench_report.py [NODES ...]`.

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

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

from synthetic_run import Faults, make_plan, write

SIZES = (64, 256, 1024)


def main() -> None:
    """Print a table."""
    print(
        f"{'nodes':>6} {'cells':>8} {'seconds':>8} {'us/cell':>8} {'html MB':>8} {'junit MB':>9} {'prom MB':>8}"
    )
    for nodes in [int(a) for a in sys.argv[1:]] or SIZES:
        plan = make_plan(nodes, metrics=13)
        cells = sum(len(item) for item in plan.items)
        with tempfile.TemporaryDirectory() as folder:
            run = write(Path(folder) / "run", plan, Faults(slow_rail=(plan.nodes[nodes // 3], "rail3")))
            start = time.perf_counter()
            command = [sys.executable, "-m", "shakedown", "report", str(run)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - start
            if done.returncode != 1:
                sys.exit(f"expected FAIL: {done.stdout}{done.stderr}")
            sizes = [(run / f).stat().st_size / 1e6 for f in ("report.html", "junit.xml", "metrics.prom")]
        print(
            f"{nodes:6} {cells:8} {seconds:8.2f} {1e6 * seconds / cells:8.1f} "
            f"{sizes[0]:8.2f} {sizes[1]:9.2f} {sizes[2]:8.2f}",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
