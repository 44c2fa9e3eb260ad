"""Plan LoRA fine-tuning (application stage): one job over all nodes for each entry of `acceptance.lora`."""

from __future__ import annotations

from dataclasses import asdict

from shakedown.benchmarks.lora.options import INSTALL, TrainingSpec
from shakedown.physics import training as physics
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage

TEST = "lora"


def plan_lora(draft: Draft, specs: tuple[TrainingSpec, ...]) -> None:
    """Plan every training job.

    Lag between ranks exists from two ranks on, and traffic between nodes from two nodes on; one GPU's job
    has no such cells. Without a training environment the cells are in the plan and NOT-RUN, with the command
    that installs it.

    Raises:
        MissingReference: a metric that the site asks for has no reference.
        BadInput: a batch that the ranks cannot share.
    """
    nodes = draft.nodes
    for spec in specs:
        ranks = len(nodes) * spec.gpus_per_node
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
        }
        params: Params = {**spec.params}
        for metric in spec.metrics:
            if (metric == "rank_skew" and ranks < 2) or (metric == "traffic_share" and len(nodes) < 2):
                continue
            entry = draft.reference(TEST, metric, scope)
            _limit(draft, entry.id, metric, spec, ranks)
            draft.add(entry, TEST, stage=Stage.APPLICATION, nodes=[nodes], params=params)
            if not spec.python and not spec.container:
                why = f"the training environment is not installed: {INSTALL}, then acceptance.lora.python"
                draft.items[-1] = draft.items[-1].model_copy(update={"not_run": why})
        if spec.python or spec.container:
            draft.jobs.append(
                JobSpec(
                    name=f"{TEST}.{spec.label}.{spec.layout}.{spec.gpus_per_node}",
                    kind="lora",
                    stage=Stage.APPLICATION,
                    tests=(TEST,),
                    nodes=nodes,
                    time_limit_s=spec.time_limit_s,
                    settings=asdict(spec),
                    params=params,
                )
            )


def _limit(draft: Draft, reference: str, metric: str, spec: TrainingSpec, ranks: int) -> None:
    """Give a rate its physical limit: no GPU computes faster than its dense peak."""
    peak = physics.peak_bf16_tflop_per_s(str(draft.site.acceptance.scope.get("gpu", "")))
    shape = physics.SHAPES.get(spec.model)
    if peak is None or shape is None or metric not in {"samples_per_s", "tokens_per_s", "mfu"}:
        return
    flop = physics.flop_per_token(shape, sequence_tokens=spec.sequence_tokens, lora=True)
    tokens_per_s = ranks * peak * 1e12 / flop
    limits = {
        "samples_per_s": tokens_per_s / spec.sequence_tokens,
        "tokens_per_s": tokens_per_s,
        "mfu": 100.0,
    }
    update = {
        "ceiling": limits[metric],
        "ceiling_source": f"100 % MFU: {ranks} GPUs of {peak:g} TFLOP/s, 4N + 6Lsd",
    }
    draft.references[reference] = draft.references[reference].model_copy(update=update)
