"""What was measured: lines of `results.jsonl`, and what a job writes of itself and its tools under `raw/`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from shakedown.records.base import Better, Name, Params, Record, Stage, cell_id
from shakedown.records.names import FILE_NAME, LONGEST_FILE_NAME

# How long something took; more than centuries would overflow the arithmetic of times.
Seconds = Annotated[float, Field(ge=0, lt=1e10, allow_inf_nan=False)]


class Problem(Record):
    """Something other than the hardware under test that spoiled a measurement, or its cause if known.

    `not-run`: nothing could be measured there at all; the cell is NOT-RUN with this reason.
    """

    kind: Literal[
        "parse", "environment", "busy", "missing-tool", "killed", "counter-reset", "setup", "not-run", "other"
    ]
    message: Annotated[str, Field(min_length=1, max_length=2000)]


class Measurement(Record):
    """One measured value (a line of `results.jsonl`)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    stage: Stage
    test: Name
    metric: Name
    value: float | None  # None: the tool gave none; `problem` says why
    unit: str
    better: Better
    nodes: tuple[Name, ...] = Field(min_length=1)
    rail: Name | None = None
    direction: Name | None = None
    params: Params = Field(default_factory=dict)
    samples: tuple[float, ...] = ()  # repeats behind `value`, in the same unit
    job: str | None = None  # Slurm job id
    # Slurm's state of the job, or of the node's part of it where each node stands for itself; anything but
    # COMPLETED cannot pass.
    state: str
    attempt: int = Field(default=1, ge=1)
    started: str | None = None
    duration_s: float | None = None
    raw: str | None = None  # path of the tool's own output, relative to the run folder
    # What the number stands for, where it says little by itself: found and wanted of a setting.
    detail: Annotated[str, Field(max_length=1000)] | None = None
    # What else was seen at work on what was measured: a value within its reference decides nothing then, and
    # one outside has a cause.
    disturbed: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    problem: Problem | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def cell(self) -> str:
        """The identity of the cell that this measures."""
        return cell_id(self.stage, self.test, self.metric, self.nodes, self.rail, self.direction, self.params)


class OutputRecord(Record):
    """One tool's own output inside a job (a line of `raw/<job>/outputs.jsonl`, written while the job runs).

    This is the only link between a file of raw text and the cell it measures, so the program that started the
    tool writes it when the tool ends; it is never derived later from the order of lists.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    tool: Name  # the registry of benchmarks knows what its outputs mean
    test: Name
    file: Annotated[str, Field(pattern=f"^{FILE_NAME}$", max_length=LONGEST_FILE_NAME)]
    nodes: tuple[Name, ...] = Field(min_length=1)
    rail: Name | None = None
    direction: Name | None = None
    params: Params = Field(default_factory=dict)
    attempt: int = Field(default=1, ge=1)
    exit_code: int | None  # None: never ended by itself
    started: str  # RFC 3339, UTC
    duration_s: Seconds
    problem: Problem | None = None
    # Of the order that the job was run under, if there was one (order.json).
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class JobRecord(Record):
    """What Slurm says of one job (`raw/<job>/job.json`, written by ReFrame's guard after the job ended)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    stage: Stage
    test: Name
    job: str | None
    state: str  # Slurm's job state, COMPLETED or what else
    exit_code: str | None = None  # "status:signal", as Slurm prints it
    nodes: tuple[Name, ...] = ()  # as the job itself printed them ($SLURM_JOB_NODELIST)
    attempt: int = Field(default=1, ge=1)
    started: str | None = None
    duration_s: Seconds | None = None
    problem: Problem | None = None
    # SHA-256 of files.json: what the folder held when the job had ended. None: nobody looked.
    files: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
