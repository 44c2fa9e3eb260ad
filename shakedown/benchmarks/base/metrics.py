"""What a metrics function is given, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
from shakedown.records.results import OutputRecord, Problem
from shakedown.run.job_folder import JobFolder

OrderT_co = TypeVar("OrderT_co", covariant=True)


class NoEvidence(BadInput):
    """The job ran well, and nothing was seen that could decide a cell: it is NOT-RUN, with this reason."""


class Read(NamedTuple):
    """One number that a tool's output gives, with everything that can be said of it."""

    metric: str
    value: float | None
    unit: str
    better: Better
    params: Params  # beyond those of the output
    detail: str = ""  # what the number stands for
    samples: tuple[float, ...] = ()  # repeats behind it
    problem: Problem | None = None  # why there is no number
    disturbed: str = ""  # what else was seen at work on what was measured


# What a metrics function yields is a `Read`, or its first fields as a plain tuple.
Value = (
    tuple[str, float | None, str, Better, Params]
    | tuple[str, float | None, str, Better, Params, str]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...]]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...], Problem | None]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...], Problem | None, str]
)


class Moved(NamedTuple):
    """Payload that an output says went over a node's NICs, in bytes.

    `rail` None: over any of them.
    """

    node: str
    rail: str | None
    sent: float
    received: float


@dataclass(frozen=True)
class Output(Generic[OrderT_co]):
    """One tool's own output and what was ordered of it.

    Attributes:
        text: what the tool wrote.
        record: the journal's line, which says what cells the output measures.
        order: the settings of the job, as the planner ordered them: from `jobs.json`, never from the copy
            among the raw files, which the job could have changed.
        folder: what else the job left.
    """

    text: str
    record: OutputRecord
    order: OrderT_co
    folder: JobFolder

    @property
    def file(self) -> Path:
        """Where the output lies, for messages."""
        return self.folder.path / self.record.file

    @property
    def node(self) -> str:
        """The first of the nodes that were measured."""
        return self.record.nodes[0]


# Raises BadInput for an output that cannot be read, or that is of something else than what was ordered;
# NoEvidence where it could be read and decides nothing.
Metrics = Callable[[Output[Any]], Iterator[Value]]
