"""Inference over the way between CPU and GPU, ResNet50 behind MLPerf LoadGen: plan and object."""

from collections.abc import Mapping
from pathlib import Path

from shakedown.benchmarks.base import contract
from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, NotAtNight, Parser, Tool, workload
from shakedown.benchmarks.inference.metrics import Inference, InferenceSettings, inference, ran_on
from shakedown.intent.acceptance import Section
from shakedown.physics import training
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.reading import ExitStatus
from shakedown.references.catalogue import ReferenceEntry

TEST = "resnet50_server"
# For time limits only: PyTorch, CUDA and recording graphs on a slow host; TensorRT builds its engine, 61 s on
# an H200 host with 16 CPUs.
_START_S, _ENGINE_S = 240, 240.0


def plan_inference(draft: PlanDraft, asked: Mapping[str, Inference]) -> None:
    """One search for each number of GPUs on every node that has as many."""
    contract.required(
        draft.site.software, "loadgen", "pytorch", by="acceptance.inference needs PyTorch with LoadGen"
    )
    for node, section in asked.items():
        have = draft.site.gpus.get(node, 0) if section.device == "cuda" else max(section.gpus)
        counts = tuple(n for n in section.gpus if n <= have)
        for gpus in counts:
            for entry in _inference_entries(draft, section, node, gpus):
                draft.add(entry, TEST, nodes=[node], params={"gpus": gpus})
                _limit(draft, entry, section, node, gpus)
            if not section.labels:
                _accuracy_not_run(draft, section, node, gpus)
        if counts:
            full_s = section.confirm_s * (section.confirmations + 4) + 16 * section.probe_s
            start_s = _START_S + (_ENGINE_S if section.engine == "tensorrt" else 0)
            draft.job(
                f"application.inference.{node}",
                kind="inference",
                tests=(TEST,),
                nodes=(node,),
                time_limit_s=int(start_s + len(counts) * 1.2 * full_s),
                expected_s=int(60 + len(counts) * 0.75 * full_s),
                expected_from="60 s beside three quarters of the probes and confirmations of a search: "
                "185, 296 and 173 s where this says 213, 213 and 247 (recorded runs h200_int8, "
                "h200_int8_short, h200x4_interconnect)",
                # As the site asks, without the numbers of GPUs that the node does not have.
                settings={**section.model_dump(), "gpus": counts},
            )


def _limit(draft: PlanDraft, entry: ReferenceEntry, section: Inference, node: str, gpus: int) -> None:
    """Give a rate its physical limit, where its reference has none: no GPU computes faster than its peak."""
    known = draft.references.get(entry.id)
    if entry.metric != "rate" or known is None or known.ceiling is not None:
        return
    if section.model != "resnet50" or section.device != "cuda":
        return
    int8 = section.engine == "tensorrt"
    gpu = str(draft.site.of(node).scope.get("gpu", ""))
    if (most := training.resnet50_ceiling_per_s(gpu, gpus=gpus, int8=int8)) is not None:
        update = {
            "ceiling": most,
            "ceiling_source": f"{gpus} GPUs at their peak, {training.RESNET50_FLOP / 1e9:g} GFLOP an image",
        }
        draft.references[entry.id] = known.model_copy(update=update)


def _scope(section: Inference, gpus: int) -> dict[str, int | str]:
    data = "real" if section.labels else "generated"
    return {"path": section.path, "gpus": gpus, "model": section.model, "dtype": section.dtype, "data": data}


def _accuracy_not_run(draft: PlanDraft, section: Inference, node: str, gpus: int) -> None:
    """Say in the plan that a published accuracy is not measured: a rate of other answers is no such rate."""
    if entry := draft.reference_if_any(TEST, "accuracy", _scope(section, gpus), node):
        draft.add(
            entry,
            TEST,
            nodes=[node],
            params={"gpus": gpus},
            not_run="the site gives no trained weights, images and labels (acceptance.inference)",
        )


def _inference_entries(draft: PlanDraft, section: Inference, node: str, gpus: int) -> list[ReferenceEntry]:
    """Return the references of one search: of the rate in one or both of its units, and what else is due."""
    scope = _scope(section, gpus)
    any_of = [draft.reference_if_any(TEST, metric, scope, node) for metric in section.metrics]
    rates = [entry for entry in any_of if entry]
    more = ("latency_p99", "accuracy") if section.labels else ("latency_p99",)
    if not rates:
        more = (section.metrics[-1], *more)
    return [*rates, *(draft.reference(TEST, metric, scope, node) for metric in more)]


def _launch(job: JobSpec, out: Path) -> Launch:
    order = InferenceSettings.model_validate(job.settings)
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
            order=InferenceSettings.model_validate,
            launch=_launch,
            uses=("loadgen", "pytorch"),
            # One number of GPUs has no peak; it is recorded with its reason, and the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
        )
    },
    tools={"inference": Tool(metrics=inference, own_bytes=lambda text: True, gpus=ran_on)},
    parsers=(
        Parser(tool="loadgen", module="shakedown.benchmarks.inference.output", function="parse_loadgen"),
    ),
    words={"resnet50_server": "ResNet50 inference"},
)
