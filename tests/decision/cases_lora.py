"""Inputs of the cases of LoRA fine-tuning."""

# ruff: noqa: D103  (expected.json names the fault of each case)

from typing import Any

from tests.decision.case_folder import Case, Json, case

RATE = {"id": "h200-lora-7b-4gpu", "value": 37.9, "tolerance": 0.02, "ceiling": 68.92}
RATE |= {"ceiling_source": "100 % MFU: 4 GPUs of 989.4 TFLOP/s, its matrix products", "unit": "samples/s"}
RATE |= {"better": "higher", "kind": "measured", "source": "measured for this project, 2026-11-20"}
LOSS = {"id": "lora-loss", "value": 1.0, "limit": 1.0, "unit": "loss", "better": "lower", "kind": "contract"}
LOSS |= {"source": "what a correct trainer learns of the generated instructions"}
FINITE = {"id": "lora-finite", "value": 0.0, "limit": 0.0, "unit": "1", "better": "lower", "kind": "contract"}
FINITE |= {"source": "a loss is a number"}
SKEW = {"id": "lora-rank-skew", "value": 1.0, "limit": 1.1, "unit": "x", "better": "lower"}
SKEW |= {"kind": "contract", "source": "ranks of one job compute alike"}
GROUP = ["n1", "n2"]
HEALTHY = {"samples_per_s": 37.9, "final_loss": 0.43, "nonfinite_steps": 0.0, "rank_skew": 1.02}


def training(c: Case, values: dict[str, Any], **fields: Any) -> dict[str, Json]:
    """Plan the four metrics of one job over both nodes and add a line for each."""
    c.rails = []
    details = {metric: fields.pop(f"detail_{metric}", None) for metric in HEALTHY}
    items = {}
    for metric, reference in zip(HEALTHY, (RATE, LOSS, FINITE, SKEW), strict=True):
        params = {"model": "llama2-7b", "layout": "ddp", "gpus_per_node": 2}
        items[metric] = c.plan(
            reference, [GROUP], stage="application", test="lora", metric=metric, rails=[None], params=params
        )
        if metric in values:
            c.line(items[metric], GROUP, values[metric], detail=details[metric], **fields)
    return items


@case
def lora_nan_loss(c: Case) -> None:
    values = {**HEALTHY, "final_loss": None, "nonfinite_steps": 2.0}
    training(c, values, detail_nonfinite_steps="step 31, rank 0 on n1; step 31, rank 3 on n2")


@case
def lora_wrong_learning_rate(c: Case) -> None:
    told = "100 steps, from 7.1 at step 1, learning rate 1e-05; random weights"
    training(c, {**HEALTHY, "final_loss": 6.9}, detail_final_loss=told)


@case
def lora_slow_rank(c: Case) -> None:
    told = "slowest is rank 2 on n2: its own computing takes 2.28 times the others'"
    training(c, {**HEALTHY, "samples_per_s": 17.5, "rank_skew": 2.28}, detail_rank_skew=told)


@case
def lora_killed_job(c: Case) -> None:
    problem = {"kind": "killed", "message": "rank 3 on n2: killed by signal 9"}
    training(c, dict.fromkeys(HEALTHY), problem=problem, state="FAILED")


@case
def lora_out_of_memory(c: Case) -> None:
    message = "rank 1 on n1: out of memory: CUDA out of memory. Tried to allocate 2.00 GiB."
    training(c, dict.fromkeys(HEALTHY), problem={"kind": "setup", "message": message}, state="FAILED")


@case
def lora_impossible_rate(c: Case) -> None:
    training(c, {**HEALTHY, "samples_per_s": 71.0})


@case
def lora_no_environment(c: Case) -> None:
    for item in training(c, {}).values():
        item["not_run"] = "the training environment is not installed: make training-env TRAINING_ENV=FOLDER"
