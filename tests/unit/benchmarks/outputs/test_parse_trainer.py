"""The trainer's log: complete or refused; steps in order for every rank."""

import captured
import pytest

from shakedown.benchmarks.lora.output import TrainerHeader, TrainerStep, TrainerSummary, parse_trainer
from shakedown.records.errors import BadInput

LOG = captured.read("trainer_synthetic_2ranks.jsonl")
LINES = LOG.splitlines()


def test_values():
    """Catches a field dropped between what the trainer writes and what the verdict reads."""
    result = parse_trainer(LOG)
    assert (result.header.method, result.header.world_size, result.header.hosts) == ("lora", 2, ("n1", "n2"))
    step = result.steps[0]
    assert (step.step, step.rank, step.step_time_s, step.samples, step.tokens) == (1, 0, 3.25, 8, 65536)
    assert (step.loss, step.grad_norm, step.memory_bytes) == (1.41, 0.9, 64424509440)
    assert (step.power_w, step.comm_s, step.mfu) == (612.5, 0.021, 0.37)
    assert result.steps[1].loss is None
    assert result.summary is not None
    assert (result.summary.steps, result.summary.samples_per_s) == (2, 2.46)


def test_what_the_models_write_is_read_back():
    """Catches a writer and a reader that drift apart."""
    result = parse_trainer(LOG)
    records: list[TrainerHeader | TrainerStep | TrainerSummary | None] = [
        result.header,
        *result.steps,
        result.summary,
    ]
    text = "".join(x.model_dump_json(exclude_none=True) + "\n" for x in records if x is not None)
    assert parse_trainer(text) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n".join(LINES[:-1]) + "\n", "ends before the summary"),
        (LOG[:-20], "ends before the end of its last line"),
        ("\n".join(LINES[1:]) + "\n", "first line is not the header"),
        (LOG + LINES[1] + "\n", "line after the summary"),
        ("\n".join([LINES[0], *LINES]) + "\n", "second header"),
        ("\n".join([*LINES[:3], *LINES[4:]]) + "\n", "the summary counts 2 steps, the log has"),
        ("\n".join([*LINES[:1], *LINES[3:]]) + "\n", "step 2 of rank 0 after step 0"),
        ("\n".join([*LINES[:2], *LINES[1:]]) + "\n", "step 1 of rank 0 after step 1"),
        (LOG.replace('"rank":1', '"rank":2', 1), "rank 2 of a job of 2"),
        (LOG.replace('"loss":1.41', '"loss":NaN'), "not a finite number"),
        (LOG.replace('"loss":1.41', '"loss":1e999'), "finite number"),
        (LOG.replace('"loss":1.41', '"loss":"1.41"'), "loss"),
        (LOG.replace('"step_time_s":3.25', '"step_time_s":0', 1), "step_time_s"),
        (LOG.replace('"step_time_s":3.25', '"step_time":3.25', 1), "step_time"),
        (LOG.replace('"type":"step"', '"type":"stop"', 1), "unknown type 'stop'"),
        (LOG.replace('"schema_version":1', '"schema_version":2'), "schema_version"),
        ("\n".join([LINES[0], LINES[-1]]) + "\n", "the log has none"),
    ],
)
def test_damaged_logs_are_refused(text, message):
    """Catches a killed job's log taken for a finished one, and a lost step."""
    assert text != LOG
    with pytest.raises(BadInput, match=message):
        parse_trainer(text)


def test_a_truncated_log_on_request():
    """Catches a half-written last line read as a step."""
    cut = "\n".join(LINES[:4]) + "\n" + LINES[4][:30]
    result = parse_trainer(cut, allow_truncated=True)
    assert result.summary is None
    assert [(step.step, step.rank) for step in result.steps] == [(1, 0), (1, 1), (2, 0)]
    with pytest.raises(BadInput, match=r"not JSON|ends before"):
        parse_trainer(cut + "\n", allow_truncated=True)  # the line was ended, so it is damaged, not cut off
