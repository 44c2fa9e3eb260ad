"""How long a plan is expected to take, how long it may take, and what it leaves out: parts of `plan.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shakedown.records.base import Name, Record, Stage

Words = Annotated[str, Field(min_length=1, max_length=1000)]
Seconds = Annotated[int, Field(ge=0)]


class StageTime(Record):
    """Wall time of one stage, with its jobs side by side where they need different nodes."""

    stage: Stage  # rung of the ladder
    jobs: int = Field(ge=1)  # Slurm jobs of it
    at_once: int = Field(ge=1)  # most jobs that run side by side
    expected_s: Seconds  # wall time if all goes well
    limit_s: (
        Seconds  # every job at its own time limit; what a stage is ended at has time for Slurm's queue too
    )
    expected_node_s: Seconds  # nodes x seconds that jobs hold them
    limit_node_s: Seconds  # the same where every job takes its limit
    # Jobs of which nothing measured says how long they take; they are expected to take their limit.
    unknown: int = Field(default=0, ge=0)


class Expectation(Record):
    """Wall time of the whole plan, stage after stage."""

    stages: tuple[StageTime, ...]  # those that have jobs
    max_jobs: int = Field(ge=1)  # Slurm jobs at a time
    sources: tuple[Words, ...] = ()  # where each overhead beside the measuring itself was measured

    @property
    def expected_s(self) -> int:
        """Seconds that all stages are expected to take."""
        return sum(stage.expected_s for stage in self.stages)

    @property
    def limit_s(self) -> int:
        """Seconds that all stages may take."""
        return sum(stage.limit_s for stage in self.stages)

    @property
    def expected_node_hours(self) -> float:
        """Node-hours that the jobs are expected to hold."""
        return sum(stage.expected_node_s for stage in self.stages) / 3600

    @property
    def limit_node_hours(self) -> float:
        """Node-hours that the jobs may hold."""
        return sum(stage.limit_node_s for stage in self.stages) / 3600


class NotCovered(Record):
    """Something that a reader may take for measured and that the plan leaves out."""

    what: Words  # what is left out
    why: Words  # why it is left out
    cells: int | None = Field(default=None, ge=1)  # how many cells it would be; None: it has no cells
    key: Name | None = None  # the key of the inventory that would bring it in, if one would
