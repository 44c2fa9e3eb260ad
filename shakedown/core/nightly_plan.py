"""From tonight's shares to one plan: each share is planned as a small site of its own, and all are joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shakedown.core.jobs import Jobs, JobSpec
from shakedown.core.planner import make_plan
from shakedown.core.records import Measurement, Plan, PlanItem, Reference
from shakedown.core.references import Catalogue
from shakedown.core.rotation import Share, pair_rounds
from shakedown.core.site import Acceptance, PerftestTest, Site

# Start-up and teardown of one measurement; what the mesh's own time limit allows for, too.
_OVERHEAD_S = 10
_ITERATIONS_S = 5  # what a test of a number of iterations takes at most, in time limits
# Settings are read back in jobs of so many nodes, so that one busy node holds up few.
_SETTINGS_GROUP = 32


def slot_name(test: PerftestTest, rail: str) -> str:
    """Name a slot: ib_write_bw/65536/rail0."""
    return f"{test.test}/{test.size_bytes}/{rail}"


def slot_costs(site: Site, group: int) -> dict[str, float]:
    """Return the seconds that each slot takes of a node, in groups of that size."""
    return {
        slot_name(test, rail.name): pair_rounds(group)
        * 2
        * ((test.duration_s or _ITERATIONS_S) + _OVERHEAD_S)
        for test in site.acceptance.perftest
        if "one" in test.rails_at_once
        for rail in site.fabric.rails
    }


def nightly_plan(
    site: Site, catalogue: Catalogue, shares: Sequence[Share], *, run: str, created: str
) -> tuple[Plan, Jobs]:
    """Return the plan and jobs of a night: settings of all its nodes, then its shares.

    Raises:
        MissingReference: a cell has no reference.
    """
    tests = {slot_name(t, r.name): (t, r.name) for t in site.acceptance.perftest for r in site.fabric.rails}
    nodes = sorted({node for share in shares for node in share.nodes})
    parts: list[tuple[Site, str]] = []
    if site.acceptance.config:
        for start in range(0, len(nodes), _SETTINGS_GROUP):
            some = nodes[start : start + _SETTINGS_GROUP]
            asked = Acceptance(
                config=site.acceptance.config, scope=site.acceptance.scope, counter_tests=False
            )
            parts.append((_only(site, some, [r.name for r in site.fabric.rails], asked), some[0]))
    for share in shares:
        test, rail = tests[share.slot]
        wanted = site.acceptance
        asked = Acceptance(
            perftest=(test.model_copy(update={"rails_at_once": ("one",)}),),
            profiles=wanted.profiles, scope=wanted.scope, measurement_timeout_s=wanted.measurement_timeout_s,
            qp_timeout=wanted.qp_timeout, counter_tests=wanted.counter_tests, caveats=wanted.caveats,
        )  # fmt: skip
        parts.append((_only(site, share.nodes, [rail], asked), f"{test.size_bytes}.{rail}.{share.nodes[0]}"))
    items: list[PlanItem] = []
    jobs: list[JobSpec] = []
    references: dict[str, Reference] = {}
    seen: set[str] = set()
    for small, suffix in parts:
        plan, its_jobs = make_plan(small, catalogue, run=run, created=created)
        references |= plan.references
        jobs += [job.model_copy(update={"name": f"{job.name}.{suffix}"}) for job in its_jobs.jobs]
        for item in plan.items:
            cells = {cell for cell, *_ in item.cells()}
            # A switch port's counters are read once a stage, however many tests cross it.
            if not cells <= seen:
                items.append(item)
                seen |= cells
    used = {item.reference for item in items}
    rails = [r.name for r in site.fabric.rails]
    plan = Plan(
        run=run, system=site.fabric.system, profile=site.fabric.profile, created=created,
        nodes=tuple(nodes), rails=tuple(rails), items=tuple(items),
        references={k: v for k, v in references.items() if k in used},
        caveats=(*site.acceptance.caveats, "A nightly run measures a part; the rest has its turn."),
    )  # fmt: skip
    return plan, Jobs(run=run, jobs=tuple(jobs), nics={n: site.nics[n] for n in nodes})


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


def covered_slots(plan: Plan, measurements: Iterable[Measurement]) -> set[tuple[str, str]]:
    """Return which (node, slot) a run has measured: with a value, from a job that completed."""
    planned = {item.test for item in plan.items}
    return {
        (node, f"{m.test}/{m.params.get('size_bytes')}/{m.rail}")
        for m in measurements
        if m.value is not None and m.problem is None and m.state == "COMPLETED" and m.rail
        and m.test in planned and "size_bytes" in m.params
        for node in m.nodes
    }  # fmt: skip
