"""How fast every GPU works: matrix products and memory copies, one job with a task on each node."""

from shakedown.benchmarks.base import contract
from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    NodeAlone,
    Parser,
    Tool,
    by_module,
    nodes_with_gpus,
)
from shakedown.benchmarks.gpu.state import gpu_nodes
from shakedown.benchmarks.gpu_rate.output import GpuRate, GpuRateSettings, called, gpu_rate
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Params, Stage
from shakedown.records.reading import ExitStatus

STRAGGLER = none_allowed(
    "gpu_rate.straggler", "acceptance.gpu_rate.behind: no GPU may be behind the others of its node by more"
)
OWN = none_allowed(
    "gpu_rate.own",
    "acceptance.gpu_rate.own: no GPU may lose 0.5 % of what it reached itself in accepted runs",
)


def plan_gpu_rate(draft: PlanDraft, asked: GpuRate) -> None:
    """Median and p1 of every GPU, and where a node has two or more, which one is behind.

    Raises BadInput: no node has GPUs, or the site does not say where PyTorch is.
    """
    contract.required(draft.site.software, "pytorch", by="acceptance.gpu_rate needs PyTorch")
    nodes = gpu_nodes(draft)
    gpus = {node: draft.site.gpus[node] for node in nodes}
    spread = {}
    for work in asked.work:
        for metric in ("rate", "rate_p1"):
            entry = draft.reference(f"gpu_rate_{work}", metric, {"nodes": 1, "dtype": work})
            if metric == "rate" and entry.measured_on and entry.measured_on.spread:
                spread[work] = (entry.measured_on.spread, entry.measured_on.cards)
            for gpu in range(max(gpus.values())):
                having = [(node,) for node in nodes if gpus[node] > gpu]
                draft.add(entry, f"gpu_rate_{work}", nodes=having, params={"gpu": gpu})
                if asked.own and metric == "rate":
                    own: Params = {"check": "own", "gpu": gpu}
                    draft.forbid(OWN, f"gpu_rate_{work}", nodes=having, params=own)
        for gpu in range(max(gpus.values())):
            many = [(node,) for node in nodes if gpus[node] > gpu and gpus[node] > 1]
            params: Params = {"check": "straggler", "gpu": gpu}
            if many:
                draft.forbid(STRAGGLER, f"gpu_rate_{work}", nodes=many, params=params)
    each_s = asked.seconds + asked.warmup_s
    draft.job(
        "node.gpu_rate",
        kind="gpu_rate",
        nodes=nodes,
        tests=tuple(f"gpu_rate_{work}" for work in asked.work),
        time_limit_s=60 + asked.timeout_s,
        expected_s=25 + len(asked.work) * (each_s + 6),
        expected_from="20 s to start PyTorch, and 6 s between two kinds of work: 94 s for three kinds of "
        "20 s on one H200; eight GPUs at once were not measured",
        settings=GpuRateSettings(gpus=gpus, spread=spread, **asked.model_dump()).model_dump(),
    )


BENCHMARK = Benchmark(
    name="gpu_rate",
    stage=Stage.NODE,
    section=Section(key="gpu_rate", kind=GpuRate | None),
    plan=plan_gpu_rate,
    night=NodeAlone(nodes_with_gpus),
    jobs={
        "gpu_rate": JobKind(
            catches="a GPU that is a little slower than the others of its node, by heat, by a lower power "
            "limit or clock, by another process or by slow memory; seconds in which a GPU stands still",
            order=GpuRateSettings.model_validate,
            launch=by_module(
                "shakedown.benchmarks.gpu_rate.job",
                lambda job: max(GpuRateSettings.model_validate(job.settings).gpus.values()),
            ),
            uses=("pytorch",),
            also_good=ExitStatus.INCOMPLETE.value,
            each_node=True,
            wait_s=120,  # nodes end their last window at different times
        )
    },
    tools={"gpu-rate": Tool(metrics=gpu_rate, told_by_file="test", gpus=called)},
    parsers=(
        Parser(tool="gpu-rate", module="shakedown.benchmarks.gpu_rate.output", function="parse_gpu_rate"),
    ),
    words={
        "gpu_rate_bf16": "speed of bf16 products",
        "gpu_rate_copy": "speed of copies within a GPU",
        "gpu_rate_fp8": "speed of fp8 products",
    },
)
