"""From tonight's shares to one plan: each share is planned as a small site of its own, and all are joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shakedown.daytwo.nightly.rotation import Share, pair_rounds
from shakedown.intent.site import Acceptance, PerftestTest, Site
from shakedown.plan.jobs import Jobs, JobSpec, counter_tests
from shakedown.plan.planner import make_plan
from shakedown.records.names import natural_key
from shakedown.records.plan import Plan, PlanItem, Reference
from shakedown.records.results import Measurement
from shakedown.references.catalogue import Catalogue

# Start-up and teardown of one measurement; what the mesh's own time limit allows for, too.
_OVERHEAD_S = 10
_ITERATIONS_S = 5  # what a test of a number of iterations takes at most, in time limits
# Settings are read back in jobs of so many nodes, so that one busy node holds up few.
_SETTINGS_GROUP = 32


def slot_name(test: PerftestTest, rail: str) -> str:
    """Name a slot: ib_write_bw/65536/rail0."""
    return f"{test.test}/{test.size_bytes}/{rail}"


def slot_costs(site: Site, group: int, node_tests_s: float) -> dict[str, float]:
    """Return the seconds that each slot takes of a node: pairs in groups of that size, and its own tests."""
    costs = {
        slot_name(test, rail.name): pair_rounds(group)
        * 2
        * ((test.duration_s or _ITERATIONS_S) + _OVERHEAD_S)
        for test in site.acceptance.perftest
        if "one" in test.rails_at_once
        for rail in site.fabric.rails
    }
    return {**costs, **dict.fromkeys(alone_slots(site), node_tests_s)}


def alone_slots(site: Site) -> dict[str, tuple[str, ...]]:
    """Return the slots that a node is measured in by itself, with the nodes that have GPUs to measure."""
    having = tuple(node for node in site.nics if site.gpus.get(node))
    wanted = site.acceptance
    asked = {"gpu_node": wanted.gpu_node is not None, "interconnect": wanted.interconnect is not None}
    return {slot: having for slot, there in asked.items() if there and having}


def nightly_plan(
    site: Site, catalogue: Catalogue, shares: Sequence[Share], *, run: str, created: str
) -> tuple[Plan, Jobs, dict[str, str]]:
    """Return the plan and jobs of a night: settings of all its nodes, then its shares; and each cell's slot.

    Raises:
        MissingReference: a cell has no reference.
    """
    nodes = sorted({node for share in shares for node in share.nodes}, key=natural_key)
    rails = [rail.name for rail in site.fabric.rails]
    parts: list[tuple[Site, str, str | None]] = []
    if site.acceptance.config:
        for start in range(0, len(nodes), _SETTINGS_GROUP):
            some = nodes[start : start + _SETTINGS_GROUP]
            asked = Acceptance(
                config=site.acceptance.config, scope=site.acceptance.scope, counter_tests=False
            )
            parts.append((_only(site, some, rails, asked), some[0], None))
    parts += [(*_share(site, share, rails), share.slot) for share in shares]
    items: list[PlanItem] = []
    jobs: list[JobSpec] = []
    references: dict[str, Reference] = {}
    seen: set[str] = set()
    slots: dict[str, str] = {}
    planned = [
        (*make_plan(small, catalogue, run=run, created=created), suffix, slot)
        for small, suffix, slot in parts
    ]
    for _, its_jobs, suffix, _ in planned:
        jobs += [job.model_copy(update={"name": f"{job.name}.{suffix}"}) for job in its_jobs.jobs]
    counted = counter_tests(jobs)
    for plan, its_jobs, suffix, slot in planned:
        references |= plan.references
        # Under which test the counters of each job stand, alone and among all.
        alone = counter_tests(its_jobs.jobs)
        renamed = {alone[job.name]: counted[f"{job.name}.{suffix}"] for job in its_jobs.jobs}
        for its_item in plan.items:
            counter = its_item.metric.startswith("counter.")
            item = (
                its_item.model_copy(update={"test": renamed.get(its_item.test, its_item.test)})
                if counter
                else its_item
            )
            cells = {cell for cell, *_ in item.cells()}
            if slot is not None and not counter:
                slots |= dict.fromkeys(cells, slot)
            # A switch port's counters are read once a stage, however many tests cross it.
            if not cells <= seen:
                items.append(item)
                seen |= cells
    used = {item.reference for item in items}
    # A rail that is in the plan and that nothing measures is a hole, which no verdict passes.
    measured = {rail for item in items if item.required for rail in item.rails}
    plan = Plan(
        run=run,
        system=site.fabric.system,
        profile=site.fabric.profile,
        created=created,
        nodes=tuple(nodes),
        rails=tuple(r for r in rails if r in measured),
        items=tuple(items),
        references={k: v for k, v in references.items() if k in used},
        caveats=(*site.acceptance.caveats, "A nightly run measures a part; the rest has its turn."),
    )
    return plan, Jobs(run=run, jobs=tuple(jobs), nics={n: site.nics[n] for n in nodes}), slots


def _share(site: Site, share: Share, rails: Sequence[str]) -> tuple[Site, str]:
    """Return a share as a site of its own, and what its jobs' names end in."""
    wanted = site.acceptance
    if share.slot in alone_slots(site):
        own = {share.slot: getattr(wanted, share.slot)}
        asked = Acceptance.model_validate(
            {"profiles": wanted.profiles, "scope": wanted.scope, "counter_tests": False, **own}
        )
        return _only(site, share.nodes, rails, asked), f"{share.slot}.{share.nodes[0]}"
    test, rail = next((t, r) for t in wanted.perftest for r in rails if slot_name(t, r) == share.slot)
    asked = Acceptance(
        perftest=(test.model_copy(update={"rails_at_once": ("one",)}),),
        profiles=wanted.profiles,
        scope=wanted.scope,
        measurement_timeout_s=wanted.measurement_timeout_s,
        qp_timeout=wanted.qp_timeout,
        counter_tests=wanted.counter_tests,
        caveats=wanted.caveats,
    )
    return _only(site, share.nodes, [rail], asked), f"{test.size_bytes}.{rail}.{share.nodes[0]}"


def _only(site: Site, nodes: Iterable[str], rails: Sequence[str], acceptance: Acceptance) -> Site:
    """Return a site of some nodes and rails, with the switch ports that they use."""
    some = set(nodes)
    return site.model_copy(
        update={
            "fabric": site.fabric.model_copy(
                update={"rails": tuple(r for r in site.fabric.rails if r.name in rails)}
            ),
            "acceptance": acceptance,
            "nics": {n: tuple(x for x in site.nics[n] if x.rail in rails) for n in site.nics if n in some},
            "addresses": {n: a for n, a in site.addresses.items() if n in some},
            "switches": tuple(
                s.model_copy(update={"ports": tuple(p for p in s.ports if p[1] in some and p[3] in rails)})
                for s in site.switches
            ),
        }
    )


def covered_slots(slots: Mapping[str, str], measurements: Iterable[Measurement]) -> set[tuple[str, str]]:
    """Return which (node, slot) had its turn: a job that completed tried it, with a value or without.

    What was preempted or found its node busy is still due. What completed and gave no value is a finding of
    the verdict; to try it again every night would keep the node's other slots waiting.
    """
    return {
        (node, slots[m.cell])
        for m in measurements
        if m.cell in slots
        and m.state == "COMPLETED"
        and (m.problem is None or m.problem.kind not in ("killed", "environment", "busy"))
        for node in m.nodes
    }
