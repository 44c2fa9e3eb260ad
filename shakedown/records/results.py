"""What a run yields: measurements, counter readings and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shakedown.records.base import Better, CounterValue, Document, Name, Params, Record, Stage, cell_id
from shakedown.records.wording import FILE_NAME, LONGEST_FILE_NAME

# How long something took; more than centuries would overflow the arithmetic of times.
Seconds = Annotated[float, Field(ge=0, lt=1e10, allow_inf_nan=False)]


class RunProblem(Record):
    """Something other than the hardware under test that spoiled a measurement, or its cause if known.

    `not-run`: nothing could be measured there at all; the cell is NOT-RUN with this reason. `other-gpu`: it
    was measured on another GPU than its references are for. `impossible`: more than its hardware can. Such a
    cell FAILs.
    """

    kind: Literal[
        "parse",
        "environment",
        "busy",
        "missing-tool",
        "killed",
        "counter-reset",
        "setup",
        "other-gpu",
        "impossible",
        "not-run",
        "other",
    ]
    message: Annotated[str, Field(min_length=1, max_length=2000)]


class Load(Record):
    """What else was at work on a node's CPUs beside a measurement."""

    node: Name  # whose CPUs
    said: Annotated[str, Field(min_length=1, max_length=500)]  # in a sentence
    most: float = Field(ge=0, le=1)  # the share of a rate that it can have taken at most


class Measurement(Document):
    """One measured value (a line of `results.jsonl`)."""

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
    # What else was at work on the CPUs at its ends, which can only have made it worse.
    loaded: tuple[Load, ...] = Field(default=(), max_length=16)
    problem: RunProblem | None = None

    @property
    def cell(self) -> str:
        """The identity of the cell that this measures."""
        return cell_id(self.stage, self.test, self.metric, self.nodes, self.rail, self.direction, self.params)

    @property
    def beside_others(self) -> bool:
        """Whether something else was at work: no reference, no night's turn and no ratio are made of it."""
        return bool(self.disturbed or self.loaded)


class OutputRecord(Document):
    """One tool's own output inside a job (a line of `raw/<job>/outputs.jsonl`, written while the job runs).

    This is the only link between a file of raw text and the cell it measures, so the program that started the
    tool writes it when the tool ends; it is never derived later from the order of lists.
    """

    tool: Name  # the registry of benchmarks knows what its outputs mean
    test: Name
    file: Annotated[str, Field(pattern=f"^{FILE_NAME}$", max_length=LONGEST_FILE_NAME)]
    nodes: tuple[Name, ...] = Field(min_length=1)
    rail: Name | None = None
    direction: Name | None = None
    params: Params = Field(default_factory=dict)
    attempt: int = Field(default=1, ge=1)
    exit_code: int | None  # None: did not end on its own
    started: str  # RFC 3339, UTC
    duration_s: Seconds
    problem: RunProblem | None = None
    # Of the order that the job was run under, if there was one (order.json).
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class JobRecord(Document):
    """What Slurm says of one job (`raw/<job>/job.json`, written by ReFrame's guard after the job ended)."""

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
    problem: RunProblem | None = None
    # SHA-256 of files.json: what the folder held when the job had ended. None: nobody looked.
    files: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class CounterReading(Document):
    """One counter of one NIC or switch port over a test (a line of `counters.jsonl`)."""

    run: Name
    stage: Stage
    test: Name
    kind: Literal["nic", "switch_port"]
    device: Name  # host or switch
    port: Name  # RDMA device, netdev or switch port
    rail: Name | None = None
    peer: str | None = None  # the other end of the cable, "n1/fab0"
    counter: Name
    before: CounterValue | None
    after: CounterValue | None
    # The node, its driver or the switch was restarted, or the port's counters were cleared, between the two.
    began_anew: bool = False
    # Why it has no value before, after or both, where the reading itself says so.
    unread: str | None = None
    job: str | None = None
    raw: str | None = None

    @property
    def delta(self) -> int | None:
        """After minus before; None if either is missing, or the counter went backwards or began anew."""
        if self.began_anew or self.before is None or self.after is None or self.after < self.before:
            return None
        return self.after - self.before


def unanswered(value: int) -> bool:
    """Whether it is all ones, or below zero: what is given for a device that did not answer."""
    return value >= 1 << 63 or value == (1 << 32) - 1


def went_back(before: Mapping[str, int], after: Mapping[str, int], names: Iterable[str]) -> bool:
    """Whether any of the counters of these names is less than before."""
    return any(name in before and name in after and after[name] < before[name] for name in names)


class Part(Record):
    """One piece of hardware, firmware or software of a host."""

    kind: Literal["node", "nic", "gpu", "drive", "cable", "switch", "software"]
    name: Name
    attributes: dict[str, Annotated[str, Field(max_length=1000)]] = Field(default_factory=dict)


class Component(Part):
    """One piece of hardware, firmware or software (`inventory.json`)."""

    host: Name


class ClockReading(Record):
    """How far a host's clock is ahead of the controller's, in seconds; below zero is behind.

    The host's time was read between two of the controller's: the truth lies between `low_s` and `high_s`,
    and the readings of several round trips have narrowed it.
    """

    host: Name  # as the inventory names it
    low_s: Annotated[float, Field(allow_inf_nan=False)]  # at least so far ahead, in seconds
    high_s: Annotated[float, Field(allow_inf_nan=False)]  # at most so far ahead, in seconds
    # What munge on this host said of the submit host's credential: Success, Rewound credential, ...
    munge: Annotated[str, Field(max_length=80)] = ""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low_s > self.high_s:
            raise ValueError("low_s must not be above high_s")
        return self


class Snapshot(Document):
    """What the run was made on: the snapshot that a later comparison needs."""

    run: Name
    taken: str
    components: tuple[Component, ...] = ()
    submit: Name | None = None  # whose clock the nodes' clocks are held against
    clocks: tuple[ClockReading, ...] = ()

    def ahead_s(self, host: str) -> tuple[float, float] | None:
        """Return how far a host's clock is ahead of the submit host's, at least and at most, in seconds.

        None if one of the two was not read.
        """
        read = {reading.host: reading for reading in self.clocks}
        mine, submit = read.get(host), read.get(self.submit or "")
        if mine is None or submit is None:
            return None
        if host == self.submit:
            return 0.0, 0.0
        return mine.low_s - submit.high_s, mine.high_s - submit.low_s
