"""Fine-tuning from plan to verdict on two nodes of one process each, healthy and with planted faults.

They need the training environment (`make training-env`) and are skipped, with that command, where it is
missing.
"""

import contextlib
import json
import os
import signal
import threading
import time

import pytest

SEEN_WITHIN_S = 60
pytestmark = pytest.mark.timeout(1200)  # PyTorch takes minutes to start on a busy machine


def test_a_healthy_job_learns_and_passes(training):
    """Catches: a trainer that does not learn, cells without values, a loss bound that nothing reaches, and
    training alone taken for an acceptance of the fabric between the nodes."""
    run = training(steps=100)
    run.start()
    assert run.wait() == 0
    verdict = run.verdict()
    assert sum(group.outcomes["PASS"] for group in verdict.groups) == 4
    assert verdict.outcome == "NOT-RUN"
    assert verdict.reason == "rail rail0 is in the plan, but no required cell measures it"
    losses = run.losses()
    assert losses[1] > 6 and losses[100] < 0.8


@pytest.mark.parametrize("rate", [1e-5, 0.03])
def test_a_wrong_learning_rate_fails_convergence_and_not_throughput(training, rate):
    """Catches: convergence and throughput gated by one number, and training that learns nothing but is
    fast."""
    # Lag is left out: whoever else computes on this machine slows one of two processes more than the other.
    metrics = ["samples_per_s", "final_loss", "nonfinite_steps"]
    run = training(steps=100, learning_rate=rate, metrics=metrics)
    run.start()
    assert run.wait() == 0
    cells = run.cells()
    assert {metric for metric, (outcome, _) in cells.items() if outcome != "PASS"} == {"final_loss"}
    assert cells["final_loss"][0] == "FAIL" and f"learning rate {rate:g}" in cells["final_loss"][1]


def test_layouts_train_the_same_curve(training):
    """Catches: gradients summed instead of averaged, counted twice over split weights, or lost in a
    layout."""
    curves = {}
    for layout in ("ddp", "fsdp", "tp"):
        two = layout == "tp"  # tensor parallelism is within a node
        run = training(layout, layout=layout, steps=8, gpus_per_node=2 if two else 1, global_batch=8)
        run.start()
        assert run.wait() == 0
        log = [json.loads(x) for x in (run.out / "lora.jsonl").read_text().splitlines()]
        steps = [x for x in log if x["type"] == "step"]
        curves[layout] = {
            n: (
                sum(s["loss"] for s in steps if s["step"] == n) / sum(s["step"] == n for s in steps),
                steps[-1]["grad_norm"],
            )
            for n in range(1, 9)
        }
    for step, wanted in curves["ddp"].items():
        assert curves["fsdp"][step] == pytest.approx(wanted, rel=1e-3)
        assert curves["tp"][step] == pytest.approx(wanted, rel=1e-3)


def test_a_killed_job_resumes_on_the_same_curve(training):
    """Catches: a killed rank without a name, a curve that starts again, an optimiser that forgot its
    moments."""
    whole = training("whole", steps=24)
    whole.start()
    assert whole.wait() == 0
    run = training(steps=24, checkpoint_every=5)
    run.start()
    os.kill(run.rank(1, past_step=12), signal.SIGKILL)
    killed = time.monotonic()
    assert run.wait() != 0
    assert time.monotonic() - killed < SEEN_WITHIN_S
    assert "rank 1 on n2: killed by signal 9" in run.cells()["samples_per_s"][1]
    run.start(attempt=2)
    assert run.wait() == 0
    resumed, uninterrupted = run.losses(), whole.losses()
    assert min(resumed) in {11, 16} and max(resumed) == 24  # after the last checkpoint before the kill
    assert resumed == pytest.approx({step: uninterrupted[step] for step in resumed}, rel=1e-3)
    # A pass on retry is no pass.
    assert run.cells()["samples_per_s"][0] == "INCONCLUSIVE"


def test_a_slow_rank_is_named(training):
    """Catches: one throttled process that slows all ranks alike, so that no step time tells who it is."""
    run = training(steps=30)
    run.start()
    victim = run.rank(1, past_step=1)
    stop = threading.Event()

    def throttle() -> None:
        while not stop.wait(0.08):
            try:
                os.kill(victim, signal.SIGSTOP)
                time.sleep(0.16)
                os.kill(victim, signal.SIGCONT)
            except ProcessLookupError:
                return

    thread = threading.Thread(target=throttle)
    thread.start()
    code = run.wait()
    stop.set()
    thread.join()
    assert code == 0
    outcome, reason = run.cells()["rank_skew"]
    assert outcome == "FAIL" and "slowest is rank 1 on n2" in reason


def test_a_hung_rank_is_named(training):
    """Catches: a collective that waits for half an hour for a rank that is stopped."""
    run = training(steps=400)
    run.start()
    victim = run.rank(1, past_step=5)
    os.kill(victim, signal.SIGSTOP)
    stopped = time.monotonic()
    code = run.wait()
    ended = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)  # Slurm ends what is left of a step
    assert code != 0 and ended - stopped < SEEN_WITHIN_S
    outcome, reason = run.cells()["samples_per_s"]
    assert outcome == "INCONCLUSIVE" and "rank 1 on n2: no sign of life" in reason


@pytest.mark.parametrize("node", [0, 1])
def test_a_lost_node_is_named(training, node):
    """Catches: a node that vanishes without a word, be it the one that serves the job's store or another."""
    run = training(steps=400)
    run.start()
    victim = run.rank(node, past_step=5)
    launcher = json.loads((run.out / "pids.json").read_text())[node]
    # No word leaves a node that is gone: stopped processes send nothing and close nothing.
    for pid in (launcher, victim):
        os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    while not (run.out / "reason.json").exists():
        assert time.monotonic() - stopped < SEEN_WITHIN_S
        time.sleep(0.5)
    for pid in (victim, launcher):  # Slurm would see to them
        os.kill(pid, signal.SIGKILL)
    assert run.wait() != 0
    reason = run.cells()["samples_per_s"][1]
    assert (f"rank {node} on n{node + 1}" in reason) or (node == 0 and "store no longer answers" in reason)


def test_gradients_that_are_not_finite_fail(training):
    """Catches: NaN written as a number, or a diverged job taken for one that did not run."""
    run = training(steps=40, learning_rate=1e25)
    run.start()
    assert run.wait() == 0
    cells = run.cells()
    assert cells["nonfinite_steps"][0] == "FAIL" and "rank 0 on n1" in cells["nonfinite_steps"][1]
    assert cells["final_loss"][0] == "INCONCLUSIVE"


GOOD = '{"instruction": "say leaf", "context": "", "response": "leaf"}\n'


@pytest.mark.parametrize(
    ("changes", "content", "told"),
    [
        ({"model": "/nowhere/llama", "metrics": ["samples_per_s"]}, "", "no model there"),
        ({"data": "/nowhere/dolly.jsonl"}, "", "cannot be read"),
        ({"data": "{file}"}, GOOD + "\n" + GOOD, ":2: an empty line"),
        ({"data": "{file}"}, GOOD + '{"instruction": "say', ":2: not a sample"),
        ({"data": "{file}"}, GOOD + GOOD.replace('"leaf"', '" "'), ":2: a sample without"),
        ({"data": "{file}"}, GOOD, "do not fill one sequence"),
    ],
)
def test_bad_input_is_named(training, tmp_path, changes, content, told):
    """Catches: training on half a dataset, a traceback instead of a line, a job that waits for its time
    limit."""
    file = tmp_path / "dolly.jsonl"
    file.write_text(content)
    placed = {k: v.replace("{file}", str(file)) if isinstance(v, str) else v for k, v in changes.items()}
    run = training(**placed)
    run.start()
    assert run.wait() != 0
    outcome, reason = run.cells()["samples_per_s"]
    assert outcome == "INCONCLUSIVE" and told in reason


def test_dolly_by_path_trains(training, tmp_path):
    """Catches: a reader of dolly-15k's fields that drops the response."""
    file = tmp_path / "dolly.jsonl"
    file.write_text(GOOD * 400)
    run = training(data=str(file), steps=30)
    run.start()
    assert run.wait() == 0
    assert run.losses()[30] < run.losses()[1] / 2


def test_a_missing_tokenizer_is_named(training, tmp_path):
    """Catches: a model without tokenizer that trains on something else."""
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama/config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
    run = training(model=str(tmp_path / "llama"), metrics=["samples_per_s"])
    run.start()
    assert run.wait() != 0
    assert "tokenizer is missing" in run.cells()["samples_per_s"][1]


def test_a_missing_environment_is_named_with_its_command(training, tmp_path):
    """Catches: an environment that was removed after planning."""
    run = training(python=str(tmp_path / "none/bin/python"))
    run.start()
    assert run.wait() == 127
    assert "make training-env" in run.cells()["samples_per_s"][1]
