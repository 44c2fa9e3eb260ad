"""`host-settings ACTION TARGET...`: one program for Ansible, the boot unit and people."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from host_settings import arrivals, engine, modules, node_reader, signer, targets
from host_settings.desired import BadDesired
from host_settings.system import System, ToolError

_ACTIONS = {
    "show": engine.check,
    "check": engine.check,
    "apply": engine.apply,
    "rollback": engine.rollback,
    "rollback-check": engine.rollback_check,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0 if all is as wanted, 1 if something differs, 2 for bad input or an error."""
    options = _parse(argv)
    system = System(options.root, probes=options.probe)
    folder = Path(options.desired) if options.desired else system.path(targets.DESIRED_FOLDER)
    if options.action == "arrivals":
        return arrivals.serve(folder, sys.stdin.buffer)
    if options.action == "sign":
        print(signer.serve(system, sys.stdin.fileno()))
        return 0
    if options.action == "modules":
        modules.write(system)
        return 0
    if options.action == "node":
        print(json.dumps(node_reader.document(system)))
        return 0
    try:
        # Every target is looked at before the first one is touched.
        names = options.targets or (targets.all_targets(folder) if options.all else [])
        if not names:
            raise BadDesired("no target -- give netdevs, environment, or --all")
        wanted = [targets.load_target(system, name, folder) for name in names]
    except (BadDesired, ToolError) as refused:
        print(f"host-settings: {_one_line(str(refused))}", file=sys.stderr)
        return 2
    reports = [_run(system, target, options.action) for target in wanted]
    deadline = time.monotonic() + options.settle
    while options.action == "check" and not all(r["ok"] for r in reports) and time.monotonic() < deadline:
        time.sleep(0.5)
        reports = [_run(system, target, options.action) for target in wanted]
    if options.json:
        print(json.dumps({"schema": 1, "action": options.action, "targets": reports}))
    else:
        for report in reports:
            _print(report, options.action)
    return 0 if options.action == "show" or all(report["ok"] for report in reports) else 1


def _run(system: System, target: targets.Target, action: str) -> dict[str, Any]:
    try:
        return _ACTIONS[action](system, target)
    except (ToolError, OSError, ValueError) as error:
        return engine.failure(target, str(error))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="host-settings", description=__doc__)
    parser.add_argument("action", choices=[*_ACTIONS, "arrivals", "modules", "node", "sign"])
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="a netdev, environment, gpudirect, pinning or signing"
    )
    parser.add_argument("--all", action="store_true", help="every target that has a wanted state")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--settle", type=int, default=0, metavar="S", help="wait up to S seconds in check")
    parser.add_argument(
        "--probe", action="store_true", help="ask the network who else owns a NIC's address, 1.2 s for each"
    )
    parser.add_argument("--root", default="/", help="prefix of all paths, for recorded trees")
    parser.add_argument("--desired", help=f"folder of the desired states (default {targets.DESIRED_FOLDER})")
    return parser.parse_intermixed_args(argv)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _print(report: dict[str, Any], action: str) -> None:
    name = report["target"]
    for entry in report["changes"]:
        verb = "differs" if action in ("show", "check") else "changed"
        print(
            _one_line(f"{name} {entry['key']}: {verb}: found {entry['found']!r}, wanted {entry['wanted']!r}")
        )
        for did in entry["did"]:
            print(_one_line(f"{name}   {did}"))
    changed = {entry["key"] for entry in report["changes"]}
    for item in report["settings"]:
        if not item["ok"] and item["key"] not in changed:
            print(_one_line(f"{name} {item['key']}: found {item['found']!r}, wanted {item['wanted']!r}"))
        elif action == "show" and item["ok"]:
            print(_one_line(f"{name} {item['key']}: {item['found']!r}"))
    for item in report["not_applicable"] if action == "show" else ():
        print(_one_line(f"{name} {item['key']}: not applicable: {item['reason']}"))
    if report["error"]:
        print(_one_line(f"{name}: error: {report['error']}"), file=sys.stderr)
    elif report["ok"] and not report["changes"] and action != "show":
        print(f"{name}: as wanted")
