"""What a night measures: the part of the site, the share of each idle node, and one plan of all shares."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from shakedown.benchmarks.base.contract import EveryNight, NodeAlone, NotAtNight, Pairs
from shakedown.benchmarks.planning import jobs_of_site, make_plan
from shakedown.benchmarks.registry import BENCHMARKS
from shakedown.intent.acceptance import AcceptanceBase
from shakedown.intent.site import Site
from shakedown.plan.jobs import Jobs, JobSpec, counter_tests
from shakedown.plan.scope import named_nodes, named_rails, part_of
from shakedown.plan.waivers import with_waivers
from shakedown.records.base import Stage
from shakedown.records.plan import Plan, PlanItem, PlanScope, Reference
from shakedown.records.reading import BadInput
from shakedown.records.results import Measurement
from shakedown.records.wording import natural_key
from shakedown.references.catalogue import Catalogue


@dataclass(frozen=True)
class Tonight:
    """What a person wants of one night, as written; what is empty is all of it."""

    nodes: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()


def site_tonight(site: Site, wanted: Tonight) -> Site:
    """Return the site with what is wanted alone; the rotation of all else stands still.

    Raises BadInput: a node or rail that the site does not have.
    """
    if wanted == Tonight():
        return site
    nodes = named_nodes(site, wanted.nodes) if wanted.nodes else tuple(site.nics)
    rails = named_rails(site, wanted.rails) if wanted.rails else [rail.name for rail in site.fabric.rails]
    small = part_of(site, nodes, rails, nodes)
    stages = wanted.stages or tuple(Stage)
    kept = {b.section.key for b in BENCHMARKS if b.stage in stages}
    others = {b.section.key: b.section.absent for b in BENCHMARKS if b.section.key not in kept}

    def only(asked: AcceptanceBase) -> AcceptanceBase:
        return asked.model_copy(update=others)

    own = {node: only(asked) for node, asked in small.own.items()}
    return small.model_copy(
        update={"waivers": site.waivers, "acceptance": only(small.acceptance), "own": own}
    )


# A *slot* is one test on one rail, or the tests of a node by itself. Pairs are measured in small groups, all
# pairs of a group, so that one job that is preempted spoils little and every node meets several partners,
# others each night.

# Last night that covered a node's slot; slots that were never covered are not in it.
Covered = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Share:
    """One slot measured on one group of nodes."""

    slot: str
    nodes: tuple[str, ...]


@dataclass
class _Night:
    idle: Sequence[str]
    costs: Mapping[str, float]
    covered: Covered
    left: dict[str, float]
    alone: Mapping[str, Collection[str]]
    chosen: dict[str, list[str]] = field(default_factory=dict)  # by slot

    def waits(self, node: str, slot: str) -> tuple[float, str]:
        """Sort key: never covered first, then the longest ago."""
        return (self.covered.get(node, {}).get(slot, float("-inf")), slot)

    def wanted(self, node: str) -> str | None:
        """What a node has waited for longest among what it can still afford tonight."""
        can = [
            slot
            for slot, cost in self.costs.items()
            if cost <= self.left[node]
            and node not in self.chosen.get(slot, ())
            and (slot not in self.alone or node in self.alone[slot])
        ]
        return min(can, key=lambda slot: self.waits(node, slot), default=None)

    def take(self, node: str, slot: str) -> None:
        self.chosen.setdefault(slot, []).append(node)
        self.left[node] -= self.costs[slot]


def choose(
    idle: Iterable[str],  # nodes that may be measured
    costs: Mapping[str, float],  # seconds that a node spends on each slot
    covered: Covered,  # when each node's slots were covered last, any increasing number
    *,
    budget_s: float,  # seconds that a node may be used tonight
    group: int,  # nodes measured with each other; at least three. Where there are fewer, fewer.
    seed: int,  # mixes the groups, so that partners change from night to night
    # Slots that a node is measured in by itself, with the nodes that have them.
    alone: Mapping[str, Collection[str]] | None = None,
) -> list[Share]:
    """Return tonight's shares, in a fixed order.

    Raises BadInput: a slot costs more than the budget, or the group is no group.
    """
    check(costs, budget_s=budget_s, group=group)
    nodes = sorted(set(idle), key=natural_key)
    if len(nodes) < 2:
        return []
    night = _Night(nodes, costs, covered, dict.fromkeys(nodes, budget_s), alone or {})
    while True:
        wishes: dict[str, list[str]] = {}
        for node in nodes:
            slot = night.wanted(node)
            if slot is not None:
                wishes.setdefault(slot, []).append(node)
        served = False
        for slot, members in sorted(wishes.items(), key=lambda wish: (-len(wish[1]), wish[0])):
            served = _serve(night, slot, members) or served
        if not served:
            break
    return [
        Share(slot, part)
        for slot in sorted(night.chosen)
        for part in groups(night.chosen[slot], group, f"{seed} {slot}")
        if len(part) > 1 or slot in night.alone
    ]


def _serve(night: _Night, slot: str, members: Sequence[str]) -> bool:
    """Give a slot to the nodes that want it; return whether any got it."""
    taking = [
        n for n in members if night.left[n] >= night.costs[slot] and n not in night.chosen.get(slot, ())
    ]
    # A node alone needs a partner: the one that has waited longest and can spare the time.
    if slot not in night.alone and len(taking) + len(night.chosen.get(slot, ())) < 2:
        partner = _partner(night, slot, taking[0]) if taking else None
        if partner is None:
            return False
        taking.append(partner)
    for node in taking:
        night.take(node, slot)
    return bool(taking)


def _partner(night: _Night, slot: str, node: str) -> str | None:
    can = [n for n in night.idle if n != node and night.left[n] >= night.costs[slot]]
    return min(can, key=lambda n: (*night.waits(n, slot), natural_key(n)), default=None)


def groups(nodes: Sequence[str], size: int, seed: str) -> list[tuple[str, ...]]:
    """Return the nodes in mixed groups of at most `size`, none of one if there are two nodes at all."""
    mixed = sorted(nodes, key=natural_key)
    random.Random(seed).shuffle(mixed)  # noqa: S311  (a schedule, not a secret)
    parts = max(1, -(-len(mixed) // size))
    cut = [len(mixed) * i // parts for i in range(parts + 1)]
    return [tuple(sorted(mixed[a:b], key=natural_key)) for a, b in pairwise(cut)]


def check(costs: Mapping[str, float], *, budget_s: float, group: int) -> None:
    """Raise BadInput if a slot can never be measured."""
    if group < 3:  # an odd number of nodes in pairs would leave one alone
        raise BadInput(f"groups of {group}", fix="use 3 or more: a node needs partners")
    for slot, cost in costs.items():
        if cost > budget_s:
            raise BadInput(
                f"{slot} takes {cost:.0f} s a node, the night's budget is {budget_s:.0f} s",
                fix="raise the budget, make the test shorter or the groups smaller",
            )


def nights_to_cover(costs: Mapping[str, float], *, budget_s: float) -> int:
    """Return in how many of its idle nights a node is measured in every slot, if partners wait alike."""
    left, nights = dict(costs), 0
    while left:
        nights, spare = nights + 1, budget_s
        for slot in sorted(left):
            if left[slot] <= spare:
                spare -= left.pop(slot)
    return nights


_SETTINGS_GROUP = 32  # settings are read back in jobs of so many nodes, so that one busy node holds up few


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


def never_at_night(site: Site) -> tuple[str, ...]:
    """Return what the site's acceptance asks for and no night measures, each with the reason."""
    return tuple(
        f"{one.section.key}: {one.night.why}"
        for one in BENCHMARKS
        if isinstance(one.night, NotAtNight)
        and one.section
        and getattr(site.acceptance, one.section.key, None)
    )


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
    Raises MissingReference: a cell has no reference.
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
        and not m.beside_others
        for node in m.nodes
    }
