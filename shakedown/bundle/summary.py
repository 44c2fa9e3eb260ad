"""What a signed run is of, for whoever is to believe it: run, system, date, plan, gates of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from shakedown.bundle.ordered_plan import difference
from shakedown.bundle.orders import digest
from shakedown.records.plan import Plan, Reference
from shakedown.records.reading import read_bytes, read_record
from shakedown.references.files import load_profile, profile_names
from shakedown.run.folder import PLAN


def facts(folder: Path) -> dict[str, str]:
    """Return run, system, date of the plan, and the plan's digest. Raises BadInput."""
    plan = read_record(folder / PLAN, Plan)
    return {
        "run": plan.run,
        "system": plan.system,
        "planned": plan.created,
        "plan": digest(read_bytes(folder / PLAN)),
    }


def gates(folder: Path) -> list[str]:
    """Return what of a plan's references is not as a shipped profile has it, a line each. Raises BadInput."""
    plan = read_record(folder / PLAN, Plan)
    return list(_gates(plan, _shipped()))


def eased(folder: Path) -> Iterator[str]:
    """Yield what whoever signs a plan should know that it lets pass, a line each. Raises BadInput.

    Gates of its own, tests that are not to be run or not required, and waivers.
    """
    plan = read_record(folder / PLAN, Plan)
    yield from (f"gate of its own: {gate}" for gate in _gates(plan, _shipped()))
    for item in plan.items:
        name = f"{item.stage.value} {item.test} {item.metric}, {len(item)} cells"
        if item.not_run:
            yield f"not to be run: {name}: {item.not_run}"
        elif not item.required:
            yield f"not required: {name}"
    for waiver in plan.waivers:
        yield f"waived until {waiver.expires}: {waiver.cells}, by {waiver.owner}: {waiver.reason}"


def _shipped() -> dict[str, list[Reference]]:
    found: dict[str, list[Reference]] = defaultdict(list)
    for name in profile_names():
        for entry in load_profile(name).entries:
            found[entry.id].append(entry.reference())
    return found


def _gates(plan: Plan, shipped: dict[str, list[Reference]]) -> Iterator[str]:
    required = {item.reference for item in plan.items if item.required}
    used = {item.reference for item in plan.items}
    for name, reference in sorted(plan.references.items()):
        known = shipped.get(name)
        if known is None:
            whose = f"{reference.kind.value}, {reference.source}"[:120]
            worst = "at least" if reference.better == "higher" else "at most"
            yield f"{name}: {worst} {reference.gate:g} {reference.unit}, in no shipped profile ({whose})"
        elif reference not in known:
            yield f"{name}: {difference(known[0], reference)}"
        elif name in used - required:
            yield f"{name}: no cell that it decides is required"
