"""The trainer's log, JSON lines (a `header`, `step` lines, a `summary`), and what its steps say."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from pydantic import Field

from shakedown.records.base import Name, Record
from shakedown.records.tool_text import Amount, Count, Line, TextSource, quote

# The models below are the format. A loss that is not finite is left out, never written as NaN. A log is
# complete with its summary. `shakedown.benchmarks.lora.job` makes it of what the ranks of `lora_trainer`
# wrote.

Finite = Annotated[float, Field(allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1, lt=1 << 63)]


class TrainerHeader(Record):
    """What is trained, and on what: the first line."""

    type: Literal["header"] = "header"
    schema_version: Literal[1] = 1
    model: str
    method: Literal["full", "lora", "synthetic"]
    precision: str  # bf16, fp16, fp32, fp8
    parallelism: str  # ddp, fsdp, tp8, ...
    world_size: Size
    hosts: tuple[Name, ...] = ()  # the node of each rank
    sequence_length: Size
    global_batch_samples: Size
    micro_batch_samples: Size
    steps: Size  # planned
    parameters: Size
    trainable_parameters: Count
    flop_per_token: Amount | None = None
    peak_flop_per_s_per_gpu: Amount | None = None
    seed: Count | None = None
    device: str | None = None  # as its driver names it
    lora_rank: Size | None = None
    learning_rate: Amount | None = None
    data: str | None = None
    weights: Literal["random", "loaded"] | None = None  # with random ones, the loss proves mechanics only
    software: dict[str, str] = Field(default_factory=dict)
    # What collectives should move per step, by shakedown.physics.training.lora_step_traffic.
    expected_gpu_rx_bytes: Amount | None = None
    expected_node_rx_bytes: Amount | None = None
    # One rank's forward and backward of a step without any exchange, as measured before the training.
    alone_step_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    resumed_from: Size | None = None  # the log begins after this step, with what a checkpoint held


class TrainerStep(Record):
    """One optimiser step as one rank saw it. `samples` and `tokens` count the whole job's."""

    type: Literal["step"] = "step"
    step: Size
    rank: Count
    step_time_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    samples: Count
    tokens: Count
    loss: Finite | None = None  # None: not finite, or not known on this rank
    grad_norm: Amount | None = None
    memory_bytes: Count | None = None  # peak allocated on this rank's GPU
    power_w: Amount | None = None  # this rank's GPU, mean over the step
    comm_s: Amount | None = None  # time in collectives that was not hidden
    compute_s: Amount | None = None  # time in this rank's own computing, not waiting for others
    nvlink_rx_bytes: Count | None = None  # over all NVLinks of this rank's GPU
    mfu: Ratio | None = None  # model FLOP utilisation; above 1 is impossible, and for the verdict to say


class TrainerSummary(Record):
    """What the job did: the last line."""

    type: Literal["summary"] = "summary"
    steps: Size  # done
    elapsed_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    aside_s: Amount = 0.0  # of it between the steps: a profile read, checkpoints written
    samples: Count
    tokens: Count
    samples_per_s: Amount
    tokens_per_s: Amount
    final_loss: Finite | None = None
    eval_loss: Finite | None = None
    mfu: Ratio | None = None


class TrainerResult(Record):
    """A training run. `summary` is None only if a truncated log was allowed."""

    tool: Literal["trainer"] = "trainer"
    header: TrainerHeader
    steps: tuple[TrainerStep, ...]
    summary: TrainerSummary | None


_LINES: dict[str, type[Record]] = {"header": TrainerHeader, "step": TrainerStep, "summary": TrainerSummary}


def parse_trainer(
    text: str,  # the log
    *,
    file: str | Path | None = None,  # the name to quote when it is refused
    allow_truncated: bool = False,  # accept a log without its summary, and drop a last line that was cut off
) -> TrainerResult:
    """Parse a trainer log.

    Raises BadInput: truncated, a line that is not one of the three kinds, steps missing or out of order.
    """
    source = TextSource(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    records = []
    for line in lines:
        cut_off = line is lines[-1] and allow_truncated and not source.terminated
        if cut_off and not line.text.rstrip().endswith("}"):
            break
        records.append((line, _record(source, line, last=line is lines[-1])))
    header, steps, summary = _order(source, records, allow_truncated)
    _check_steps(source, header, steps, summary)
    result_steps = tuple(step for _, step in steps)
    return source.build(TrainerResult, header=header, steps=result_steps, summary=summary)


def _record(source: TextSource, line: Line, *, last: bool) -> Record:
    if last and not source.terminated and not line.text.rstrip().endswith("}"):
        source.ends_before(
            "the end of its last line", fix="run it again, or pass --partial to read what is there"
        )
    data = source.json(line.text, line=line)
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _LINES:
        source.refuse(
            f"a line of unknown type {quote(kind)}", line=line, fix="header, step and summary are known"
        )
    return source.validate(_LINES[kind], data, line=line)


def _order(
    source: TextSource, records: list[tuple[Line, Record]], allow_truncated: bool
) -> tuple[TrainerHeader, list[tuple[Line, TrainerStep]], TrainerSummary | None]:
    header = records[0][1] if records else None
    if not isinstance(header, TrainerHeader):
        source.refuse("the first line is not the header", line=records[0][0] if records else None)
    summary = None
    steps = []
    for line, record in records[1:]:
        if summary is not None:
            source.refuse("a line after the summary", line=line, fix="keep one run a file")
        if isinstance(record, TrainerSummary):
            summary = record
        elif isinstance(record, TrainerStep):
            steps.append((line, record))
        else:
            source.refuse("a second header", line=line, fix="keep one run a file")
    if summary is None and not allow_truncated:
        source.ends_before("the summary", fix="run it again, or pass --partial to read what is there")
    return header, steps, summary


def _check_steps(
    source: TextSource,
    header: TrainerHeader,
    steps: list[tuple[Line, TrainerStep]],
    summary: TrainerSummary | None,
) -> None:
    """Every rank that writes steps writes all of them, in order, from 1 (or where it resumed) to the last."""
    last: dict[int, int] = {}
    before = header.resumed_from or 0
    for line, step in steps:
        if step.rank >= header.world_size:
            source.refuse(f"rank {step.rank} of a job of {header.world_size}", line=line)
        if step.step != last.get(step.rank, before) + 1:
            what = f"step {step.step} of rank {step.rank} after step {last.get(step.rank, before)}"
            source.refuse(f"{what}: steps are missing or doubled", line=line)
        last[step.rank] = step.step
    if summary is not None and set(last.values()) != {summary.steps}:
        done = ", ".join(f"rank {rank}: {count}" for rank, count in sorted(last.items())[:8]) or "none"
        source.refuse(
            f"the summary counts {summary.steps} steps, the log has {done}",
            line=steps[-1][0] if steps else None,
        )


# Ranks of one job step together, so all of them take as long as the slowest: step times cannot show which
# rank that is. Each rank's own computing can, the part of a step in which it waits for no other rank.

FINAL_STEPS = 5  # the final loss is the mean of this many last steps: one batch says little


@dataclass(frozen=True)
class Lag:
    """The rank that computes longest: its median over the median of all others' medians."""

    rank: int
    ratio: float


def by_step(steps: Iterable[TrainerStep]) -> dict[int, list[TrainerStep]]:
    """Return the ranks' records of each step, in order."""
    found: dict[int, list[TrainerStep]] = {}
    for step in steps:
        found.setdefault(step.step, []).append(step)
    return dict(sorted(found.items()))


def steady(steps: Sequence[TrainerStep], warmup_steps: int) -> list[TrainerStep]:
    """Return the steps after the first of a log, which compile and warm up."""
    first = min((step.step for step in steps), default=1)
    return [step for step in steps if step.step >= first + warmup_steps]


def step_times_s(steps: Sequence[TrainerStep]) -> list[float]:
    """Return how long each step took: as long as its slowest rank."""
    return [max(s.step_time_s for s in ranks) for ranks in by_step(steps).values()]


def samples_per_s(steps: Sequence[TrainerStep]) -> float:
    """Return samples over time."""
    return sum(ranks[0].samples for ranks in by_step(steps).values()) / sum(step_times_s(steps))


def tokens_per_s(steps: Sequence[TrainerStep]) -> float:
    """Return tokens over time."""
    return sum(ranks[0].tokens for ranks in by_step(steps).values()) / sum(step_times_s(steps))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def losses(steps: Sequence[TrainerStep]) -> list[tuple[int, float | None]]:
    """Return the loss of each step, the mean over ranks; None if a rank had none."""
    curve: list[tuple[int, float | None]] = []
    for step, ranks in by_step(steps).items():
        found = [s.loss for s in ranks if s.loss is not None]
        curve.append((step, fmean(found) if len(found) == len(ranks) else None))
    return curve


def final_loss(steps: Sequence[TrainerStep]) -> float | None:
    """Return the mean loss of the last steps, None if one of them had none."""
    last = [loss for _, loss in losses(steps)][-FINAL_STEPS:]
    found = [loss for loss in last if loss is not None]
    return fmean(found) if found and len(found) == len(last) else None


def nonfinite(steps: Sequence[TrainerStep]) -> list[TrainerStep]:
    """Return every rank's steps without a finite loss."""
    return [step for step in steps if step.loss is None]


def slowest(steps: Sequence[TrainerStep]) -> Lag | None:
    """Return the rank that computes longest, None where fewer than two ranks say how long they compute."""
    own: dict[int, list[float]] = {}
    for step in steps:
        if step.compute_s is not None:
            own.setdefault(step.rank, []).append(step.compute_s)
    medians = {rank: median(times) for rank, times in own.items()}
    if len(medians) < 2:
        return None
    rank = max(medians, key=lambda r: medians[r])
    others = median(m for r, m in medians.items() if r != rank)
    return Lag(rank, medians[rank] / others) if others > 0 else None


def lag_by_step(steps: Sequence[TrainerStep]) -> dict[tuple[int, int], float]:
    """Return each rank's computing over the median of all ranks' at the same step, by (rank, step).

    The first step of a log is left out: there each rank compiles as long as it takes.
    """
    found = {}
    for number, ranks in list(by_step(steps).items())[1:]:
        own = [(s.rank, s.compute_s) for s in ranks if s.compute_s is not None]
        centre = median(t for _, t in own) if own else 0.0
        if centre > 0:
            found.update({(rank, number): t / centre for rank, t in own})
    return found


def comm_share(steps: Sequence[TrainerStep]) -> float | None:
    """Return the share of time lost to communication, over ranks and over the steps that tell it.

    The first step of a log is left out: there ranks wait for each other to compile.
    """
    first = min((s.step for s in steps), default=0)
    told = [(s.comm_s, s.step_time_s) for s in steps if s.comm_s is not None and s.step > first]
    total = sum(t for _, t in told)
    return sum(c for c, _ in told if c is not None) / total if total > 0 else None


def without_comm(steps: Sequence[TrainerStep]) -> set[int]:
    """Return the ranks that do not tell their communication at some step at which another rank does."""
    told: dict[int, set[int]] = {}
    for step in steps:
        if step.comm_s is not None:
            told.setdefault(step.step, set()).add(step.rank)
    return {step.rank for step in steps if step.rank not in told.get(step.step, {step.rank})}


_NOISES = 5  # of a mean of FINAL_STEPS steps against another: none of a million by chance
_LEAST_NOISE = 0.01  # of the loss, where steps scatter less
# How many noises a whole log's fall must be to be one, and how many more for each step: by chance 1 of 1,000
# flat losses passes, and of 8 steps, whose noise is hardly known, 1 of 100.
_FALL, _FALL_FEW = 3, 15
_LEAST_STEPS = 6  # fewer tell nothing of a trend
_TELLING_STEPS = 30  # of fewer, five more or less say nothing of all: `unlearnt` does


def _scatter(losses: Sequence[float]) -> float:
    """Return how far single steps lie from a straight line, as a standard deviation."""
    bends = [abs(a - 2 * b + c) for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)]
    return median(bends) / 1.652  # of normal ones: 0.6745 x the root of 6


def astray(steps: Sequence[TrainerStep], warmup_steps: int, *, falls: bool) -> list[str]:
    """Return the steps at which the loss lies beyond where it was after the warm-up, and by how much.

    Also that it ends above where it had come to. Means of FINAL_STEPS steps are compared; their noise is that
    from step to step. `falls`: it must also end below its start.
    """
    whole = [(step, loss) for step, loss in losses(steps) if loss is not None]
    curve = [(step, loss) for step, loss in losses(steady(steps, warmup_steps)) if loss is not None]
    if len(curve) < 2 * FINAL_STEPS:
        curve = whole
    if len(curve) < 2 * FINAL_STEPS:
        return []
    means = [
        fmean(loss for _, loss in curve[at : at + FINAL_STEPS]) for at in range(len(curve) - FINAL_STEPS + 1)
    ]
    start, end = means[0], means[-1]
    noise = max(_scatter([loss for _, loss in curve]), _LEAST_NOISE * abs(start)) * math.sqrt(2 / FINAL_STEPS)
    found = [
        f"{mean:.3g} at step {step}, {start:.3g} at its start"
        for (step, _), mean in zip(curve[FINAL_STEPS - 1 :], means, strict=True)
        if mean > start + _NOISES * noise
    ]
    # One easy batch makes a mean of five low: a tenth of the log is held against its lowest, by medians.
    tenth = max(FINAL_STEPS, len(curve) // 10)
    centres = [median(loss for _, loss in curve[at : at + tenth]) for at in range(len(curve) - tenth + 1)]
    lowest = min(centres)
    if not found and centres[-1] > lowest + _NOISES * noise:
        step = curve[centres.index(lowest) + tenth - 1][0]
        found = [f"{lowest:.3g} until step {step}, and it ends at {centres[-1]:.3g}: it rises again"]
    if not found and falls and end >= start and len(curve) >= _TELLING_STEPS:
        found = [f"from {start:.3g} to {end:.3g}: it does not fall"]
    return found


def unlearnt(steps: Sequence[TrainerStep]) -> tuple[bool, str]:
    """Return whether a log's loss surely does not fall, and why it is not known to fall; empty if it does.

    The mean of its last third is held against that of its first.
    """
    curve = [loss for _, loss in losses(steps) if loss is not None]
    if len(curve) < _LEAST_STEPS:
        return False, f"{len(curve)} steps do not tell whether the loss falls"
    third = len(curve) // 3
    start, end = fmean(curve[:third]), fmean(curve[-third:])
    noise = _scatter(curve) * math.sqrt(2 / third)
    told = f"from {start:.3g} in the first third to {end:.3g} in the last"
    # A few steps of a healthy training may end above their start by chance.
    flat = start - end <= 1e-9 * abs(start)
    if flat and (len(curve) >= _TELLING_STEPS or end - start >= _FALL * noise):
        return True, f"{told}: the loss does not fall"
    if start - end < (_FALL + _FALL_FEW / len(curve)) * noise:
        return False, f"{told}, {(start - end) / noise:.1f} times its noise: not known to fall"
    return False, ""
