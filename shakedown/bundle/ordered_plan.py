"""How a run's plan differs from the one that was ordered: what is missing, what is eased, what is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from shakedown.bundle.findings import Finding
from shakedown.bundle.orders import digest
from shakedown.records.base import Better, params_text
from shakedown.records.order import Order, OrderedTest, ordered_tests
from shakedown.records.plan import Plan, Reference
from shakedown.records.reading import read_bytes, read_record
from shakedown.records.snapshot import Snapshot
from shakedown.run.folder import INVENTORY, JOBS, PLAN

_Block = tuple[str, str, str, str]


def plan_findings(folder: Path, plan: Plan, order: Order) -> Iterator[Finding]:
    """Yield how plan, jobs and machines differ from the order's. Raises BadInput."""
    if digest(read_bytes(folder / PLAN)) != order.plan:
        said = list(_of_plan(plan, order))
        yield from (Finding(PLAN, why) for why in said)
        if not said:
            yield Finding(PLAN, "is not the plan that was ordered: its SHA-256 differs")
    if digest(read_bytes(folder / JOBS)) != order.jobs:
        yield Finding(JOBS, "are not the jobs that were ordered: their SHA-256 differs")
    for node in plan.nodes:
        if node not in order.nodes:
            yield Finding(PLAN, f"{node} is no node of the order")
    if (folder / INVENTORY).exists():
        yield from _of_machines(read_record(folder / INVENTORY, Snapshot), order)
    else:
        yield Finding(INVENTORY, "is missing: nothing says which machines these are")


def _of_plan(plan: Plan, order: Order) -> Iterator[str]:
    if (plan.run, plan.system) != (order.run, order.system):
        yield f"is of run {plan.run} on {plan.system}, the order of run {order.run} on {order.system}"
    for name, reference in plan.references.items():
        ordered = order.references.get(name)
        if ordered is None:
            yield f"reference {name} is not of the order"
        elif reference != ordered:
            yield f"reference {name}: {difference(ordered, reference)}"
    here, there = _blocks(ordered_tests(plan)), _blocks(order.tests)
    for block in sorted(here.keys() | there.keys()):
        name = " ".join(part for part in block if part)
        if block not in here:
            yield f"{name} was ordered and is not in the plan"
        elif block not in there:
            yield f"{name} is in the plan and was not ordered"
        else:
            yield from (f"{name} {how}" for how in _eased(there[block], here[block]))


def _blocks(tests: tuple[OrderedTest, ...]) -> dict[_Block, list[OrderedTest]]:
    found: dict[_Block, list[OrderedTest]] = defaultdict(list)
    for test in tests:
        found[test.stage.value, test.test, test.metric, params_text(test.params)].append(test)
    return found


def _eased(ordered: list[OrderedTest], here: list[OrderedTest]) -> Iterator[str]:
    """Yield how the blocks of one test, metric and parameters differ from those that were ordered."""
    was, now = (sum(test.cells for test in tests) for tests in (ordered, here))
    if was != now:
        yield f"has {now} cells, {was} were ordered"
    if all(t.required for t in ordered) and not all(t.required for t in here):
        yield "is not required any more"
    if not any(t.not_run for t in ordered) and (why := next((t.not_run for t in here if t.not_run), None)):
        yield f"is not to be run ({why[:80]}), though it was ordered"
    references = ({t.reference for t in ordered}, {t.reference for t in here})
    if references[0] != references[1]:
        new, old = (", ".join(sorted(names)) for names in reversed(references))
        yield f"is held to {new}, ordered was {old}"


def difference(ordered: Reference, here: Reference) -> str:
    """Say how a reference differs from another of its name, its gate first."""
    if here.gate != ordered.gate:
        looser = (here.gate < ordered.gate) == (here.better is Better.HIGHER)
        how = "loosened" if looser else "tightened"
        return f"gate {how}, from {ordered.gate:g} to {here.gate:g} {here.unit}"
    changed = [
        name
        for name in Reference.model_fields
        if name != "id" and getattr(here, name) != getattr(ordered, name)
    ]
    return f"{', '.join(changed)} changed"


def _of_machines(snapshot: Snapshot, order: Order) -> Iterator[Finding]:
    """Yield machines of the snapshot that are other ones than those of the order, or are not in it."""
    told = {part.host for part in snapshot.components if part.kind == "node"}
    for name, ordered in order.nodes.items():
        if ordered.machine is not None and name not in told:
            yield Finding(INVENTORY, f"says nothing of {name}: which machine it was is not told")
    for part in snapshot.components:
        node = order.nodes.get(part.host)
        if part.kind != "node" or node is None:
            continue
        machine = part.attributes.get("machine_id", "")
        if node.machine is not None and machine != node.machine:
            yield Finding(
                INVENTORY, f"{part.host} is another machine than the order's: its machine id differs"
            )
        keys = set(part.attributes.get("ssh_host_keys", "").split())
        if keys and not keys & set(node.host_keys):
            yield Finding(INVENTORY, f"{part.host} has other SSH host keys than the order says")
