"""Check, apply and roll back one target."""

from __future__ import annotations

import json
from typing import Any

from host_settings.model import (
    Change,
    Item,
    NotApplicable,
    Value,
    WriteFile,
    changes_to_apply,
    changes_to_restore,
    settings_of,
)
from host_settings.system import System, ToolError
from host_settings.targets import Target

BEFORE_FOLDER = "/var/lib/shakedown/settings"
_SCHEMA = 1


def _recorded(system: System, name: str) -> dict[str, Value]:
    text = system.read(_before_file(name))
    values: dict[str, Value] = json.loads(text)["values"] if text else {}
    return values


def _before_file(name: str) -> str:
    return f"{BEFORE_FOLDER}/{name}.before.json"


def _record(system: System, name: str, items: list[Item]) -> None:
    """Keep the first value ever seen of every setting, before anything is changed.

    All of them, not only those about to change: a value that is as wanted now may drift and be set later.
    """
    values = _recorded(system, name)
    new = {s.key: s.found for s in settings_of(items) if s.actions is not None and s.key not in values}
    if new:
        text = json.dumps({"schema": _SCHEMA, "values": {**values, **new}}, indent=1) + "\n"
        system.write_file(WriteFile(_before_file(name), text), mode=0o600)


def _carry_out(system: System, changes: list[Change]) -> tuple[list[dict[str, Any]], str | None]:
    """Make changes in order until one fails: what was done, and the failure."""
    done: list[dict[str, Any]] = []
    for change in changes:
        if not change.actions:
            continue
        entry = _as_json(change)
        done.append(entry)
        for action in change.actions:
            try:
                system.do(action)
            except ToolError as error:
                return done, f"{change.key}: {error}" + (f" -- {change.hint}" if change.hint else "")
            entry["did"].append(str(action))
    return done, None


def _as_json(change: Change) -> dict[str, Any]:
    return {
        "key": change.key,
        "found": change.found,
        "wanted": change.wanted,
        **({"interrupts": change.interrupts} if change.interrupts else {}),
        "did": [],
    }


def _report(
    target: Target, items: list[Item], changes: list[dict[str, Any]], error: str | None
) -> dict[str, Any]:
    settings = settings_of(items)
    return {
        "target": target.name,
        "driver": target.driver,
        "ok": error is None and all(s.ok for s in settings),
        "error": error,
        "settings": [
            {
                "key": s.key,
                "found": s.found,
                "wanted": s.wanted,
                "ok": s.ok,
                "settable": s.actions is not None,
            }
            for s in settings
        ],
        "not_applicable": [{"key": i.key, "reason": i.reason} for i in items if isinstance(i, NotApplicable)],
        "changes": changes,
    }


def failure(target: Target, error: str) -> dict[str, Any]:
    """The report of a target that could not even be read."""
    return _report(target, [], [], error)


def check(system: System, target: Target) -> dict[str, Any]:
    """Compare, change nothing; `changes` lists what apply would do."""
    items = target.read()
    ours = _recorded(system, target.name)
    planned = [
        {**_as_json(c), "did": [str(a) for a in c.actions], "ours": c.key in ours}
        for c in changes_to_apply(items)
    ]
    return _report(target, items, planned, None)


def _busy(system: System) -> bool:
    """Whether a step of a Slurm job runs on this host.

    `slurmstepd infinity` is none: with cgroup v2 slurmd keeps it, to hold the scope of all steps.
    """
    return any(
        system.read(f"/proc/{name}/comm") == "slurmstepd"
        and (system.read(f"/proc/{name}/cmdline") or "").rstrip("\0").split("\0")[1:] != ["infinity"]
        for name in system.names("/proc")
        if name.isdigit()
    )


def refuse_if_busy(system: System, changes: list[Change]) -> None:
    """Raise ToolError if a change would interrupt a running job."""
    for change in changes:
        if change.interrupts and change.actions and _busy(system):
            raise ToolError(
                f"{change.key}: found {change.found!r}, wanted {change.wanted!r}: changing it interrupts "
                f"{change.interrupts}, and a Slurm job runs here -- drain the node, then run this again"
            )


def apply(system: System, target: Target) -> dict[str, Any]:
    """Change what differs, record what was there, read back. ok: every setting has its value.

    Raises ToolError before the first change if one would interrupt a running job.

    Consequences (link state, addresses, GIDs) may follow later, at boot for instance, so they are reported
    but do not decide here; `check` is the read-back that decides.
    """
    items = target.read()
    changes = changes_to_apply(items)
    refuse_if_busy(system, changes)
    _record(system, target.name, items)
    done, error = _carry_out(system, changes)
    items = target.read() if changes else items
    report = _report(target, items, done, error)
    report["ok"] = error is None and all(s.ok for s in settings_of(items) if s.actions is not None)
    return report


def rollback_check(system: System, target: Target) -> dict[str, Any]:
    """Compare with what was recorded, change nothing; `changes` lists what rollback would do."""
    items = target.read()
    changes = [c for c in changes_to_restore(items, _recorded(system, target.name)) if c.actions]
    report = _report(
        target, items, [{**_as_json(c), "did": [str(a) for a in c.actions]} for c in changes], None
    )
    report["ok"] = not changes
    return report


def rollback(system: System, target: Target) -> dict[str, Any]:
    """Restore what was recorded, read back, and forget the record once all of it is restored."""
    before = _recorded(system, target.name)
    changes = changes_to_restore(target.read(), before)
    refuse_if_busy(system, changes)
    done, error = _carry_out(system, changes)
    left = [] if error else [c for c in changes_to_restore(target.read(), before) if c.actions]
    if left:
        error = f"{left[0].key}: found {left[0].found!r}, recorded {left[0].wanted!r}"
    if error is None:
        system.write_file(WriteFile(_before_file(target.name), None))
    report = _report(target, target.read(), done, error)
    report["ok"] = error is None
    return report
