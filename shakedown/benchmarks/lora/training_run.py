"""What a training log says: rates, loss, and which rank lags. Pure functions of the steps of all ranks.

Ranks of one job step together, so all of them take as long as the slowest: step times cannot show which rank
that is. Each rank's own computing can, the part of a step in which it waits for no other rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Protocol

# The final loss is the mean of this many last steps: one batch says little.
FINAL_STEPS = 5


class Step(Protocol):
    """One step as one rank saw it; `shakedown.benchmarks.lora.output.TrainerStep`."""

    @property
    def step(self) -> int: ...  # noqa: D102
    @property
    def rank(self) -> int: ...  # noqa: D102
    @property
    def step_time_s(self) -> float: ...  # noqa: D102
    @property
    def samples(self) -> int: ...  # noqa: D102
    @property
    def tokens(self) -> int: ...  # noqa: D102
    @property
    def loss(self) -> float | None: ...  # noqa: D102
    @property
    def compute_s(self) -> float | None: ...  # noqa: D102
    @property
    def comm_s(self) -> float | None: ...  # noqa: D102


@dataclass(frozen=True)
class Lag:
    """The rank that computes longest: its median over the median of all others' medians."""

    rank: int
    ratio: float


def by_step(steps: Iterable[Step]) -> dict[int, list[Step]]:
    """Return the ranks' records of each step, in order."""
    found: dict[int, list[Step]] = {}
    for step in steps:
        found.setdefault(step.step, []).append(step)
    return dict(sorted(found.items()))


def steady(steps: Sequence[Step], warmup_steps: int) -> list[Step]:
    """Return the steps after the first of a log, which compile and warm up."""
    first = min((step.step for step in steps), default=1)
    return [step for step in steps if step.step >= first + warmup_steps]


def step_times_s(steps: Sequence[Step]) -> list[float]:
    """Return how long each step took: as long as its slowest rank."""
    return [max(s.step_time_s for s in ranks) for ranks in by_step(steps).values()]


def samples_per_s(steps: Sequence[Step]) -> float:
    """Return samples over time."""
    return sum(ranks[0].samples for ranks in by_step(steps).values()) / sum(step_times_s(steps))


def tokens_per_s(steps: Sequence[Step]) -> float:
    """Return tokens over time."""
    return sum(ranks[0].tokens for ranks in by_step(steps).values()) / sum(step_times_s(steps))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def losses(steps: Sequence[Step]) -> list[tuple[int, float | None]]:
    """Return the loss of each step, the mean over ranks; None if a rank had none."""
    curve: list[tuple[int, float | None]] = []
    for step, ranks in by_step(steps).items():
        found = [s.loss for s in ranks if s.loss is not None]
        curve.append((step, fmean(found) if len(found) == len(ranks) else None))
    return curve


def final_loss(steps: Sequence[Step]) -> float | None:
    """Return the mean loss of the last steps, None if one of them had none."""
    last = [loss for _, loss in losses(steps)][-FINAL_STEPS:]
    found = [loss for loss in last if loss is not None]
    return fmean(found) if found and len(found) == len(last) else None


def nonfinite(steps: Sequence[Step]) -> list[Step]:
    """Return every rank's steps without a finite loss."""
    return [step for step in steps if step.loss is None]


def slowest(steps: Sequence[Step]) -> Lag | None:
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


def lag_by_step(steps: Sequence[Step]) -> dict[tuple[int, int], float]:
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


def comm_share(steps: Sequence[Step]) -> float | None:
    """Return the share of time lost to communication, over ranks and over the steps that tell it.

    The first step of a log is left out: there ranks wait for each other to compile.
    """
    first = min((s.step for s in steps), default=0)
    told = [(s.comm_s, s.step_time_s) for s in steps if s.comm_s is not None and s.step > first]
    total = sum(t for _, t in told)
    return sum(c for c, _ in told if c is not None) / total if total > 0 else None


def without_comm(steps: Sequence[Step]) -> set[int]:
    """Return the ranks that do not tell their communication at some step at which another rank does."""
    told: dict[int, set[int]] = {}
    for step in steps:
        if step.comm_s is not None:
            told.setdefault(step.step, set()).add(step.rank)
    return {step.rank for step in steps if step.rank not in told.get(step.step, {step.rank})}
