"""Inference over the way between CPU and GPU: ResNet50 behind MLPerf LoadGen."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Parser, Tool
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.base.site_python import workload
from shakedown.benchmarks.inference.metrics import inference
from shakedown.benchmarks.inference.options import Inference
from shakedown.benchmarks.inference.order import InferenceOrder
from shakedown.benchmarks.inference.plan import plan_inference
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.errors import ExitStatus


def _launch(job: JobSpec, out: Path) -> Launch:
    order = InferenceOrder.model_validate(job.settings)
    gpus = max(order.gpus) if order.device == "cuda" else 0
    return workload("loadgen_harness.main", job, out, "loadgen", "pytorch", gpus=gpus)


BENCHMARK = Benchmark(
    name="inference",
    stage=Stage.APPLICATION,
    section=Section(key="inference", kind=Inference | None, of_each_node=True),
    plan=plan_inference,
    night=NotAtNight("one search of a peak takes hours"),
    jobs={
        "inference": JobKind(
            catches="an interconnect or GPU that carries less than its reference, a rate that holds in a "
            "short probe only, a result that LoadGen calls INVALID, a GPU that was throttled or lost",
            order=InferenceOrder.model_validate,
            launch=_launch,
            uses=("loadgen", "pytorch"),
            # One number of GPUs has no peak; it is recorded with its reason, and the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
        )
    },
    tools={"inference": Tool(metrics=inference, own_bytes=lambda text: True)},
    parsers=(
        Parser(tool="loadgen", module="shakedown.benchmarks.inference.output", function="parse_loadgen"),
    ),
    words={"resnet50_server": "ResNet50 inference"},
)
