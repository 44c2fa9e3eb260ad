"""What the run's snapshot says: parts that differ, hosts that are one machine, clocks that are off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.config.clocks import clock_offset
from shakedown.benchmarks.config.identity import shared_identities
from shakedown.benchmarks.config.uniformity import odd_parts
from shakedown.records.base import Params
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.reading import read_record
from shakedown.records.results import Measurement, Problem
from shakedown.records.snapshot import Snapshot
from shakedown.run.folder import INVENTORY

UNIFORM, IDENTITY, CLOCK = "inventory", "identity", "clock"


def snapshot_measurements(plan: Plan, folder: Path) -> Iterator[Measurement]:
    """Yield from `inventory.json` each node's odd parts, what it shares with another, and its clock's offset.

    Cells of a snapshot that cannot be read get no value, and the reason.
    """
    planned = {
        (item.test, node, item.params.get("part")): item
        for item in plan.items
        if item.test in (UNIFORM, IDENTITY, CLOCK)
        for nodes in item.nodes
        for node in nodes
    }
    if not planned or not (folder / INVENTORY).exists():
        return  # planned and absent: the verdict says NOT-RUN
    try:
        found = read_record(folder / INVENTORY, Snapshot)
    except BadInput as refused:
        problem = Problem(kind="parse", message=f"{INVENTORY}: {refused.what}"[:2000])
        for (_, host, _), item in planned.items():
            yield measured(plan, item, host, None, "", problem)
        return
    alike = {host for test, host, _ in planned if test == UNIFORM}
    for host, part, odd, detail in odd_parts(found, alike):
        # The inventory is of more than what is under test: the submit host, switches.
        if (uniform := planned.get((UNIFORM, host, part))) is not None:
            yield measured(plan, uniform, host, odd, detail)
    nodes = {host for test, host, _ in planned if test == IDENTITY}
    for host, shared, detail in shared_identities(found, nodes):
        problem_of = None if shared is not None else Problem(kind="setup", message=detail[:2000])
        yield measured(plan, planned[IDENTITY, host, None], host, shared, detail, problem_of)
    for (test, host, _), item in planned.items():
        if test == CLOCK:
            offset, detail = clock_offset(found, host, plan.references[item.reference].gate)
            unknown = None if offset is not None else Problem(kind="not-run", message=detail)
            yield measured(plan, item, host, offset, "" if unknown else detail, unknown)


def measured(
    plan: Plan, item: PlanItem, host: str, value: float | None, detail: str, problem: Problem | None = None
) -> Measurement:
    """Return what a snapshot says of one host for a planned block; None: it says nothing, for a reason."""
    params: Params = item.params
    return Measurement(
        run=plan.run,
        stage=item.stage,
        test=item.test,
        metric=item.metric,
        value=None if value is None else float(value),
        unit=item.unit,
        better=item.better,
        nodes=(host,),
        params=params,
        state="COMPLETED",
        detail=detail[:1000] or None,
        problem=problem,
    )
