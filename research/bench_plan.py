"""Seconds, memory and size of a plan: `python research/bench_plan.py [NODES ...]`.

The real command, in a process of its own, on a made-up site of NODES x 8 rails with three mesh tests,
traffic class, settings and counters. Times include Ansible, which reads the inventory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from large_site import MESH, write_site

SIZES = (64, 1024, 4096)


def plan(folder: Path, site: Path) -> tuple[float, float, float, float]:
    """Run the command; return CPU seconds, wall seconds, peak MiB of one process, and the plan's MB."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "shakedown", "plan", str(site), "--output", str(folder / "run")]
    with (folder / "printed.txt").open("wb") as printed:
        child = subprocess.Popen(command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit((folder / "printed.txt").read_text())
    wall = time.perf_counter() - started
    size = (folder / "run" / "plan.json").stat().st_size
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, size / 1e6


def main() -> None:
    """Print a table."""
    print(f"{'nodes':>6} {'CPU s':>7} {'wall s':>7} {'MiB':>6} {'plan MB':>8}")
    for nodes in [int(a) for a in sys.argv[1:]] or SIZES:
        with tempfile.TemporaryDirectory() as name:
            site = write_site(
                Path(name), nodes, {"config": {}, "profiles": ["roce_switches"], "perftest": MESH}
            )
            cpu, wall, peak, size = plan(Path(name), site)
        print(f"{nodes:6} {cpu:7.2f} {wall:7.2f} {peak:6.0f} {size:8.1f}", flush=True)


if __name__ == "__main__":
    main()
