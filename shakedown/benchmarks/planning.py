"""From a site's folder to plan and jobs with all the benchmarks, and what the plan leaves out and why."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shakedown.benchmarks.config.ordered import plan_ordered
from shakedown.benchmarks.perftest.settings import ring
from shakedown.benchmarks.registry import BENCHMARKS, JOB_KINDS, UNPUBLISHED, Acceptance
from shakedown.benchmarks.switches.benchmark import plan_switches
from shakedown.intent import inventory
from shakedown.intent.links import links, untouched
from shakedown.intent.places import span
from shakedown.intent.site import AbsentNode, Fabric, Site, SwitchHost
from shakedown.intent.software import Sources
from shakedown.nos.readings import port_name
from shakedown.nos.registry import known
from shakedown.physics.host_links import by_name
from shakedown.plan.counters import nic_cover, plan_counters, unknown_nics
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.plan.jobs import Jobs, JobSpec, SwitchLink, twice_named, with_prolog
from shakedown.plan.odds import power_words
from shakedown.plan.scope import WantedScope, narrowed_plan, narrowed_site
from shakedown.plan.time_limits import expectation, refuse_longer
from shakedown.plan.waivers import with_waivers
from shakedown.records.base import Stage, params_text
from shakedown.records.plan import NotCovered, Plan, PlanItem, PlanScope, ReferenceKind, Remeasure
from shakedown.records.reading import BadInput
from shakedown.records.wording import count, natural_key
from shakedown.references.catalogue import Catalogue, all_missing


def not_covered(
    draft: PlanDraft,  # the plan as it is, whole
    judged: Collection[str],  # nodes that are judged; of others, no switch port is looked for
) -> tuple[NotCovered, ...]:
    """Return what the plan leaves out of the site, most cells first."""
    found = [
        *draft.not_covered,
        *_not_run(draft),
        *_switch_ports(draft, judged),
        *_counters(draft),
        *unknown_nics(draft),
        *_traffic_class(draft),
        *_uplinks(draft.site),
        *_not_done(draft.site),
        *_gpus(draft.site),
        *_not_asked(draft.site),
    ]
    return tuple(sorted(found, key=lambda one: -(one.cells or 0)))


def _not_run(draft: PlanDraft) -> Iterator[NotCovered]:
    """Blocks that the plan holds and that nothing measures, by their reason."""
    blocks: dict[str, tuple[dict[str, None], int]] = {}
    for item in draft.items:
        if item.not_run is not None:
            what, cells = blocks.setdefault(item.not_run, ({}, 0))
            what[f"{item.test} {item.metric}"] = None
            blocks[item.not_run] = what, cells + len(item)
    for why, (what, cells) in blocks.items():
        yield NotCovered(what=_few(what), why=why, cells=cells)


def _few(names: Collection[str]) -> str:
    first = list(names)[:4]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def _cells_of_switches(draft: PlanDraft, site: Site) -> int:
    """Return how many cells switches and counters would have, were this the site."""
    other = draft.blank(site=site, jobs=draft.jobs)
    if config := getattr(site.acceptance, "config", None):
        plan_switches(other, config)
    if site.acceptance.counter_tests:
        plan_counters(other)
    return sum(map(len, other.items))


def _switch_ports(draft: PlanDraft, judged: Collection[str]) -> Iterator[NotCovered]:
    """NICs of which no switch port is known: what is asked of ports is left out for them."""
    site = draft.site
    cabled = {(host, rail) for switch in site.switches for _port, host, _netdev, rail in switch.ports}
    nodes = sorted(judged, key=natural_key)
    open_ends = [(node, nic) for node in nodes for nic in site.nics[node] if (node, nic.rail) not in cabled]
    if not open_ends:
        return
    # Where a NIC's leaf is not known, any will do: only the ports are counted.
    switches = {switch.name: switch for switch in site.switches}
    anywhere = next(iter(switches.values()), SwitchHost(name="switch", nos="unknown", ports=()))
    for number, (node, nic) in enumerate(open_ends):
        leaf = switches.get(nic.leaf or "", switches.get(anywhere.name, anywhere))
        port = (nic.leaf_port or f"port{number}", node, nic.netdev, nic.rail)
        switches[leaf.name] = leaf.model_copy(update={"ports": (*leaf.ports, port)})
    whole = site.model_copy(update={"switches": tuple(switches.values())})
    cells = _cells_of_switches(draft, whole) - _cells_of_switches(draft, site)
    empty = [switch.name for switch in site.switches if not switch.ports]
    ends = f"the switch ports of {len(open_ends):,} NICs: settings, both ends of the cable, loss"
    if not site.switches:
        why, key = "no switch is in the inventory's group switches, so none can be asked", "switches"
    else:
        of = f", which is empty on {_few(empty)}" if empty else ""
        why, key = f"no switch lists them in leaf_ports{of}", "leaf_ports"
    yield NotCovered(what=ends, why=why, cells=cells or None, key=key)


def _counters(draft: PlanDraft) -> Iterator[NotCovered]:
    site = draft.site
    if not isinstance(site.fabric, Fabric):
        return
    what = "packets lost, repeated or paused, by the counters of NICs and switch ports"
    if not site.acceptance.counter_tests:
        asked = site.acceptance.model_copy(update={"counter_tests": True})
        cells = _cells_of_switches(draft, site.model_copy(update={"acceptance": asked}))
        cells -= _cells_of_switches(draft, site)
        why = "acceptance.counter_tests is false: no counter is judged"
        yield NotCovered(what=what, why=why, cells=cells or None, key="acceptance.counter_tests")
    elif not any(item.metric.startswith("counter.") for item in draft.items):
        why = "no profile of the site has a reference for a counter"
        yield NotCovered(what=what, why=why, key="acceptance.profiles")


def _traffic_class(draft: PlanDraft) -> Iterator[NotCovered]:
    config = getattr(draft.site.acceptance, "config", None)
    if config and config.traffic_class is None:
        yield NotCovered(
            what="whether RoCE keeps its traffic class to the other end",
            why="acceptance.config.traffic_class is empty",
            cells=2 * len(ring(draft.nodes)) * len(draft.rails) or None,
            key="acceptance.config.traffic_class",
        )


def _uplinks(site: Site) -> Iterator[NotCovered]:
    """Links between switches that are not described, and switches that must not be touched."""
    if not isinstance(site.fabric, Fabric):
        return
    intent, switches = site.fabric.model_dump(), site.fabric.switches
    if switches.spines and not switches.links:
        count = len(switches.leaves) * len(switches.spines) * switches.uplinks_per_leaf_per_spine
        ends = "uplinks between leaves and spines"
        yield NotCovered(
            what=f"{count:,} {ends}" if count else ends,
            why="the intent does not name them, so only ports with hosts are configured and read; "
            "what crosses a spine shows in the tests between nodes alone",
            key="fabric.switches.links",
        )
    kept_off = sorted(untouched(intent), key=natural_key)
    found = links(intent)
    for name in kept_off:
        many = sum(name in (link.leaf, link.spine) for link in found)
        ends = f" and its end of {many:,} links" if many else ""
        yield NotCovered(
            what=f"{name}{ends}: RoCE class, PFC, ECN, MTU, neighbours, loss",
            why="access: none, so it is neither configured nor read, and nothing about it is proven",
            key="fabric.switches.access",
        )
    leaves = {nic.leaf for own in site.nics.values() for nic in own} - {None}
    if len(leaves) > 1 and switches.spines and switches.routing is None:
        yield NotCovered(
            what="how leaves choose among their uplinks",
            why="the intent does not say, so pairs over spines are held to what balanced uplinks carry",
            key="fabric.switches.routing",
        )


def _not_done(site: Site) -> Iterator[NotCovered]:
    """What the role neither sets nor reads on a switch system, though the intent has it."""
    if not isinstance(site.fabric, Fabric) or site.fabric.roce.pfc.watchdog is None:
        return  # all of it is about the watchdog
    for nos in sorted({switch.nos for switch in site.switches}):
        on = sorted((switch.name for switch in site.switches if switch.nos == nos), key=natural_key)
        for words in known(nos).not_done:
            what, _, why = words.partition(": ")
            yield NotCovered(what=f"{what} of {span(on)}", why=f"{why} ({nos}), so it is not read back")


def _gpus(site: Site) -> Iterator[NotCovered]:
    without = [node for node in site.nics if not site.gpus.get(node)]
    if without and len(without) < len(site.nics):
        yield NotCovered(
            what=f"GPUs of {span(without)}", why="the inventory lists no gpus for these nodes", key="gpus"
        )


def _not_asked(site: Site) -> Iterator[NotCovered]:
    """Whole benchmarks that the site does not ask for, and the servers' own sensors."""
    asked = {section.key for section, _ in site.acceptance.asked()}
    asked |= {section.key for own in site.own.values() for section, _ in own.asked()}
    fabric = isinstance(site.fabric, Fabric)
    rest = [s.key for s in site.acceptance.sections if s.key not in asked and (fabric or not s.needs_fabric)]
    if rest:
        yield NotCovered(what=", ".join(dict.fromkeys(rest)), why="acceptance.yml does not ask for them")
    if not fabric and len(site.nics) > 1 and not site.tcp_fabrics:
        yield NotCovered(
            what=f"the network between {len(site.nics)} nodes, and all that they do together",
            why="the intent describes none (no_fabric)",
            key="fabric.no_fabric",
        )
    rails = sorted({nic.fabric for own in site.tcp_nics.values() for nic in own}, key=natural_key)
    if len(rails) > 1 and not asked & {"nccl", "torch"}:
        yield NotCovered(
            what=f"the rate of each rail: {', '.join(rails)}",
            why="MPI over TCP takes the rails that its library chooses; of the others is only asked whether "
            "they carry packets and connections",
            key="acceptance.nccl",
        )
    nccl = getattr(site.acceptance, "nccl", None)
    if nccl is None or nccl.server_power is None:
        yield NotCovered(
            what="power, fans, temperatures and event log of the servers (BMC)",
            why="no BMC is read: acceptance.nccl.server_power is left out",
            key="acceptance.nccl.server_power",
        )


def read_site(folder: Path) -> Site:
    """Return the site that an inventory describes. Raises BadInput."""
    return inventory.read_site(folder, Acceptance)


def site_of(document: dict[str, Any], file: Path) -> Site:
    """Return the site in a document like that of `ansible-inventory --list`. Raises BadInput."""
    return inventory.site_of(document, file, Acceptance)


def make_plan(
    site: Site,
    catalogue: Catalogue,
    *,
    run: str,
    created: str,
    wanted: WantedScope | None = None,
    learn: bool = False,
    inventory: Path | None = None,
) -> tuple[Plan, Jobs]:
    """Return the plan of a run and the jobs that carry it out, both in the order of the ladder.

    `wanted`: the part of the site that is to be measured; the plan says so, and so does its verdict.
    `learn`: cells without a reference are measured to make one of; the run then ends as BASELINE, never PASS.
    `inventory`: the folder of the site, so that a refusal of one of its waivers names file and line.

    Raises:
        MissingReference: a cell has no reference.
        BadInput: there is nothing to learn, the site asks for nothing, for something that it cannot
            do, for nothing of that part, or for a job that its partition would refuse.
    """
    wanted = wanted or WantedScope()
    part, scope = narrowed_site(site, wanted)
    judged = tuple(part.nics) if scope is None else scope.nodes
    draft = PlanDraft(part, catalogue, learn=learn, unpublished=UNPUBLISHED, mesh=wanted.mesh)
    try:
        plan, jobs = _made(draft, run, created, judged, wanted.stages)
    except BadInput:
        if part.nics == site.nics:
            raise
        # What is wrong with the whole site, too, is no matter of the part.
        _made(draft.blank(site=site), run, created, tuple(site.nics), wanted.stages)
        draft = draft.blank(too_small=True)
        plan, jobs = _made(draft, run, created, judged, wanted.stages)
    if scope is not None and (narrower := _narrower(scope, site, plan)):
        plan, jobs = narrowed_plan(plan, jobs, narrower)
        left_out = (*_lacking(draft, site, plan, scope), *plan.not_covered)
        plan = plan.model_copy(update={"expectation": expectation(jobs), "not_covered": left_out})
    refuse_longer(jobs.jobs, site.job_time)
    if not wanted.nodes:
        plan = with_absent(plan, site.absent_nodes, wanted.stages)
    return with_waivers(plan, site.waivers, whole=plan.scope is None, inventory=inventory), jobs


_FEW = 8  # nodes of which what is measured between nodes has each of its metrics


def _lacking(part: PlanDraft, site: Site, plan: Plan, scope: PlanScope) -> Iterator[NotCovered]:
    """What the whole site measures on these nodes and rails and this part does not, if nothing told it yet.

    A few more nodes with all rails stand for the whole, which takes seconds to plan: what asks for more nodes
    than these tells itself that it is left out. Counters are of the tests beside which they are read.
    """
    if len(scope.nodes) >= min(_FEW, scope.of_nodes) and len(scope.rails) == scope.of_rails:
        return
    few = scope.nodes[:_FEW]
    larger, _ = narrowed_site(site, WantedScope(nodes=few, partners=_FEW - len(few)))
    whole = part.blank(site=larger, too_small=True)
    try:
        _fill(whole, scope.stages)
    except BadInput:
        return  # what is wrong with the whole is said when that is planned
    judged, rails, stages = {*few}, {None, *scope.rails}, scope.stages or tuple(Stage)
    cut = [one.what for one in plan.not_covered]
    told = {test for pieces in (whole.pieces, part.pieces) for what in cut for test in pieces.get(what, ())}

    def cell(item: PlanItem) -> tuple[str, str]:
        return f"{item.test} {item.metric}", params_text(item.params)

    kept, names, found = {*map(cell, plan.items)}, {cell(item)[0] for item in plan.items}, dict[str, None]()
    for item in whole.items:
        name, params = cell(item)
        new = (name, params) not in kept and not item.metric.startswith("counter.") and item.test not in told
        if new and item.stage in stages and not rails.isdisjoint(item.rails):
            touched = not all(judged.isdisjoint(group) for group in item.nodes)
            found |= {f"{name} {params}" if name in names else name: None} if touched else {}
    if found:
        size = f"{count(len(scope.nodes) + len(scope.partners), 'node')}, {count(len(scope.rails), 'rail')}"
        yield NotCovered(
            what=", ".join(found)[:1000], why=f"the whole site has it, a part of {size} does not"
        )


ABSENT = none_allowed(
    "inventory.absent", "the site's absent_nodes: what was bought is accepted with every node"
)


def with_absent(plan: Plan, absent: Mapping[str, AbsentNode], stages: Collection[Stage] = ()) -> Plan:
    """Return the plan with what it lacks by nodes that did not answer when the site was described.

    Each that nobody took out is a cell of the config stage that is NOT-RUN, where that stage is wanted.
    """
    cells = {
        node: PlanItem(
            stage=Stage.CONFIG,
            test="node",
            metric="absent",
            unit=ABSENT.unit,
            better=ABSENT.better,
            nodes=((node,),),
            reference=ABSENT.id,
            not_run=f"{node} did not answer when the site was described: {one.why}",
        )
        for node, one in absent.items()
        if one.taken_out_by is None and (not stages or Stage.CONFIG in stages)
    }
    told = [
        NotCovered(
            what=f"node {node}",
            why=f"taken out by {one.taken_out_by}: {one.why}"
            if one.taken_out_by
            else f"did not answer: {one.why}",
            cells=1 if node in cells else None,
            key="absent_nodes",
        )
        for node, one in absent.items()
    ]
    references = {ABSENT.id: ABSENT} if cells else {}
    return plan.model_copy(
        update={
            "items": (*plan.items, *cells.values()),
            "references": {**plan.references, **references},
            "not_covered": (*told, *plan.not_covered),
        }
    )


def _narrower(scope: PlanScope, site: Site, plan: Plan) -> PlanScope | None:
    """Return a scope without stages where it names all of the plan's; None if it then is the whole site."""
    if scope.stages and {item.stage for item in plan.items}.issubset(scope.stages):
        scope = scope.model_copy(update={"stages": ()})
    part = scope.mesh or len(scope.nodes) < len(site.nics) or len(scope.rails) < scope.of_rails
    return scope if scope.stages or part else None


def _fill(draft: PlanDraft, stages: tuple[Stage, ...]) -> None:
    """Plan all that a site asks for. `stages`: those that will be kept, where not all of them are."""
    site = draft.site
    plan_ordered(draft)  # also where acceptance has no config stage
    for benchmark in BENCHMARKS:
        key = benchmark.section.key
        if benchmark.section.of_each_node:
            by_node = {node: getattr(site.of(node), key) for node in draft.nodes}
            asked: Any = {node: options for node, options in by_node.items() if options}
        else:
            asked = getattr(site.acceptance, key)
        if asked:
            missing = dict(draft.missing)
            draft.stage = benchmark.stage
            with draft.piece(benchmark.name, key):
                benchmark.plan(draft, asked)
            if stages and benchmark.stage not in stages:
                draft.do_without(missing)
    if draft.missing:
        floors = draft.catalogue.derived is not None
        raise all_missing(list(draft.missing.values()), learn=draft.learn, floors=floors)


def _made(
    draft: PlanDraft, run: str, created: str, judged: tuple[str, ...], stages: tuple[Stage, ...]
) -> tuple[Plan, Jobs]:
    """Return plan and jobs of a whole site, before waivers; `judged`: without nodes that are only used."""
    site = draft.site
    _fill(draft, stages)
    if draft.learn:
        draft.caveats.append(_learnt(draft))
    if site.shared_gpus:
        draft.caveats.append(_shared_gpus(site))
    if site.acceptance.counter_tests:
        plan_counters(draft)
    if draft.too_small and not draft.items:
        raise BadInput(
            f"nothing is left of that part: {draft.not_covered[0].why}", fix="widen --nodes or --rails"
        )
    if not draft.items:
        raise BadInput(
            "acceptance asks for nothing", fix="say in group_vars/all/acceptance.yml what to measure"
        )
    if name := twice_named(draft.jobs):
        raise BadInput(
            f"two jobs would be called {name}, and would write into one folder",
            fix="ask for it once, or let model, layout or number of GPUs differ",
        )
    specs = with_prolog(draft.jobs, site.slurm.prolog_s)
    specs = [_with_software(job, site.software) for job in specs]
    jobs = jobs_of_site(run, specs, site, site.nics)
    plan = Plan(
        run=run,
        system=site.fabric.system,
        profile=site.fabric.profile,
        created=created,
        nodes=draft.nodes,
        rails=draft.rails,
        items=tuple(draft.items),
        references=draft.references,
        remeasure=Remeasure(tests=tuple(sorted(set(draft.remeasured)))) if draft.remeasured else None,
        caveats=(*site.acceptance.caveats, *draft.caveats),
        expectation=expectation(jobs),
        nic_counters=tuple(nic_cover(draft)),
        not_covered=not_covered(draft, judged),
    )
    return plan.model_copy(update={"power": power_words(plan)}), jobs


def _shared_gpus(site: Site) -> str:
    """Say what hosts that have one GPU together cannot show."""
    return (
        f"{', '.join(site.shared_gpus)} share ONE GPU, as the inventory says; they are not as many GPUs. "
        "What is measured between them tells of their network, and nothing of the speed of GPUs."
    )


def _learnt(draft: PlanDraft) -> str:
    """Say what is measured and not judged. Raises BadInput if nothing is: the run could pass as it is."""
    learnt = [item for item in draft.items if draft.references[item.reference].kind is ReferenceKind.LEARN]
    if not learnt:
        raise BadInput("there is nothing to learn: every cell has a reference", fix="leave --learn out")
    cells = sum(len(item) for item in learnt)
    tests = ", ".join(dict.fromkeys(f"{item.test} {item.metric}" for item in learnt))
    return f"{count(cells, 'cell')} without a reference are measured to learn from and not judged: {tests}"


def _with_software(job: JobSpec, sources: Sources) -> JobSpec:
    """Return a job that names where its programs come from."""
    used = {name: source for name, source in sources.items() if name in JOB_KINDS[job.kind].uses}
    return job.model_copy(update={"software": used}) if used else job


def _links(site: Site) -> tuple[SwitchLink, ...]:
    if not isinstance(site.fabric, Fabric):
        return ()
    plane = {spine: name for name, spines in site.fabric.switches.planes.items() for spine in spines}
    return tuple(
        SwitchLink(
            leaf=link.leaf,
            leaf_port=port_name(link.leaf_port),
            spine=link.spine,
            spine_port=port_name(link.spine_port),
            plane=plane.get(link.spine),
        )
        for link in links(site.fabric.model_dump())
    )


def _gpu_model(site: Site, node: str) -> str:
    """Return the model of GPU that a node's references are for; empty where it is none that is known here."""
    model = site.of(node).scope.get("gpu")
    return model if isinstance(model, str) and by_name(model) else ""


def jobs_of_site(run: str, jobs: Iterable[JobSpec], site: Site, nodes: Collection[str]) -> Jobs:
    """Return the jobs as the site has them submitted; `nodes` are those that the plan uses."""
    return Jobs(
        run=run,
        jobs=tuple(jobs),
        nics={node: site.nics[node] for node in nodes},
        links=_links(site),
        waits=site.acceptance.waits,
        submit=site.slurm.job_options(),
        prolog_s=site.slurm.prolog_s,
        max_jobs=site.acceptance.max_jobs,
        gpus={node: model for node in nodes if site.gpus.get(node) and (model := _gpu_model(site, node))},
        shared_gpus=tuple(node for node in nodes if node in site.shared_gpus),
    )
