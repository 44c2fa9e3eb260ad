"""From tonight's shares to one plan: each share is planned as a small site of its own, and all are joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shakedown.benchmarks.base.night import EveryNight, NodeAlone, NotAtNight, Pairs
from shakedown.benchmarks.planning import make_plan
from shakedown.benchmarks.registry import BENCHMARKS
from shakedown.daytwo.nightly.rotation import Share
from shakedown.intent.acceptance import AcceptanceBase
from shakedown.intent.part import part_of
from shakedown.intent.site import Site
from shakedown.plan.jobs import Jobs, JobSpec, counter_tests, jobs_of_site
from shakedown.plan.waivers import with_waivers
from shakedown.records.names import natural_key
from shakedown.records.plan import Plan, PlanItem, PlanScope, Reference
from shakedown.records.results import Measurement
from shakedown.references.catalogue import Catalogue

# Settings are read back in jobs of so many nodes, so that one busy node holds up few.
_SETTINGS_GROUP = 32


def slot_costs(site: Site, group: int, node_tests_s: float) -> dict[str, float]:
    """Return the seconds that each slot takes of a node: pairs in groups of that size, and its own tests."""
    costs: dict[str, float] = {}
    for benchmark in BENCHMARKS:
        if isinstance(benchmark.night, Pairs):
            costs |= benchmark.night.slots(site, group)
    return {**costs, **dict.fromkeys(alone_slots(site), node_tests_s)}


def alone_slots(site: Site) -> dict[str, tuple[str, ...]]:
    """Return the slots that a node is measured in by itself, with the nodes that have them."""
    found: dict[str, tuple[str, ...]] = {}
    for benchmark in BENCHMARKS:
        if isinstance(benchmark.night, NodeAlone):
            key = benchmark.section.key
            having = tuple(node for node in benchmark.night.nodes(site) if getattr(site.of(node), key))
            if having:
                found[key] = having
    return found


def left_out(site: Site) -> dict[str, str]:
    """Return what the site asks for and no night measures, with why."""
    asked = {section.key for section, _ in site.acceptance.asked()}
    return {
        b.section.key: b.night.why
        for b in BENCHMARKS
        if isinstance(b.night, NotAtNight) and b.section.key in asked
    }


def nightly_plan(
    site: Site,
    catalogue: Catalogue,
    shares: Sequence[Share],
    *,
    run: str,
    created: str,
    inventory: Path | None = None,
    whole: Site | None = None,
) -> tuple[Plan, Jobs, dict[str, str]]:
    """Return the plan and jobs of a night: settings of all its nodes, then its shares; and each cell's slot.

    `whole`: the site, where `site` is a part of it. The verdict says first how much of it the night has.

    Raises:
        MissingReference: a cell has no reference.
    """
    nodes = sorted({node for share in shares for node in share.nodes}, key=natural_key)
    rails = [rail.name for rail in site.fabric.rails]
    parts: list[tuple[Site, str, str | None]] = []
    every = [b.section.key for b in BENCHMARKS if isinstance(b.night, EveryNight) and b.night.asked(site)]
    if config := {key: value for key in every if (value := getattr(site.acceptance, key))}:
        asked = type(site.acceptance).model_validate(
            {**config, "scope": site.acceptance.scope, "counter_tests": False}
        )
        for start in range(0, len(nodes), _SETTINGS_GROUP):
            some = nodes[start : start + _SETTINGS_GROUP]
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
                if counter and cells & seen:  # links of switches that an earlier share's nodes use as well
                    left = dict.fromkeys(nodes for cell, nodes, *_ in item.cells() if cell not in seen)
                    item = item.model_copy(update={"nodes": tuple(left)})
                items.append(item)
                seen |= cells
    used = {item.reference for item in items}
    # A rail that is in the plan and that nothing measures is a hole, which no verdict passes.
    measured = {rail for item in items if item.required for rail in item.rails}
    its_rails = tuple(r for r in rails if r in measured)
    of = whole or site
    plan = Plan(
        run=run,
        system=site.fabric.system,
        profile=site.fabric.profile,
        created=created,
        nodes=tuple(nodes),
        rails=its_rails,
        scope=PlanScope(
            nodes=tuple(nodes),
            of_nodes=len(of.nics),
            rails=its_rails,
            of_rails=len(of.fabric.rails),
            mesh="night",
        ),
        items=tuple(items),
        references={k: v for k, v in references.items() if k in used},
        caveats=(*site.acceptance.caveats, "A nightly run measures a part; the rest has its turn."),
    )
    plan = with_waivers(plan, site.waivers, whole=False, inventory=inventory)
    return (plan, jobs_of_site(run, jobs, site, nodes), slots)


def _share(site: Site, share: Share, rails: Sequence[str]) -> tuple[Site, str]:
    """Return a share as a site of its own, and what its jobs' names end in."""
    model, first = type(site.acceptance), share.nodes[0]
    if share.slot in alone_slots(site):
        wanted = site.of(first)
        own = {share.slot: getattr(wanted, share.slot)}
        asked = model.model_validate(
            {"profiles": wanted.profiles, "scope": wanted.scope, "counter_tests": False, **own}
        )
        return _only(site, share.nodes, rails, asked), f"{share.slot}.{first}"
    wanted = site.acceptance
    pairs, key = next(
        (b.night, b.section.key)
        for b in BENCHMARKS
        if isinstance(b.night, Pairs) and share.slot in b.night.slots(site, len(share.nodes))
    )
    what, its_rails, suffix = pairs.only(site, share.slot)
    shared = {name: getattr(wanted, name) for name in AcceptanceBase.model_fields}
    asked = model.model_validate({**shared, key: what})
    return _only(site, share.nodes, its_rails, asked), f"{suffix}.{first}"


def _only(site: Site, nodes: Iterable[str], rails: Sequence[str], acceptance: AcceptanceBase) -> Site:
    """Return a site of some nodes and rails, asked for this alone, with the switch ports that they use."""
    some = set(nodes)
    return part_of(site, some, rails, some).model_copy(update={"acceptance": acceptance, "own": {}})


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
        and not m.disturbed
        for node in m.nodes
    }
