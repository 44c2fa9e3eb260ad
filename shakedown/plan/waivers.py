"""Waivers in the plan: those that hold today, each for something that is planned and can be waived."""

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from shakedown.intent.places import refuse
from shakedown.intent.rules import Problem
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan, PlanItem, Waiver
from shakedown.records.reading import BadInput

# Counts of what came out wrong. In the config stage `wrong` counts settings, which harm no data.
_CORRECTNESS = ("wrong", "nonfinite_steps")


def with_waivers(
    plan: Plan, waivers: Iterable[Waiver], *, whole: bool, inventory: Path | None = None
) -> Plan:
    """Return the plan with the waivers that cover one of its cells; `whole`: it is of the whole site.

    `inventory`: the folder that the waivers are from, so that a refusal names file and line. Raises BadInput:
    a waiver that has expired, that covers what is about correct data, that covers nothing of a plan of the
    whole site, or a name that two waivers have.
    """
    today = date.fromisoformat(plan.created[:10])
    kept: list[Waiver] = []
    names: set[str] = set()
    for number, waiver in enumerate(waivers):
        if waiver.name in names:
            raise _refusal(
                inventory, number, f"two waivers are named {waiver.name}", "give each a name of its own"
            )
        names.add(waiver.name)
        if waiver.expires < today:
            raise _refusal(
                inventory,
                number,
                f"waiver {waiver.name} of {waiver.owner} expired on {waiver.expires}",
                "take it out, or have it signed for anew",
            )
        covered = [item for item in plan.items if _covers(waiver, item)]
        for item in covered:
            if _is_about_data(plan, item):
                raise _refusal(
                    inventory,
                    number,
                    f"waiver {waiver.name} covers {item.test} {item.metric}, which is about data",
                    "waive speeds and settings; data that are lost or wrong are never waived",
                )
        if covered:
            kept.append(waiver)
        elif whole:
            raise _refusal(
                inventory,
                number,
                f"waiver {waiver.name} covers no planned cell: {waiver.cells}",
                "write STAGE/TEST/METRIC/NODES/RAIL/DIRECTION/PARAMETERS as verdict.json has it, with *",
            )
    return plan.model_copy(update={"waivers": tuple(kept)})


def holding(plan: Plan, item: PlanItem) -> tuple[Waiver, ...]:
    """Return the waivers of a plan that may waive a block's failures, whoever wrote them into it."""
    if not plan.waivers or _is_about_data(plan, item):
        return ()
    return tuple(waiver for waiver in plan.waivers if waiver.expires.isoformat() >= plan.created[:10])


def _refusal(inventory: Path | None, number: int, what: str, fix: str) -> BadInput:
    if inventory is None:
        return BadInput(what, fix=fix)
    return refuse([(None, Problem(("waivers", number), what, fix))], inventory)


def _covers(waiver: Waiver, item: PlanItem) -> bool:
    kind = f"{item.stage}/{item.test}/{item.metric}/"
    return waiver.cells.startswith(kind) and any(waiver.covers(cell) for cell, *_ in item.cells())


def _is_about_data(plan: Plan, item: PlanItem) -> bool:
    if item.metric in _CORRECTNESS:
        return item.stage is not Stage.CONFIG
    reference = plan.references[item.reference]
    # Counters of which none is allowed: losses, retransmissions, errors.
    return item.metric.startswith("counter.") and item.better is Better.LOWER and reference.gate == 0
