"""Whether every GPU computes and remembers right, one job with a task on each node."""

from typing import get_args

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
from shakedown.benchmarks.gpu_integrity.output import (
    GpuIntegrity,
    GpuIntegritySettings,
    Work,
    called,
    checks,
    gpu_integrity,
)
from shakedown.intent.acceptance import Section
from shakedown.physics.host_links import by_name
from shakedown.physics.training import has_fp8
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.records.base import Params, Stage
from shakedown.records.reading import BadInput, ExitStatus

WRONG = none_allowed(
    "gpu_integrity.wrong", "the same work gives the same bits, and memory holds what was written"
)
_START_S, _BETWEEN_S = 20, 4  # to start PyTorch; between two kinds of work (job.py)


def plan_gpu_integrity(draft: PlanDraft, asked: GpuIntegrity) -> None:
    """Every kind of work on every GPU; with two cards or more, each held to its like.

    Raises BadInput: no node has GPUs, the site does not say where PyTorch is, or fp8 is asked of an A100.
    """
    contract.required(draft.site.software, "pytorch", by="acceptance.gpu_integrity needs PyTorch")
    nodes = gpu_nodes(draft)
    gpus = {node: draft.site.gpus[node] for node in nodes}
    model = str(draft.site.acceptance.scope.get("gpu", ""))
    without = not has_fp8(model)
    if without and "fp8" in asked.work:
        raise BadInput(
            f"acceptance.gpu_integrity.work asks for fp8, and {model} has none", fix="leave fp8 out"
        )
    works = asked.work or tuple(w for w in get_args(Work) if w != "fp8" or (by_name(model) and not without))
    for work in works:
        for check in checks(work, sum(gpus.values())):
            for gpu in range(max(gpus.values())):
                params: Params = {"check": check, "gpu": gpu}
                having = [(node,) for node in nodes if gpus[node] > gpu]
                draft.forbid(WRONG, f"gpu_integrity_{work}", nodes=having, params=params)
    settings = GpuIntegritySettings(gpus=gpus, **{**asked.model_dump(), "work": works})
    draft.job(
        "node.gpu_integrity",
        kind="gpu_integrity",
        nodes=nodes,
        tests=tuple(f"gpu_integrity_{work}" for work in works),
        time_limit_s=180 + len(works) * 2 * asked.seconds,
        expected_s=_START_S + len(works) * (asked.seconds + _BETWEEN_S),
        settings=settings.model_dump(),
    )


BENCHMARK = Benchmark(
    name="gpu_integrity",
    stage=Stage.NODE,
    section=Section(key="gpu_integrity", kind=GpuIntegrity | None),
    plan=plan_gpu_integrity,
    night=NodeAlone(nodes_with_gpus),
    jobs={
        "gpu_integrity": JobKind(
            catches="a GPU that computes wrong without an error: a product that differs from the one before "
            "or from what like cards get, and memory that does not hold what was written",
            order=GpuIntegritySettings.model_validate,
            launch=by_module(
                "shakedown.benchmarks.gpu_rate.job",
                lambda job: max(GpuIntegritySettings.model_validate(job.settings).gpus.values()),
            ),
            uses=("pytorch",),
            also_good=ExitStatus.INCOMPLETE.value,
            each_node=True,
            wait_s=120,  # nodes end their last kind of work at different times
        )
    },
    tools={"gpu-integrity": Tool(metrics=gpu_integrity, told_by_file="test", gpus=called)},
    parsers=(
        Parser(
            tool="gpu-integrity",
            module="shakedown.benchmarks.gpu_integrity.output",
            function="parse_gpu_integrity",
        ),
    ),
    words={
        **{f"gpu_integrity_{work}": f"{work} products, bit for bit" for work in ("bf16", "fp8", "fp32")},
        "gpu_integrity_attention": "attention, bit for bit",
        "gpu_integrity_memory": "memory, written and read back",
    },
)
