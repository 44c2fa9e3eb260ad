"""From site and references to plan and jobs, stage by stage."""

from __future__ import annotations

from shakedown.benchmarks.config.plan import plan_inventory, plan_settings
from shakedown.benchmarks.gpu.plan import plan_gpu_node
from shakedown.benchmarks.interconnect.plan import plan_inference, plan_interconnect
from shakedown.benchmarks.lora.plan import plan_lora
from shakedown.benchmarks.mpi.plan import plan_mpi
from shakedown.benchmarks.nccl.plan import plan_nccl, plan_torch
from shakedown.benchmarks.perftest.plan import plan_perftest
from shakedown.benchmarks.switches.plan import plan_switches
from shakedown.intent.site import Site
from shakedown.plan.counters import plan_counters
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import Jobs
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan
from shakedown.references.catalogue import Catalogue


def make_plan(site: Site, catalogue: Catalogue, *, run: str, created: str) -> tuple[Plan, Jobs]:
    """Return the plan of a run and the jobs that carry it out.

    Raises:
        MissingReference: a cell has no reference.
    """
    draft = Draft(site, catalogue)
    if site.acceptance.config:
        plan_settings(draft, site.acceptance.config)
        plan_inventory(draft)
        plan_switches(draft, site.acceptance.config)
    plan_interconnect(draft)
    for test in site.acceptance.perftest:
        plan_perftest(draft, test)
    if site.acceptance.gpu_node:
        plan_gpu_node(draft, site.acceptance.gpu_node)
    plan_mpi(draft)
    if site.acceptance.nccl:
        plan_nccl(draft, site.acceptance.nccl)
    if site.acceptance.torch:
        plan_torch(draft, site.acceptance.torch)
    plan_inference(draft)
    plan_lora(draft)
    if site.acceptance.counter_tests:
        plan_counters(draft)
    if not draft.items:
        raise BadInput(
            "acceptance asks for nothing", fix="say in group_vars/all/acceptance.yml what to measure"
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
        caveats=site.acceptance.caveats,
    )
    return plan, Jobs(run=run, jobs=tuple(draft.jobs), nics=site.nics)
