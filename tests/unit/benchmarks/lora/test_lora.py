"""LoRA fine-tuning from plan to cells: what is planned, what a log must match, and who lags."""

import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shakedown.benchmarks.lora import output as training_run
from shakedown.benchmarks.lora.benchmark import BENCHMARK
from shakedown.benchmarks.lora.job import merge, reason, trainer_command
from shakedown.benchmarks.lora.metrics import _impossible, _rates, received_bytes
from shakedown.benchmarks.lora.output import parse_trainer
from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.physics.training import SHAPES
from shakedown.records.program import SOURCE
from shakedown.records.results import OutputRecord
from shakedown.references.files import load_catalogue
from shakedown.run.nic_counters import JobFolder
from tests.kit.cases import cases
from tests.kit.files import script
from tests.kit.job import output as output_of
from tests.kit.job import write_outputs
from tests.kit.refusal import refused
from tests.kit.run import collected, ran, raw_of, write_run
from tests.kit.site import document, hosts, plan_site

TAKEN = "2026-01-01T00:00:00Z"
JOB: dict[str, Any] = {"model": "tiny", "layout": "fsdp", "gpus_per_node": 2, "device": "cpu"}
JOB |= {"dtype": "fp32", "steps": 8, "warmup_steps": 2, "sequence_tokens": 64, "micro_batch": 1}
JOB |= {"global_batch": 8}
JOB |= {"metrics": ["final_loss", "nonfinite_steps", "rank_skew", "traffic_share", "comm_share"]}
JOB["metrics"].append("layout_overhead")


SOFTWARE = {"pytorch": {"from": {"path": "/t/bin/python"}}}


def plan_of(
    software: Any = SOFTWARE, learn: bool = False, more: Any = (), scope: Any = None, **changes: Any
) -> Any:
    """Plan two nodes that train and measure nothing else."""
    inventory = document()
    for host in hosts(inventory):
        host["software"] = software
        jobs = [{**JOB, **changes}, *more]
        host["acceptance"] = {"lora": jobs, "counter_tests": False, "software_check": False}
        host["acceptance"]["scope"] = scope or {}
    catalogue = load_catalogue(["lab", "lora_generated"])
    return plan_site(inventory, catalogue, learn=learn)


def log(
    *, ranks: int = 4, steps: int = 8, slow: int | None = None, loss: float | None = 0.5, **header: Any
) -> str:
    """What a job of the plan writes; `slow` is a rank whose computing takes half as long again."""
    spec = TrainingSpec.from_json(plan_of()[1].jobs[-1].settings)
    first = {"type": "header", "model": "tiny", "method": "lora", "precision": "fp32", "parallelism": "fsdp"}
    first |= {"world_size": ranks, "hosts": ["n1", "n1", "n2", "n2"][:ranks], "sequence_length": 64}
    first |= {
        "global_batch_samples": 8,
        "micro_batch_samples": 1,
        "parameters": 869504,
        "steps": JOB["steps"],
    }
    first |= {"trainable_parameters": 57344, "seed": spec.seed, "learning_rate": spec.learning_rate}
    lines: list[dict[str, Any]] = [first | {"lora_rank": 16, "alone_step_s": 0.3} | header]
    for step in range(1, steps + 1):
        for rank in range(ranks):
            own = 0.3 if rank == slow else 0.2
            record = {"type": "step", "step": step, "rank": rank, "step_time_s": 0.4, "samples": 8}
            record |= {"tokens": 512, "compute_s": own, "comm_s": 0.02}
            record |= {"loss": loss if step == steps else 7.1 * 0.6 ** (step - 1)}
            lines.append({k: v for k, v in record.items() if v is not None})
    last = {"type": "summary", "steps": steps, "elapsed_s": 0.4 * steps, "samples": 64, "tokens": 4096}
    lines.append({**last, "samples_per_s": 20.0, "tokens_per_s": 1280.0})
    return "".join(json.dumps(line) + "\n" for line in lines)


def judged(folder: Path, text: str, *, state: str = "COMPLETED", received: float = 1.0, **output: Any) -> Any:
    """Return cells by metric of a run whose job wrote a log; `received` is the share of the expected
    bytes."""
    plan, jobs = plan_of()
    job = jobs.jobs[0]
    problem = {"kind": "other", "message": f"Slurm says {state}"} if state != "COMPLETED" else None
    raw = raw_of(write_run(folder, plan, jobs), job, nodes=["n1", "n2"], state=state, problem=problem)
    (raw / "lora.jsonl").write_text(text)
    spec = TrainingSpec.from_json(job.settings)
    from shakedown.physics.training import SHAPES

    total = spec.traffic(SHAPES["tiny"], 2).node_bytes * 8 * received
    for node in ("n1", "n2"):
        for when, count in (("before", 1000), ("after", 1000 + int(total / 4))):
            device = {"device": "rxe0", "netdev": "fab0", "counters": {"ib.port_rcv_data": count}}
            (raw / f"counters.{node}.{when}.json").write_text(
                json.dumps({"taken": TAKEN, "devices": [device]})
            )
    about = {"test": "lora", "params": spec.params, "duration_s": 5.0, **output}
    write_outputs(raw, [output_of("trainer", "lora.jsonl", "n1", "n2", **about)])
    verdict = collected(folder)
    bad = {cell.cell.split("/")[2]: cell for cell in verdict.cells}
    found = {
        group.metric: (bad[group.metric].outcome, bad[group.metric].reason)
        if group.metric in bad
        else ("PASS", "")
        for group in verdict.groups
    }
    return found


def test_a_healthy_log_passes_everywhere(tmp_path):
    """Catches: a reader that gives no value for a planned metric."""
    assert {outcome for outcome, _ in judged(tmp_path, log()).values()} == {"PASS"}


def course(*losses: float, warmup: int = 5, falls: bool = True) -> list[str]:
    """What is astray in a training of one rank with these losses."""
    about = {"rank": 0, "step_time_s": 0.4, "samples": 8, "tokens": 512}
    steps = [training_run.TrainerStep(step=n, loss=loss, **about) for n, loss in enumerate(losses, 1)]
    return training_run.astray(steps, warmup, falls=falls)


# 1010 steps that fall from 1.5 to 0.9, each with noise of 0.08 as batches of 128 have.
FALLING = [0.9 + 0.6 * math.exp(-n / 150) + random.Random(n).gauss(0, 0.08) for n in range(1010)]


def test_a_loss_is_held_over_its_course():
    """Catches: 0.50 rising to 0.99, or 30 for 579 steps, that ended at most at 1 and PASSed; noise blamed."""
    assert not course(*FALLING) and not course(*FALLING, falls=False)
    for seed in range(200):
        noisy = random.Random(seed)
        assert not course(*(0.9 + 0.6 * math.exp(-n / 150) + noisy.gauss(0, 0.2) for n in range(400)))
    rising = [0.5 + 0.49 * n / 1009 for n in range(1010)]
    assert "0.989 at step 1010, 0.503 at its start" in course(*rising)[-1]
    burst = [30.0 if 200 <= n < 779 else loss for n, loss in enumerate(FALLING)]
    assert len(course(*burst)) >= 579
    assert course(*[0.9] * 100) == ["from 0.9 to 0.9: it does not fall"]
    assert not course(*[0.9] * 100, falls=False)  # goes on from a checkpoint near its end
    assert not course(*[9.0] * 5, *FALLING, warmup=5)


def test_a_loss_that_rises_again_is_told():
    """Catches: 11.3 to 2.3 and back to 6.3, never beyond its start; one easy batch taken for a low."""
    for steps in (30, 60, 1010):
        half = steps // 2
        down, up = [11.3 - 9 * n / half for n in range(half)], [2.3 + 4 * n / half for n in range(half)]
        assert "rises again" in course(*down, *up, warmup=4)[0]
    easy = [0.2 if 600 <= n < 604 else loss for n, loss in enumerate(FALLING)]
    assert not course(*easy)


def unlearnt(*losses: float) -> tuple[bool, str]:
    """Whether a training of one rank with these losses learnt."""
    about = {"rank": 0, "step_time_s": 0.4, "samples": 8, "tokens": 512}
    return training_run.unlearnt(
        [training_run.TrainerStep(step=n, loss=x, **about) for n, x in enumerate(losses, 1)]
    )


def test_a_fall_is_one_only_beyond_its_noise():
    """Catches: a flat loss that ends lower by chance; one of few steps called a fall."""
    assert unlearnt(*FALLING) == (False, "") and unlearnt(11.3, 10.8, 8.4, 6.1, 5.5, 4.6, 4.1, 3.9)[1] == ""
    assert unlearnt(*[0.9] * 30)[0] and unlearnt(*[0.5 + 0.01 * n for n in range(8)])[0]
    assert unlearnt(0.9, 0.8, 0.7, 0.6, 0.5) == (False, "5 steps do not tell whether the loss falls")
    draw = random.Random(3)
    flat = [unlearnt(*(0.9 + draw.gauss(0, 0.1) for _ in range(30))) for _ in range(200)]
    assert sum(not why for _, why in flat) <= 2 and any(why and not surely for surely, why in flat)


def with_losses(*losses: float) -> str:
    """A log of eight steps with these losses."""
    lines = [json.loads(line) for line in log().splitlines()]
    lines = [{**x, "loss": losses[x["step"] - 1]} if x["type"] == "step" else x for x in lines]
    return "".join(json.dumps(line) + "\n" for line in lines)


@cases(
    "losses, outcome, words",
    ([0.9] * 8, "FAIL", "the loss does not fall"),
    ([6.5, 1.0, 0.9, 0.8, 0.7, 0.8, 0.9, 6.6], "INCONCLUSIVE", "not known to fall"),
    (
        [6.1, 6.9, 6.2, 6.8, 6.1, 7.0, 6.0, 7.1],
        "INCONCLUSIVE",
        "not known to fall",
    ),  # by chance it ends higher
    ([5.0, 5.1, 5.2, 5.3, 5.4, 5.5, 5.6, 5.7], "FAIL", "does not fall"),
    ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], "FAIL", "0.9 at step 1, where random weights guess"),
    ([7.1, 6.0, 7.0, 6.1, 6.9, 6.2, 6.8, 6.1], "INCONCLUSIVE", "not known to fall"),
)
def test_generated_data_must_be_learnt(tmp_path, losses, outcome, words):
    """Catches: a loss on generated data that is flat, comes back, or is low before anything was trained."""
    found = judged(tmp_path, with_losses(*losses))["nonfinite_steps"]
    assert found[0] == outcome and words in found[1]


def test_only_an_order_with_checkpoints_goes_on_from_one(tmp_path):
    """Catches: a log that says it was resumed, whose loss then need not fall."""
    lines = [json.loads(line) for line in with_losses(*[0.9] * 8).splitlines()]
    lines[0]["resumed_from"] = 4
    lines = [line for line in lines if line.get("step", 5) > 4]
    found = judged(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert {outcome for outcome, _ in found.values()} == {"INCONCLUSIVE"}
    assert "no checkpoints were ordered" in found["final_loss"][1]


def test_the_duration_is_that_of_the_whole_program():
    """Catches: 2 h 06 min, which include loading, held against the trainer's clock alone: 4 h PASSed."""
    spec = TrainingSpec.from_json(plan_of()[1].jobs[-1].settings)
    record = OutputRecord.model_validate(output_of("trainer", "lora.jsonl", "n1", duration_s=14400.0))
    (found,) = (one for one in _rates(parse_trainer(log()), spec, record) if one.metric == "duration")
    assert found.value == 240 and "8 steps 0.05333 min, loading and the rest 239.9 min" in found.detail


def test_a_rising_loss_fails_the_cell(tmp_path, monkeypatch):
    """Catches: a course that is looked at and changes no verdict."""
    monkeypatch.setitem(JOB, "steps", 30)
    text = log(steps=30)
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        if line["type"] == "step":
            line["loss"] = 0.5 + 0.01 * line["step"]
        elif line["type"] == "summary":
            line |= {"samples": 240, "tokens": 15360}
    found = judged(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert found["final_loss"][0] == "PASS"
    outcome, why = found["nonfinite_steps"]
    assert outcome == "FAIL" and "at its start" in why


def test_gradients_that_never_flow_fail(tmp_path):
    """Catches: a training that trains nothing, whose loss is good by chance."""
    lines = [json.loads(line) for line in log().splitlines()]
    for line in lines:
        if line["type"] == "step":
            line["grad_norm"] = 0.0
    found = judged(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert found["nonfinite_steps"] == ("FAIL", found["nonfinite_steps"][1])
    assert "every gradient is 0" in found["nonfinite_steps"][1]


def test_a_slow_rank_is_named_by_rank_and_node(tmp_path):
    """Catches: lag read from step times, which are the same on all ranks."""
    outcome, why = judged(tmp_path, log(slow=2))["rank_skew"]
    assert outcome == "FAIL" and "rank 2 on n2" in why and "1.50 times" in why


def test_a_loss_that_is_not_finite_fails_and_names_its_rank(tmp_path):
    """Catches: NaN that passes because the steps without it look well."""
    cells = judged(tmp_path, log(loss=None))
    assert cells["nonfinite_steps"][0] == "FAIL" and "step 8, rank 0 on n1" in cells["nonfinite_steps"][1]
    assert cells["final_loss"][0] == "INCONCLUSIVE"


def test_traffic_that_did_not_pass_the_fabric_fails(tmp_path):
    """Catches: training over the management network, with every NIC of the fabric silent."""
    outcome, why = judged(tmp_path, log(), received=0.4)["traffic_share"]
    assert outcome == "FAIL" and "expected a node" in why


@cases(
    "changed",
    {"steps": 7},
    {"sequence_length": 32},
    {"world_size": 3},
    {"parameters": 1},
    {"trainable_parameters": 57343},
    {"seed": 9},
    {"micro_batch_samples": 2},
    {"learning_rate": 0.1},
    {"hosts": ["n1"] * 4},
)
def test_a_log_of_an_easier_job_is_refused(tmp_path, changed):
    """Catches: a job that trains something smaller or shorter than ordered and passes."""
    text = log(**changed)
    if "world_size" in changed:
        text = log(ranks=3)
    cells = judged(tmp_path, text)
    assert {outcome for outcome, _ in cells.values()} == {"INCONCLUSIVE"}


@cases(
    "old, new, words",
    ('"step_time_s": 0.4', '"step_time_s": 0.3', "8 steps took 2.4 s, the training 3.2 s"),
    ('"samples_per_s": 20.0', '"samples_per_s": 30.0', "the summary has 30 samples/s, its"),
)
def test_times_that_contradict_each_other_decide_nothing(tmp_path, old, new, words):
    """Catches: faster steps in an edited log, whose training took as long as before."""
    assert old in log()
    cells = judged(tmp_path, log().replace(old, new))
    assert all(o == "INCONCLUSIVE" and words in why for o, why in cells.values())


def test_what_a_job_does_between_its_steps_is_no_contradiction(tmp_path):
    """Catches: a healthy training undecided because reading its profile took a while."""
    longer = log().replace(f'"elapsed_s": {0.4 * 8}', '"elapsed_s": 9.2')
    cells = judged(tmp_path / "untold", longer)
    assert all(o == "INCONCLUSIVE" and "the training 9.2 s" in why for o, why in cells.values())
    cells = judged(tmp_path / "told", longer.replace('"elapsed_s": 9.2', '"elapsed_s": 9.2, "aside_s": 6.0'))
    assert "INCONCLUSIVE" not in {outcome for outcome, _ in cells.values()}


def test_a_log_that_ends_early_is_refused(tmp_path):
    """Catches: a job that stops after its fast steps."""
    cells = judged(tmp_path, log(steps=5))
    assert all(o == "INCONCLUSIVE" and "5 of 8 steps" in why for o, why in cells.values())


def without(text: str, rank: int, *fields: str) -> str:
    """The log without a rank's steps, or without some fields of them."""
    lines = [json.loads(line) for line in text.splitlines()]
    if not fields:
        lines = [line for line in lines if line.get("rank") != rank]
    left = [{k: v for k, v in x.items() if x.get("rank") != rank or k not in fields} for x in lines]
    return "".join(json.dumps(line) + "\n" for line in left)


def test_a_rank_of_which_nothing_is_known_is_no_fast_one(tmp_path):
    """Catches: the slow rank's own log lost on its node, and rates, loss and skew of the others passed."""
    cells = judged(tmp_path, without(log(slow=2), 2))
    assert all(o == "INCONCLUSIVE" and "nothing of rank 2 on n2, 3 of 4" in why for o, why in cells.values())


def test_what_one_rank_does_not_tell_is_not_told_of_all(tmp_path):
    """Catches: skew or share of communication of the ranks that tell it, the worst one silent."""
    cells = judged(tmp_path, without(log(slow=2), 2, "compute_s", "comm_s"))
    for metric, what in (("rank_skew", "it computed"), ("comm_share", "it waited for communication")):
        outcome, why = cells[metric]
        assert outcome == "INCONCLUSIVE" and f"rank 2 on n2 does not tell how long {what}" in why
    assert cells["final_loss"][0] == "PASS"


@cases(
    "alone_s, percent, told",
    (0.3, 25.0, "PASS"),  # of 0.4 s a step
    (0.402, 0.0, "PASS"),  # noise: no layout gives time
    (0.5, None, "INCONCLUSIVE"),  # the card was throttled while it was alone
    (None, None, "NOT-RUN"),
)
def test_what_a_layout_costs_is_held_against_one_card_alone(tmp_path, alone_s, percent, told):
    """Catches: the cost of sharding told as NCCL's own time, or as less than nothing."""
    outcome, _ = judged(tmp_path, log(alone_step_s=alone_s))["layout_overhead"]
    values = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    found = next((one.get("value") for one in values if one["metric"] == "layout_overhead"), None)
    assert found == (percent if percent is None else pytest.approx(percent))
    assert outcome == told


@cases(
    "kind, message",
    ("killed", "rank 3 on n2: killed by signal 9"),
    ("setup", "rank 1 on n1: out of memory: tried 9 GiB"),
    ("environment", "rank 2 on n2: no sign of life for 20 s (step 5, forward)"),
)
def test_a_job_that_was_spoiled_says_why(tmp_path, kind, message):
    """Catches: a killed, hung or starved job that leaves its cells without a reason, or passes by its log."""
    cells = judged(tmp_path, log(), state="FAILED", problem={"kind": kind, "message": message}, exit_code=1)
    assert all(outcome == "INCONCLUSIVE" and message in why for outcome, why in cells.values())


def test_without_an_environment_the_cells_are_not_run_and_say_what_installs_it():
    """Catches: training left out of the plan because it cannot be run."""
    plan, jobs = plan_of(software={})
    assert not jobs.jobs and len(plan.items) == 6
    assert all(item.not_run and "make training-env" in item.not_run for item in plan.items)


def test_two_jobs_share_no_cell():
    """Catches: one job's failure written into the cells of another that went well."""
    inventory = document()
    other = {**JOB, "layout": "hsdp"}
    for host in hosts(inventory):
        host["software"] = SOFTWARE
        host["acceptance"] = {"lora": [JOB, other], "counter_tests": False, "software_check": False}
    catalogue = load_catalogue(["lab", "lora_generated"])
    plan, jobs = plan_site(inventory, catalogue)
    assert len(jobs.jobs) == 2
    for item in plan.items:
        for _, nodes, *_ in item.cells():
            measuring = [
                job.settings["layout"]
                for job in jobs.jobs
                if job.measures("lora", nodes, None, None, item.params)
            ]
            assert measuring == [item.params["layout"]]


def test_a_metric_without_a_reference_is_refused_or_learnt():
    """Catches: a throughput that nothing is expected of; one that a run that learns leaves out in silence."""
    refused("no reference for lora samples_per_s", plan_of, metrics=["samples_per_s"])
    plan, _ = plan_of(learn=True, metrics=["samples_per_s"])
    (item,) = (item for item in plan.items if item.test == "lora")
    assert plan.references[item.reference].kind == "learn"


def test_two_trainings_that_one_folder_would_hold_are_refused():
    """Catches: an internal error for two jobs whose cells nothing tells apart."""
    refused("two jobs would be called lora.tiny.fsdp.2", plan_of, more=[{**JOB, "seed": 2}])


def test_fp8_on_what_has_none_is_refused_when_planned():
    """Catches: a job that waits for its nodes, and then says that they cannot multiply fp8."""
    fp8 = {"dtype": "fp8", "layout": "ddp", "metrics": ["nonfinite_steps"]}
    refused("a CPU does not multiply fp8", plan_of, **fp8)
    refused("A100-SXM does not multiply fp8", plan_of, scope={"gpu": "A100-SXM"}, device="cuda", **fp8)


@cases(
    "changes, told",
    ({"model": "lama"}, "neither tiny"),
    ({"global_batch": 6}, "no multiple of 4 replicas"),
    ({"warmup_steps": 8}, "warmup_steps"),
    ({"learning_rate": 0}, "learning_rate"),
    ({"data": "dolly.jsonl"}, "absolute path"),
    ({"variables": {"LD_PRELOAD": "/tmp/x.so"}}, "LD_PRELOAD"),
    ({"stepps": 5}, "unknown key 'stepps' -- use steps"),
)
def test_settings_that_no_job_can_carry_out_are_refused_when_planned(changes, told):
    """Catches: a misspelt or impossible setting found out on the cluster."""
    refused(told, plan_of, **changes)


@pytest.mark.parametrize(("dtype", "times"), [("bf16", 1), ("fp8", 2)])
def test_more_than_the_peak_is_impossible(dtype, times):
    """Catches: a rate that no GPU can reach, taken for a very good one, and fp8 held to bf16's peak."""
    inventory = document()
    job = {**JOB, "model": "llama2-7b", "layout": "ddp", "gpus_per_node": 1, "device": "cuda"}
    job |= {"dtype": dtype, "sequence_tokens": 2048, "metrics": ["mfu", "samples_per_s"]}
    names = list(inventory["_meta"]["hostvars"])
    for name in names[1:]:
        del inventory["_meta"]["hostvars"][name]
    inventory["compute"]["hosts"] = names[:1]
    inventory["_meta"]["hostvars"][names[0]]["acceptance"] = {
        "lora": [job],
        "counter_tests": False,
        "scope": {"gpu": "H200-SXM"},
    }
    catalogue = load_catalogue(["lab", "h200_lora"])
    plan, _ = plan_site(inventory, catalogue, run="r")
    ceilings = {i.metric: plan.references[i.reference].ceiling for i in plan.items}
    assert ceilings["mfu"] == 100
    flop = 28_038_529_024  # counted by hand: test_training.py
    assert ceilings["samples_per_s"] == pytest.approx(times * 989.4e12 / flop / 2048)


def test_a_frozen_base_in_fp8_has_cells_and_references_of_its_own():
    """Catches: fp8's rate and loss taken for bf16's, and one job that overwrites the other's."""
    inventory = document()
    names = list(inventory["_meta"]["hostvars"])
    for name in names[1:]:
        del inventory["_meta"]["hostvars"][name]
    inventory["compute"]["hosts"] = names[:1]
    job = {**JOB, "model": "llama2-7b", "layout": "ddp", "gpus_per_node": 1, "device": "cuda", "steps": 60}
    job |= {"sequence_tokens": 2048, "metrics": ["samples_per_s", "final_loss"]}
    host = inventory["_meta"]["hostvars"][names[0]]
    host["software"] = SOFTWARE
    host["acceptance"] = {
        "lora": [{**job, "dtype": "bf16"}, {**job, "dtype": "fp8"}],
        "counter_tests": False,
        "software_check": False,
        "scope": {"gpu": "H200-SXM"},
    }
    plan, jobs = plan_site(inventory, load_catalogue(["lab", "h200_lora"]))
    held = {(i.params["model"], i.metric): i.reference for i in plan.items if i.test == "lora"}
    assert held["llama2-7b", "samples_per_s"] == "h200-lora-7b-1gpu"
    assert held["llama2-7b-fp8", "samples_per_s"] == "h200-lora-7b-fp8"
    assert held["llama2-7b-fp8", "final_loss"] == "h200-lora-7b-fp8-loss"
    mine = [job for job in jobs.jobs if job.kind == "lora"]
    for item in (i for i in plan.items if i.test == "lora"):
        assert len([j.name for j in mine if j.measures("lora", item.nodes[0], None, None, item.params)]) == 1


@cases(
    "faster, device, kind",
    (30, "NVIDIA H200", "impossible"),
    (0.5, "NVIDIA H200", None),
    (30, "a GPU of ours", None),  # its peak is not known
)
def test_more_than_the_named_gpus_can_is_impossible(faster, device, kind):
    """Catches: 30 times what the GPUs of the log can, on a site that does not say which it has."""
    job = {**JOB, "model": "llama2-7b", "device": "cuda", "dtype": "bf16", "sequence_tokens": 2048}
    spec = TrainingSpec.from_json(job)
    header = parse_trainer(log(device=device)).header
    most = 989.4e12 * 4 / spec.flop_per_token(SHAPES["llama2-7b"])
    found = _impossible(most * faster, spec, header)
    assert (found.kind if found else None) == kind
    record = OutputRecord.model_validate(output_of("trainer", "lora.jsonl", "n1"))
    rates = list(_rates(parse_trainer(log(device=device)), spec, record))
    assert not any(one.problem for one in rates)  # the log's own 1,280 tokens/s can be


def test_ranks_logs_become_one_and_a_resumed_one_goes_on(tmp_path):
    """Catches: a rank's log lost, steps out of order, and a step counted twice after a restart."""
    for rank in (0, 1):
        lines = [{"type": "place", "rank": rank, "node": f"n{rank + 1}", "pid": 1}]
        if rank == 0:
            lines.insert(0, json.loads(log().splitlines()[0]) | {"world_size": 2})
        for step, loss in ((1, 3.0), (2, 2.0), (2, 1.9), (3, 1.0)):
            lines.append(
                {
                    "type": "step",
                    "step": step,
                    "rank": rank,
                    "step_time_s": 0.1,
                    "samples": 8,
                    "tokens": 512,
                    "loss": loss,
                }
            )
        text = "".join(json.dumps(x) + "\n" for x in lines)
        (tmp_path / f"rank.{rank:05d}.jsonl").write_text(text + '{"type": "ste')
    merge(tmp_path, trained=True)
    result = parse_trainer((tmp_path / "lora.jsonl").read_text())
    assert result.header.hosts == ("n1", "n2")
    assert training_run.losses(result.steps) == [(1, 3.0), (2, 1.9), (3, 1.0)]
    assert result.summary is not None and result.summary.samples == 24
    assert not list(tmp_path.glob("rank.*"))


def test_the_rank_that_torchrun_saw_die_first_is_named(tmp_path):
    """Catches: every rank blamed for the death of one. The text is torchrun's own (PyTorch 2.11)."""
    (tmp_path / "lora.jsonl").write_text(log(hosts=["n1", "n1", "n2", "n2"]))
    (tmp_path / "lora.err").write_text(
        "launch.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-11-20_15:00:00\n  host      : n2\n  rank      : 3 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 4711)\n  error_file: <N/A>\n"
    )
    killed = {"kind": "killed", "message": "rank 3 on n2: killed by signal 9"}
    assert reason(tmp_path, 1) == killed
    # Its partner complains of the broken connection, and that is not the cause.
    said = {"kind": "other", "message": "rank 0 on n1: RuntimeError: Connection closed by peer"}
    (tmp_path / "reason.json").write_text(json.dumps(said))
    assert reason(tmp_path, 1) == killed
    said["kind"] = "setup"
    (tmp_path / "reason.json").write_text(json.dumps(said))
    assert reason(tmp_path, 1) == said


@pytest.mark.parametrize("words", ["Root Cause rank", "Root Cause rank : 1 exitcode", "rank ", "exitcode  "])
def test_what_torchrun_says_is_read_in_linear_time(tmp_path, words):
    """Catches: 10 kB of words that took 4 s to read, 100 kB of them for ever."""
    (tmp_path / "lora.err").write_text("Root Cause" + words * (100_000 // len(words)))
    began = time.process_time()
    assert reason(tmp_path, 1)["kind"] == "other"
    assert time.process_time() - began < 1


def test_the_command_quotes_what_a_site_may_name(tmp_path):
    """Catches: a path with a space or a `$` that becomes another command in the batch script."""
    settings = plan_of()[1].jobs[-1].settings
    words = trainer_command(settings, 2, Path("/src"), tmp_path / "a b", "/t/my $(env)/python")
    assert words[0] == "'/t/my $(env)/python'" and f"'{tmp_path}/a b/spec.json'" in words


# Stands for Apptainer, whose words these are: exec, options, the image, the command. Status 9 means that the
# command would not find a file inside.
APPTAINER = f"""#!{sys.executable}
import os, sys
assert sys.argv[1] == "exec"
words, seen = sys.argv[2:], []
while words[0].startswith("--"):
    option = words.pop(0)
    if option == "--bind":
        seen.append(os.path.join(words.pop(0), ""))
    else:
        assert option == "--nv", option
print("image", words.pop(0))
hidden = [w for w in words[1:] if w.startswith("/") and not any(w.startswith(s) for s in seen)]
if hidden:
    sys.exit(9)
print("seen", *seen, sep="|")
print("command", *words, sep="|")
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_container_sees_all_that_the_job_is_given(tmp_path, device):
    """Catches: a job that finds neither its settings, its model nor its data once it is inside the image."""
    apptainer = tmp_path / "bin/apptainer"
    apptainer.parent.mkdir()
    script(apptainer, APPTAINER)
    given = {"model": str(tmp_path / "mo del/config.json"), "data": "/data/dolly.jsonl"}
    settings = {**plan_of()[1].jobs[-1].settings, **given, "device": device}
    out = tmp_path / "runs/r 1/raw/lora.a1"
    image = {"from": {"container": "/img/t.sif"}, "python": "/opt/conda/bin/python"}
    job = plan_of({"pytorch": image})[1].jobs[-1].model_copy(update={"settings": settings})
    words = BENCHMARK.jobs["lora"].launch(job, out).words
    done = ran("bash", "-c", " ".join(words), env={"PATH": f"{apptainer.parent}:/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    image, seen, command = done.stdout.splitlines()
    assert image == "image /img/t.sif" and ("--nv" in words) == (device == "cuda")
    assert {f"{tmp_path}/mo del/", "/data/", f"{tmp_path}/runs/r 1/", f"{SOURCE}/"} <= set(seen.split("|"))
    assert command.split("|")[1:3] == ["/opt/conda/bin/python", "-m"]
    assert command.endswith(f"|{SOURCE}/workloads/lora_trainer/launch.py|{out}/spec.json|{out}")


def test_a_throttled_gpu_of_a_real_job_is_named(recorded_run):
    """Catches: a lag that is lost in real timings. Another program computed on GPU 2 (4 x H200, 7B, ddp)."""
    text = (recorded_run("h200x4_lora_slow_rank") / "raw/lora.llama2-7b.ddp.4.a1/lora.jsonl").read_text()
    result = parse_trainer(text, allow_truncated=True)
    lag = training_run.slowest(training_run.steady(result.steps, 2))
    assert lag is not None and lag.rank == 2 and 2.2 < lag.ratio < 2.4
    # Step times do not tell: they differ by less than 3 % between ranks.
    last = [step.step_time_s for step in result.steps if step.step == 8]
    assert max(last) / min(last) < 1.03


@pytest.mark.parametrize("job", ["lora.llama2-7b.ddp.4", "lora.llama2-70b.fsdp.4"])
def test_expected_traffic_is_what_real_links_carried(job, recorded_run):
    """Catches: a gather or an exchange of gradients left out of what is expected (NVLink counters)."""
    raw = recorded_run("h200x4_lora") / f"raw/{job}.a1"
    result = parse_trainer((raw / "lora.jsonl").read_text())
    spec = TrainingSpec.from_json(json.loads((raw / "spec.json").read_bytes()))
    from shakedown.physics.training import SHAPES

    expected = spec.traffic(SHAPES[spec.model], 1).gpu_bytes
    for step in result.steps:
        if step.step > 1:
            assert step.nvlink_rx_bytes == pytest.approx(expected, rel=0.001)


def test_a_real_job_that_was_cancelled_went_on_where_it_was(recorded_run):
    """Catches: a curve that starts again, an optimiser without its moments, data from the beginning."""

    def losses(run: str, attempt: int) -> dict[int, float]:
        file = recorded_run(run) / f"raw/lora.llama2-7b.ddp.2.a{attempt}/lora.jsonl"
        result = parse_trainer(file.read_text(), allow_truncated=True)
        return {step: loss for step, loss in training_run.losses(result.steps) if loss is not None}

    whole, first, second = (
        losses("h200x2_lora", 1),
        losses("h200x2_lora_resumed", 1),
        losses("h200x2_lora_resumed", 2),
    )
    assert list(first) == list(range(1, 11)) and list(second) == list(range(9, 17))
    for part in (first, second):
        # What a GPU adds up in another order; from one step to the next the loss falls by 1 to 20 %.
        assert part == pytest.approx({step: whole[step] for step in part}, rel=5e-4)


def test_a_number_that_no_counter_can_hold_is_no_traffic(tmp_path):
    """Catches: 400 digits in a counter file that end the reading of a run with a traceback."""
    for when, count in (("before", "0"), ("after", "1" * 400)):
        text = f'{{"devices": [{{"device": "rxe0", "counters": {{"ib.port_rcv_data": {count}}}}}]}}'
        (tmp_path / f"counters.n1.{when}.json").write_text(text)
    assert received_bytes(JobFolder(tmp_path), "n1") is None


@pytest.mark.parametrize("read", ["before", "after"])
def test_a_counter_that_was_read_once_tells_no_traffic(tmp_path, read):
    """Catches: all that a NIC received since it was started, taken for the training's own."""
    for when in ("before", "after"):
        counters = {"netdev.rx_bytes": 10} | ({"ib.port_rcv_data": 10**12} if when == read else {})
        device = {"device": "rxe0", "counters": counters}
        (tmp_path / f"counters.n1.{when}.json").write_text(json.dumps({"taken": TAKEN, "devices": [device]}))
    assert received_bytes(JobFolder(tmp_path), "n1") is None


def test_a_node_that_restarted_tells_no_traffic(tmp_path):
    """Catches: a healthy NIC blamed for the few bytes since its node came back."""
    for when, count, sent in (("before", 100, 1000), ("after", 500, 900)):
        device = {"device": "rxe0", "counters": {"ib.port_rcv_data": count, "netdev.tx_packets": sent}}
        (tmp_path / f"counters.n1.{when}.json").write_text(json.dumps({"taken": TAKEN, "devices": [device]}))
    assert received_bytes(JobFolder(tmp_path), "n1") is None
