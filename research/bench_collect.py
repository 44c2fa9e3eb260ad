"""Seconds of `shakedown collect` over the nodes' settings: `python research/bench_collect.py [NODES ...]`.

A made-up site of NODES x 8 rails. Each node left the read-back of each NIC, with the neighbours that it looks
for; each is held against the reports of all these. Planning and writing the files are not counted.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]
JOB, AT = "config.settings", "2026-11-20T00:00:00Z"


def write_run(folder: Path, nodes: int) -> Path:
    """Plan the site by the real command, and write what its settings' job left; return the run."""
    from large_site import write_site
    from shakedown.benchmarks.config.job import on_rail, peers
    from tests.kit.job import ENDED, leave_the_rest

    site, run = write_site(folder, nodes, {"config": {}, "counter_tests": False}), folder / "run"
    command = [sys.executable, "-m", "shakedown", "plan", str(site), "--output", str(run)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (spec,) = (job for job in json.loads((run / "jobs.json").read_text())["jobs"] if job["name"] == JOB)
    order, job = spec["settings"], run / "raw" / f"{JOB}.a1"
    job.mkdir(parents=True)
    record = {"schema": 1, "run": "run", "stage": "config", "test": JOB, "job": "7", "nodes": spec["nodes"]}
    (job / "job.json").write_text(json.dumps({**record, **ENDED}))
    leave_the_rest(run)
    rails = {rail for of in order["targets"].values() for rail in of.values() if rail}
    nics = {rail: on_rail(order, rail) for rail in rails}
    for node, targets in order["targets"].items():
        lines = []
        for target, rail in targets.items():
            known = {a: mac(a) for a in peers(order, node, target, nics[rail])} if rail else None
            file = f"settings.{node}.{target}.json"
            (job / file).write_text(json.dumps(report(order["expect"][node][target], target, known)))
            line = {"schema": 1, "tool": "settings", "test": "settings", "file": file, "nodes": [node]}
            line |= {"rail": rail} if rail else {"params": {"target": target}}
            lines.append(json.dumps({**line, "exit_code": 0, "started": AT, "duration_s": 1.0}) + "\n")
        (job / f"outputs.{node}.jsonl").write_text("".join(lines))
    return run


def report(expected: dict[str, Any], target: str, known: dict[str, str] | None) -> dict[str, Any]:
    """Return what a node whose settings are as planned says of a NIC."""
    values = dict(expected)
    if "dscp.map" in expected:  # as dcb prints it
        values["dscp.map"] = " ".join(f"{dscp}:{to}" for dscp, to in expected["dscp.map"].items())
    if "ipv4" in expected:
        values |= {"ipv4": f"{expected['ipv4']}/16", "mac": mac(expected["ipv4"])}
    settings = [{"key": k, "found": v, "wanted": v, "ok": True, "settable": True} for k, v in values.items()]
    said = {"schema": 1, "target": target, "driver": "mlx5", "error": None, "settings": settings}
    return {**said, "not_applicable": [], "neighbours": known}


def mac(address: str) -> str:
    """Return the MAC of the NIC with an address."""
    return "52:54:{:02x}:{:02x}:{:02x}:{:02x}".format(*map(int, address.split(".")))


def main() -> None:
    """Print a table."""
    print(f"{'nodes':>6} {'readings':>9} {'CPU s':>6} {'wall s':>7} {'values':>8}")
    for nodes in [int(word) for word in sys.argv[1:]] or [64, 256, 1024]:
        with tempfile.TemporaryDirectory() as name:
            run = write_run(Path(name), nodes)
            command = [sys.executable, "-m", "shakedown", "collect", str(run)]
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            lines = (run / "results.jsonl").read_text().splitlines()
            found = [one for one in map(json.loads, lines) if one["test"] == "settings"]
            readings = len(list((run / "raw").glob("*/settings.*.json")))
        if odd := next((one for one in found if one["problem"] or one["value"]), None):
            sys.exit(f"not as planned: {odd}")
        print(f"{nodes:6} {readings:9,} {cpu:6.1f} {wall:7.1f} {len(found):8,}", flush=True)


if __name__ == "__main__":
    main()
