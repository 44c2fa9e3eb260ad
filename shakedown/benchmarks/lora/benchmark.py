"""LoRA fine-tuning over all nodes: does training run, how fast, and who lags: plan and object."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    Launch,
    NotAtNight,
    Parser,
    Tool,
    of,
    own_module,
    within,
)
from shakedown.benchmarks.lora.job import given, trainer_command
from shakedown.benchmarks.lora.metrics import lora, trained_on
from shakedown.benchmarks.lora.settings import GENERATED, INSTALL, TrainingSpec
from shakedown.intent.acceptance import Section
from shakedown.physics import training as physics
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.program import SOURCE
from shakedown.records.reading import BadInput
from shakedown.references.catalogue import ReferenceEntry

TEST = "lora"
LOSS = "final_loss"
# For time limits only. A training at half the speed that its reference allows still ends, and is judged
# instead of killed; without a reference of its speed: a share of the GPUs' peak, or so long.
_SLOWER, _LEAST_MFU, _UNKNOWN_S = 2, 0.05, 3600


def plan_lora(draft: PlanDraft, specs: tuple[TrainingSpec, ...]) -> None:
    """Plan every training job.

    Lag between ranks exists from two ranks on, and traffic between nodes from two nodes on; one GPU's job has
    no such cells. Without a training environment the cells are in the plan and NOT-RUN, with the command that
    installs it. Raises BadInput: a batch that the ranks cannot share.
    """
    for spec in specs:
        with draft.piece(f"training {spec.label} by {spec.layout}", "lora"):
            _plan_spec(draft, spec)


def _plan_spec(draft: PlanDraft, spec: TrainingSpec) -> None:
    nodes = draft.nodes
    ranks = len(nodes) * spec.gpus_per_node
    gpu = str(draft.site.acceptance.scope.get("gpu", ""))
    if spec.dtype == "fp8" and (not physics.has_fp8(gpu) or spec.device == "cpu"):
        raise BadInput(
            f"acceptance.lora: {gpu if spec.device == 'cuda' else 'a CPU'} does not multiply fp8",
            fix="train with dtype bf16",
        )
    spec.micro_batches(len(nodes))
    scope: dict[str, int | str] = {
        "model": spec.label,
        "configuration": spec.layout,
        "nodes": len(nodes),
        "gpus": ranks,
        "sequence_tokens": spec.sequence_tokens,
        "lora_rank": spec.lora_rank,
        "dtype": spec.dtype,
        "global_batch": spec.global_batch,
        "steps": spec.steps,
        "data": "real" if spec.real else "generated",
    }
    params: Params = {**spec.params}
    installed = "pytorch" in draft.site.software
    absent = f"the training environment is not installed: {INSTALL}, then software.pytorch"
    found: dict[str, ReferenceEntry] = {}
    for metric in spec.metrics:
        if (metric == "rank_skew" and ranks < 2) or (metric == "traffic_share" and len(nodes) < 2):
            continue
        published = _loss_of_real_data(draft, scope) if metric == LOSS and not spec.real else None
        if published is not None:
            draft.add(
                published, TEST, nodes=[nodes], params={**params, "data": "real"}, not_run=_unreal(spec)
            )
        entry = draft.reference_if_any(TEST, metric, scope)
        if entry is None:
            if published is not None:  # what made-up data must reach need not be known either
                continue
            entry = draft.reference(TEST, metric, scope)
        found[metric] = entry
        _limit(draft, entry.id, metric, spec, ranks)
        draft.add(entry, TEST, nodes=[nodes], params=params, not_run="" if installed else absent)
    if installed:
        draft.job(
            ".".join([TEST, *map(str, spec.params.values())]),
            kind="lora",
            tests=(TEST,),
            nodes=nodes,
            time_limit_s=spec.time_limit_s or _time_limit_s(draft, spec, ranks, found),
            expected_s=_expected_s(spec, found),
            expected_from=_SOURCE,
            settings=asdict(spec),
            params=params,
        )


def _loss_of_real_data(draft: PlanDraft, scope: Mapping[str, int | str]) -> ReferenceEntry | None:
    """Return what real data must reach with real weights, where a reference is of them alone."""
    entry = draft.reference_if_any(TEST, LOSS, {**scope, "data": "real"})
    return entry if entry and "data" in entry.scope else None


def _unreal(spec: TrainingSpec) -> str:
    """Say what keeps a loss from being compared with one of real data."""
    data = "made-up instructions" if spec.data == GENERATED else "real data"
    return (
        f"the published loss is of the model's own weights on real data; acceptance.lora asks for "
        f"{spec.weights} weights and {data}"
    )


def _time_limit_s(
    draft: PlanDraft, spec: TrainingSpec, ranks: int, found: Mapping[str, ReferenceEntry]
) -> int:
    """Return the time limit of a job in seconds, from its steps and the slowest that its references allow."""
    longest = _trained_s(spec, found)
    samples = spec.steps * spec.global_batch
    peak = spec.peak_tflop_per_s(str(draft.site.acceptance.scope.get("gpu", "")))
    shape = physics.SHAPES.get(spec.label)
    if not longest and peak is not None and shape is not None and spec.device == "cuda":
        flop = spec.flop_per_token(shape)
        longest = samples * spec.sequence_tokens * flop / (ranks * peak * 1e12 * _LEAST_MFU)
    return math.ceil(spec.start_s + _SLOWER * (longest or _UNKNOWN_S) + spec.hang_s)


def _trained_s(spec: TrainingSpec, found: Mapping[str, ReferenceEntry]) -> float:
    """Return how long the steps take at the slowest that the references allow, in seconds; 0: not known."""
    samples = spec.steps * spec.global_batch
    trained: list[float] = []
    for metric, entry in found.items():
        gate = entry.reference().gate
        seconds = {
            "duration": gate * 60,
            "step_time": gate * spec.steps,
            "samples_per_s": samples / gate if gate > 0 else 0,
            "tokens_per_s": samples * spec.sequence_tokens / gate if gate > 0 else 0,
        }
        trained.append(seconds.get(metric, 0))
    return max(trained, default=0)


_TRAINING_START_S = 40
_SOURCE = (
    f"{_TRAINING_START_S} s before a training's first step, its steps as slow as their reference allows: "
    "39 to 82 s for 16 steps in all (recorded runs h200x2_lora, h200x4_lora, h200x4_lora_again)"
)


def _expected_s(spec: TrainingSpec, found: Mapping[str, ReferenceEntry]) -> int | None:
    trained_s = _trained_s(spec, found)
    return math.ceil(_TRAINING_START_S + trained_s) if trained_s else None


def _limit(draft: PlanDraft, reference: str, metric: str, spec: TrainingSpec, ranks: int) -> None:
    """Give a rate its physical limit: no GPU computes faster than its dense peak."""
    peak = spec.peak_tflop_per_s(str(draft.site.acceptance.scope.get("gpu", "")))
    shape = physics.SHAPES.get(spec.label)
    if peak is None or shape is None or metric not in {"samples_per_s", "tokens_per_s", "mfu"}:
        return
    if reference not in draft.references:
        return  # there is none: the plan is refused in the end
    flop = spec.flop_per_token(shape)
    tokens_per_s = ranks * peak * 1e12 / flop
    limits = {
        "samples_per_s": tokens_per_s / spec.sequence_tokens,
        "tokens_per_s": tokens_per_s,
        "mfu": 100.0,
    }
    update = {
        "ceiling": limits[metric],
        "ceiling_source": f"100 % MFU: {ranks} GPUs of {peak:g} TFLOP/s, its matrix products",
    }
    draft.references[reference] = draft.references[reference].model_copy(update=update)


def _launch(job: JobSpec, out: Path) -> Launch:
    spec = TrainingSpec.from_json(job.settings)
    name, source = of(job, "pytorch")
    python = source.interpreter if source else "python3"
    words = tuple(trainer_command(job.settings, len(job.nodes), SOURCE, out, python))
    gpus = spec.device == "cuda"
    words, options = within(source, name, words, out, gpus=gpus, more=map(str, given(spec)))
    return Launch(
        words=words,
        keep=own_module("shakedown.benchmarks.lora.job", out, ",".join(job.nodes), "--"),
        gpus=spec.gpus_per_node if gpus else 0,
        variables=spec.variables,
        options=("--exclusive",),
        step_options=("--kill-on-bad-exit=1", *options),
    )


BENCHMARK = Benchmark(
    name="lora",
    stage=Stage.APPLICATION,
    section=Section(key="lora", kind=tuple[TrainingSpec, ...], absent=(), joins_nodes=bool),
    plan=plan_lora,
    night=NotAtNight("training takes all nodes for minutes to hours"),
    jobs={
        "lora": JobKind(
            catches="training that does not start, hangs, diverges or learns nothing; throughput below its "
            "reference; a slow rank, by rank and node; less traffic on the fabric's NICs than the "
            "parallelism must cause",
            order=TrainingSpec.from_json,
            launch=_launch,
            uses=("pytorch",),
            wait_s=30,  # the trainer's own watchdog ends a job and says why; Slurm's must not be quicker
        )
    },
    tools={"trainer": Tool(metrics=lora, own_bytes=lambda text: True, gpus=trained_on)},
    parsers=(
        Parser(
            tool="trainer",
            module="shakedown.benchmarks.lora.output",
            function="parse_trainer",
            options={"--partial": "allow_truncated"},
        ),
    ),
    words={"lora": "LoRA training"},
)
