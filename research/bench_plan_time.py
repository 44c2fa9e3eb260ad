"""Planned wall time of 64 nodes x 8 rails, before and after: `python research/bench_plan_time.py`.

Before: one Slurm job at a time, and every pair of nodes rail by rail. After: jobs on different nodes side by
side, every pair on all rails at once, and rail by rail between neighbours in a ring. Every pair, rail and
direction is measured either way; the site and its references are made up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from large_site import EACH_NODE, MESH, write_site

NODES = 64
RING = [{**test, "rails_at_once": ["all", "one"], "one_rail_pairs": "ring"} for test in MESH]
SITES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mesh, first results decide", {"perftest": MESH, "max_jobs": 1, "measure_again": False}),
    ("mesh, before", {"perftest": MESH, "max_jobs": 1}),
    ("all rails first, first decide", {"perftest": RING, "measure_again": False}),
    ("mesh, all rails first", {"perftest": RING}),
    ("mesh and single nodes, before", {"perftest": MESH, **EACH_NODE, "max_jobs": 1}),
    ("the same, side by side", {"perftest": MESH, **EACH_NODE}),
    ("the same, and all rails first", {"perftest": RING, **EACH_NODE}),
)


def expectation(acceptance: dict[str, Any]) -> list[dict[str, int]]:
    """Plan a site by the real command; return its stages' times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = write_site(folder, NODES, {"config": {}, "profiles": ["roce_switches"], **acceptance})
        command = [sys.executable, "-m", "shakedown", "plan", str(site), "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    stages: list[dict[str, int]] = json.loads(done.stdout)["expectation"]["stages"]
    return stages


def main() -> None:
    """Print a table."""
    print(f"{'site':<32} {'expected h':>10} {'limit h':>8} {'node-h expected':>16} {'node-h limit':>13}")
    for name, acceptance in SITES:
        stages = expectation(acceptance)
        hours = [
            sum(part[key] for part in stages) / 3600
            for key in ("expected_s", "limit_s", "expected_node_s", "limit_node_s")
        ]
        print(f"{name:<32} {hours[0]:10.2f} {hours[1]:8.2f} {hours[2]:16.0f} {hours[3]:13.0f}", flush=True)


if __name__ == "__main__":
    main()
