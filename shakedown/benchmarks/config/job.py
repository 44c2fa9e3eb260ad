"""Read this node's settings back, one file for each NIC and for each target of the whole node.

    srun --ntasks-per-node=1 python -m shakedown.benchmarks.config.job FOLDER

Asks the service that roles/host_settings installed, which reads with the privileges that this job lacks.
FOLDER/spec.json says which targets are wanted and on which rail each NIC is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from shakedown.benchmarks.config.neighbours import Wanted, neighbours, peers
from shakedown.onnode.counters import unwritable
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.noted import node_name
from shakedown.run import service

SOCKET = "/run/shakedown/settings.sock"
# A read-back takes a second on hardware and half a minute on an emulated node.
_TIMEOUT_S = 180.0


def ask(path: str, timeout_s: float = _TIMEOUT_S) -> dict[str, Any]:
    """Return the service's report on every target. Raises OSError or ValueError."""
    document = service.ask(path, timeout_s)
    if not isinstance(document.get("targets"), list):
        raise ValueError("the answer is no report")
    return document


def main() -> int:
    """Write a file and a journal line for every wanted target of this node."""
    if len(sys.argv) != 2:
        print("usage: python -m shakedown.benchmarks.config.job FOLDER", file=sys.stderr)
        return 2
    folder, node = Path(sys.argv[1]), node_name()
    spec = json.loads((folder / "spec.json").read_bytes())
    wanted: dict[str, str | None] = spec["targets"][node]
    clock = Clock()
    problem: dict[str, str] | None = None
    reports: dict[str, Any] = {}
    try:
        reports = {report["target"]: report for report in ask(SOCKET)["targets"]}
    except FileNotFoundError:
        # Not a fault of the node: nothing here is wrong, and nothing is known.
        problem = {
            "kind": "not-run",
            "message": f"{node}: {SOCKET} is not there: run the playbook that configures hosts, or say "
            "acceptance.config.settings_reader: false where nothing may be installed",
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        # A bad answer is in doubt.
        problem = {"kind": "setup", "message": f"{SOCKET}: {error}; run the playbook that configures hosts"}
    nics = {
        target: Wanted(str(spec["expect"][node][target].get("ipv4", "")), peers(spec, node, target))
        for target, rail in wanted.items()
        if rail is not None and target in reports
    }
    known = neighbours(nics) if nics else {}
    for target in nics:
        reports[target]["neighbours"] = None if known is None else known[target]
    try:
        _write(folder, node, wanted, reports, clock, problem)
    except OSError as error:
        return unwritable(node, folder, error)
    return 1 if problem and problem["kind"] != "not-run" else 0


def _write(
    folder: Path,
    node: str,
    wanted: dict[str, str | None],
    reports: dict[str, Any],
    clock: Clock,
    problem: dict[str, str] | None,
) -> None:
    journal = Journal(folder, node)
    for target, rail in wanted.items():
        name = f"settings.{node}.{target}.json"
        report = reports.get(target)
        missing = {"kind": "setup", "message": f"the node has no wanted state for {target}"}
        document = {"schema": 1, "node": node, **report} if report else {}
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        journal.add(
            tool="settings",
            test="settings",
            file=name,
            nodes=[node],
            rail=rail,
            # One rail has one NIC; without a rail, the target tells what was read.
            params={} if rail else {"target": target},
            exit_code=1 if problem else 0,
            started=clock.started,
            duration_s=clock.seconds(),
            problem=problem or (None if report else missing),
        )


if __name__ == "__main__":
    sys.exit(main())
