"""How fast a node's local disk writes: one job with a task on each node."""

from pathlib import Path

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    Launch,
    NodeAlone,
    Parser,
    Tool,
    all_nodes,
    module,
)
from shakedown.benchmarks.disk.output import disk
from shakedown.benchmarks.disk.settings import Disk
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Better, Stage


def plan_disk(draft: PlanDraft, asked: Disk) -> None:
    """One write on every node."""
    nodes = [(node,) for node in draft.nodes]
    entry = draft.reference("disk", "bandwidth", {"nodes": 1})
    draft.add(entry, "disk", stage=Stage.NODE, nodes=nodes, params={})
    draft.jobs.append(
        JobSpec(
            name="node.disk",
            kind="disk",
            stage=Stage.NODE,
            tests=("disk",),
            nodes=draft.nodes,
            time_limit_s=60 + asked.timeout_s,
            settings=asked.model_dump(),
        )
    )


def _launch(_job: JobSpec, out: Path) -> Launch:
    return Launch(words=module("shakedown.benchmarks.disk.job", out))


BENCHMARK = Benchmark(
    name="disk",
    stage=Stage.NODE,
    section=Section(key="disk", kind=Disk | None),
    plan=plan_disk,
    night=NodeAlone(all_nodes),
    jobs={
        "disk": JobKind(
            catches="a disk that is slow", order=Disk.model_validate, launch=_launch, each_node=True
        )
    },
    tools={"disk": Tool(metrics=disk)},
    parsers=(Parser(tool="disk", module="shakedown.benchmarks.disk.output", function="parse_disk"),),
    words={"disk": "local disk's write bandwidth"},
    measures={("disk", "bandwidth"): ("GB/s", Better.HIGHER)},
)
