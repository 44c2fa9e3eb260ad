"""From a site's folder to plan and jobs, with all the benchmarks that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shakedown.benchmarks.registry import BENCHMARKS, Acceptance
from shakedown.benchmarks.uncovered import not_covered
from shakedown.intent import inventory
from shakedown.intent.site import Site
from shakedown.plan.counters import plan_counters
from shakedown.plan.draft import Draft
from shakedown.plan.expected import expectation
from shakedown.plan.jobs import Jobs
from shakedown.plan.limits import refuse_longer
from shakedown.plan.scope import Wanted, narrowed_plan, narrowed_site
from shakedown.plan.waivers import with_waivers
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan
from shakedown.references.catalogue import Catalogue
from shakedown.references.missing import all_missing


def read_site(folder: Path) -> Site:
    """Return the site that an inventory describes. Raises BadInput."""
    return inventory.read_site(folder, Acceptance)


def site_of(document: dict[str, Any], file: Path) -> Site:
    """Return the site in a document like that of `ansible-inventory --list`. Raises BadInput."""
    return inventory.site_of(document, file, Acceptance)


def make_plan(
    site: Site, catalogue: Catalogue, *, run: str, created: str, wanted: Wanted | None = None
) -> tuple[Plan, Jobs]:
    """Return the plan of a run and the jobs that carry it out, both in the order of the ladder.

    `wanted`: the part of the site that is to be measured; the plan says so, and so does its verdict.

    Raises:
        MissingReference: a cell has no reference.
        BadInput: the site asks for nothing, for something that it cannot do, for nothing of that part, or for
            a job that its partition would refuse.
    """
    if wanted is not None and wanted.anything:
        part, scope = narrowed_site(site, wanted)
        # What is left out may be too long for the partition.
        part = part.model_copy(update={"job_time": None})
        plan, jobs = narrowed_plan(*_made(part, catalogue, run, created, scope.nodes), scope)
        refuse_longer(jobs.jobs, site.job_time)
        plan = plan.model_copy(update={"expectation": expectation(jobs)})
        return with_waivers(plan, site.waivers, whole=False), jobs
    plan, jobs = _made(site, catalogue, run, created, tuple(site.nics))
    return with_waivers(plan, site.waivers, whole=True), jobs


def _made(
    site: Site, catalogue: Catalogue, run: str, created: str, judged: tuple[str, ...]
) -> tuple[Plan, Jobs]:
    """Return plan and jobs of a whole site, before waivers; `judged`: without nodes that are only used."""
    draft = Draft(site, catalogue)
    for benchmark in BENCHMARKS:
        key = benchmark.section.key
        if benchmark.section.of_each_node:
            by_node = {node: getattr(site.of(node), key) for node in draft.nodes}
            asked: Any = {node: options for node, options in by_node.items() if options}
        else:
            asked = getattr(site.acceptance, key)
        if asked:
            benchmark.plan(draft, asked)
    if draft.missing:
        raise all_missing(list(draft.missing.values()))
    if site.acceptance.counter_tests:
        plan_counters(draft)
    if not draft.items:
        raise BadInput(
            "acceptance asks for nothing", fix="say in group_vars/all/acceptance.yml what to measure"
        )
    refuse_longer(draft.jobs, site.job_time)
    jobs = Jobs(
        run=run,
        jobs=tuple(draft.jobs),
        nics=site.nics,
        waits=site.acceptance.waits,
        max_jobs=site.acceptance.max_jobs,
    )
    plan = Plan(
        run=run,
        system=site.fabric.system,
        profile=site.fabric.profile,
        created=created,
        nodes=draft.nodes,
        rails=draft.rails,
        items=tuple(draft.items),
        references=draft.references,
        caveats=(*site.acceptance.caveats, *draft.caveats),
        expectation=expectation(jobs),
        not_covered=not_covered(draft, judged),
    )
    return plan, jobs
