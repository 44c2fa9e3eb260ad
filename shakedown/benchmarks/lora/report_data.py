"""What the report draws of training beyond its measurements, from the trainer's logs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from shakedown.benchmarks.lora import training_run
from shakedown.benchmarks.lora.metrics import received_bytes
from shakedown.benchmarks.lora.output import TrainerResult, parse_trainer
from shakedown.records.base import Stage
from shakedown.records.errors import BadInput
from shakedown.records.reading import open_plain
from shakedown.records.results import Measurement
from shakedown.run.job_folder import JobFolder

MOST_LOGS = 8
LARGEST_LOG = 64 << 20


@dataclass(frozen=True)
class Series:
    """A curve that a tool wrote itself, such as the training loss by step."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Traffic:
    """What a GPU or node should receive per training step, and what its counters say (None: no counter)."""

    where: str
    expected_bytes: float
    measured_bytes: float | None


@dataclass(frozen=True)
class Training:
    """One training log: loss and rate by step, each rank's lag by (rank, step), traffic."""

    loss: Series
    samples_per_s: tuple[float, ...]
    ranks: tuple[str, ...]
    lag: Mapping[tuple[int, int], float]
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True)
class _Log:
    path: str
    result: TrainerResult


def read_trainings(run: Path, measurements: Iterable[Measurement]) -> tuple[Training, ...]:
    """Return every trainer log among the raw outputs of the application stage.

    A log that was cut off is drawn as far as it goes; one that is no trainer log, or a damaged one, is
    passed over: what it means for the verdict was decided when its measurement was judged.
    """
    paths = dict.fromkeys(m.raw for m in measurements if m.stage is Stage.APPLICATION and m.raw)
    found: list[Training] = []
    for path in paths:
        if len(found) == MOST_LOGS:
            break
        try:
            with open_plain(run / path) as file:
                content = file.read(LARGEST_LOG)
            result = parse_trainer(content.decode(), file=path, allow_truncated=True)
        except (BadInput, UnicodeDecodeError):
            continue
        if any(step.loss is not None for step in result.steps):
            found.append(_training(run, _Log(path, result)))
    return tuple(found)


def _training(run: Path, log: _Log) -> Training:
    result, header = log.result, log.result.header
    label = f"{header.model}, {header.method}, {header.precision}, {header.parallelism}"
    ranks = f"{header.world_size:,} rank{'' if header.world_size == 1 else 's'}"
    label += f", {ranks}" if header.device else ""
    told = [step for step in result.steps if step.loss is not None]
    # Where only some ranks report a loss, theirs is the job's; where all do, their mean.
    reporting = {step.rank for step in told}
    curve = training_run.losses([step for step in result.steps if step.rank in reporting])
    steps = tuple(float(step) for step, _ in curve)
    return Training(
        loss=Series(label, steps, tuple(math.nan if loss is None else loss for _, loss in curve)),
        samples_per_s=tuple(
            ranks[0].samples / max(s.step_time_s for s in ranks)
            for ranks in training_run.by_step(result.steps).values()
        ),
        ranks=tuple(
            f"rank {rank}" + (f", {header.hosts[rank]}" if len(header.hosts) == header.world_size else "")
            for rank in range(header.world_size)
        ),
        lag=training_run.lag_by_step(result.steps),
        traffic=tuple(_traffic(run, log)),
    )


def _traffic(run: Path, log: _Log) -> Iterable[Traffic]:
    """Yield what each GPU and each node should have received per step, and what its counters say."""
    header, result = log.result.header, log.result
    count = len({step.step for step in result.steps}) or 1
    if header.expected_gpu_rx_bytes:
        links = [step.nvlink_rx_bytes for step in result.steps if step.nvlink_rx_bytes is not None]
        yield Traffic("each GPU, all links", header.expected_gpu_rx_bytes, fmean(links) if links else None)
    if header.expected_node_rx_bytes:
        for node in sorted(set(header.hosts)):
            received = received_bytes(JobFolder((run / log.path).parent), node)
            measured = None if received is None else received / count
            yield Traffic(f"{node}, fabric NICs", header.expected_node_rx_bytes, measured)
