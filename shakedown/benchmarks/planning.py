"""From a site's folder to plan and jobs, with all the benchmarks that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shakedown.benchmarks.registry import BENCHMARKS, JOB_KINDS, UNPUBLISHED, Acceptance
from shakedown.benchmarks.uncovered import not_covered
from shakedown.intent import inventory
from shakedown.intent.site import Site
from shakedown.intent.software import Sources
from shakedown.plan.counters import plan_counters
from shakedown.plan.draft import Draft
from shakedown.plan.expected import expectation
from shakedown.plan.jobs import Jobs, JobSpec, jobs_of_site, with_prolog
from shakedown.plan.limits import refuse_longer
from shakedown.plan.nic_cover import nic_cover
from shakedown.plan.power import power_words
from shakedown.plan.scope import Wanted, narrowed_plan, narrowed_site
from shakedown.plan.waivers import with_waivers
from shakedown.records.base import Stage
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan, PlanScope, ReferenceKind, Remeasure
from shakedown.records.wording import count
from shakedown.references.catalogue import Catalogue
from shakedown.references.missing import all_missing


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
    wanted: Wanted | None = None,
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
    wanted = wanted or Wanted()
    part, scope = narrowed_site(site, wanted)
    # What is left out may be too long for the partition.
    part = part.model_copy(update={"job_time": None})
    judged = tuple(part.nics) if scope is None else scope.nodes
    draft = Draft(part, catalogue, learn=learn, unpublished=UNPUBLISHED, mesh=wanted.mesh)
    plan, jobs = _made(draft, run, created, judged, wanted.stages)
    if scope is not None and (narrower := _narrower(scope, site, plan)):
        plan, jobs = narrowed_plan(plan, jobs, narrower)
        plan = plan.model_copy(update={"expectation": expectation(jobs)})
    refuse_longer(jobs.jobs, site.job_time)
    return with_waivers(plan, site.waivers, whole=plan.scope is None, inventory=inventory), jobs


def _narrower(scope: PlanScope, site: Site, plan: Plan) -> PlanScope | None:
    """Return a scope without stages where it names all of the plan's; None if it then is the whole site."""
    if scope.stages and {item.stage for item in plan.items}.issubset(scope.stages):
        scope = scope.model_copy(update={"stages": ()})
    part = scope.mesh or len(scope.nodes) < len(site.nics) or len(scope.rails) < scope.of_rails
    return scope if scope.stages or part else None


def _made(
    draft: Draft, run: str, created: str, judged: tuple[str, ...], stages: tuple[Stage, ...]
) -> tuple[Plan, Jobs]:
    """Return plan and jobs of a whole site, before waivers.

    `judged`: without nodes that are only used; `stages`: those that will be kept, where not all of them are.
    """
    site, learn = draft.site, draft.learn
    for benchmark in BENCHMARKS:
        key = benchmark.section.key
        if benchmark.section.of_each_node:
            by_node = {node: getattr(site.of(node), key) for node in draft.nodes}
            asked: Any = {node: options for node, options in by_node.items() if options}
        else:
            asked = getattr(site.acceptance, key)
        if asked:
            missing = dict(draft.missing)
            benchmark.plan(draft, asked)
            if stages and benchmark.stage not in stages:
                draft.do_without(missing)
    if draft.missing:
        raise all_missing(list(draft.missing.values()), learn=learn)
    if learn:
        draft.caveats.append(_learnt(draft))
    if site.shared_gpus:
        draft.caveats.append(_shared_gpus(site))
    if site.acceptance.counter_tests:
        plan_counters(draft)
    if not draft.items:
        raise BadInput(
            "acceptance asks for nothing", fix="say in group_vars/all/acceptance.yml what to measure"
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


def _learnt(draft: Draft) -> str:
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
