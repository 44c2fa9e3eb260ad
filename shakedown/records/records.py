"""The records that travel between the rooms: plan, measurements, counters, inventory, verdict.

Every record refuses unknown fields and carries a schema version, so that a file of another release
is refused in one line and not half-understood. One cell is the unit of everything: *test x metric x
nodes x rail x direction x parameters*; its identity is `cell_id`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shakedown.records.names import FILE_NAME, LONGEST_FILE_NAME

SCHEMA = 1

# Host, rail, test, metric and counter names end up in paths, cell ids and HTML.
Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+>-]*$")]
# A comma or an equals sign would let two different sets of parameters have one cell id.
Param = bool | int | float | Annotated[str, Field(max_length=200, pattern=r"^[^,=\x00-\x1f\x7f]*$")]
Params = dict[Name, Param]
# Counters of NICs and switches have 64 bits. Whatever is more was never counted, and would not fit the
# arithmetic of those who judge it.
COUNTER_END = 1 << 64
CounterValue = Annotated[int, Field(ge=0, lt=COUNTER_END)]


class Record(BaseModel):
    """Base of all records: immutable, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(StrEnum):
    """The rungs of the ladder, lowest first."""

    CONFIG = "config"
    NODE = "node"
    FABRIC = "fabric"
    COLLECTIVE = "collective"
    APPLICATION = "application"


class Better(StrEnum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"


class Outcome(StrEnum):
    """The four values of a verdict, of a cell and of a run."""

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_RUN = "NOT-RUN"


class ReferenceKind(StrEnum):
    """Where a reference value comes from, strongest claim last."""

    BASELINE = "baseline"  # this site's own earlier runs
    MEASURED = "measured"  # somebody's published or our own measurement
    VENDOR = "vendor"
    CONTRACT = "contract"
    PHYSICAL = "physical"


def cell_id(
    stage: str,
    test: str,
    metric: str,
    nodes: tuple[str, ...],
    rail: str | None,
    direction: str | None,
    params: Params,
) -> str:
    """Return a cell's identity: `fabric/ib_write_bw/bandwidth/n1,n2/rail0/forward/size_bytes=65536`.

    Absent parts are `-`. Parameters are sorted by name, so the order in a file does not matter.
    """
    return f"{stage}/{test}/{metric}/{','.join(nodes)}/{rail or '-'}/{direction or '-'}/{_tail(params)}"


def _tail(params: Params) -> str:
    return ",".join([f"{k}={params[k]}" for k in sorted(params)]) or "-"


class Reference(Record):
    """What a metric must reach, and who says so.

    The gate is one-sided, in the bad direction only: `tolerance` is a fraction of `value` (0.05 of 389.7
    with better=higher gates at 370.2), `limit` is the gate itself in the metric's unit. Exactly one of the
    two is given. `ceiling` is the physical limit: a result beyond it is impossible, never good.
    """

    id: Name
    value: float
    tolerance: float | None = Field(default=None, ge=0, lt=1)
    limit: float | None = None
    ceiling: float | None = None
    ceiling_source: str | None = None
    unit: Annotated[str, Field(max_length=32)]
    better: Better
    kind: ReferenceKind
    source: Annotated[str, Field(min_length=1)]
    set_by: str | None = None
    note: str | None = None
    # Fewer samples than this cannot decide; the noise rule applies from two samples on.
    min_samples: int = Field(default=1, ge=1)
    # A member of its class worse than the class median by more than this fraction is an outlier (None: off).
    fleet_min_effect: float | None = Field(default=None, gt=0, lt=1)

    @model_validator(mode="after")
    def _gate_is_defined(self) -> Reference:
        if (self.tolerance is None) == (self.limit is None):
            raise ValueError("give exactly one of tolerance and limit")
        numbers = (self.value, self.limit, self.ceiling)
        if any(x is not None and not math.isfinite(x) for x in numbers):
            raise ValueError("value, limit and ceiling must be finite")
        if self.value == 0 and self.limit is None:
            raise ValueError("a value of 0 needs limit: a tolerance of zero is zero")
        return self

    @property
    def gate(self) -> float:
        """The worst value that still passes, in `unit`."""
        if self.limit is not None:
            return self.limit
        assert self.tolerance is not None
        sign = -1 if self.better is Better.HIGHER else 1
        return self.value * (1 + sign * self.tolerance)


class PlanItem(Record):
    """A block of cells: the product of `nodes` x `rails` x `directions`, for one test, metric and parameters.

    `nodes` lists node tuples: `["n1"]` for a single-node test, `["n1", "n2"]` for a pair (direction
    `forward` then means data from n1 to n2, `reverse` from n2 to n1, `both` at once), all of them for a
    collective. Counters are planned like any metric: metric `counter.NAME`, limit 0 where zero is due.
    """

    stage: Stage
    test: Name
    metric: Name
    unit: str
    better: Better
    nodes: tuple[tuple[Name, ...], ...] = Field(min_length=1)
    rails: tuple[Name | None, ...] = (None,)
    directions: tuple[Name | None, ...] = (None,)
    params: Params = {}
    reference: Name
    required: bool = True
    # Why the cells of this block will not be measured although they belong to the ladder.
    not_run: str | None = None

    def cells(self) -> Iterator[tuple[str, tuple[str, ...], str | None, str | None]]:
        """Yield (cell id, nodes, rail, direction) of every cell of the block."""
        # What the cells share is written once: a plan of 1,024 nodes has 164,000 of them.
        prefix, tail = f"{self.stage}/{self.test}/{self.metric}/", _tail(self.params)
        ends = [(r, d, f"/{r or '-'}/{d or '-'}/{tail}") for r, d in product(self.rails, self.directions)]
        for nodes in self.nodes:
            start = prefix + ",".join(nodes)
            for rail, direction, end in ends:
                yield start + end, nodes, rail, direction

    def __len__(self) -> int:
        return len(self.nodes) * len(self.rails) * len(self.directions)


class Plan(Record):
    """Everything that must be measured, and against what (`plan.json`)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    system: Name
    profile: Name | None = None
    created: str  # RFC 3339, UTC
    nodes: tuple[Name, ...] = Field(min_length=1)
    rails: tuple[Name, ...] = ()
    items: tuple[PlanItem, ...] = Field(min_length=1)
    references: dict[Name, Reference]
    # What emulated or recorded parts mean for the reader; printed in the report.
    caveats: tuple[str, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="after")
    def _every_cell_is_referenced_once(self) -> Plan:
        alike: dict[tuple[str, ...], list[PlanItem]] = {}
        for item in self.items:
            reference = self.references.get(item.reference)
            if reference is None:
                raise ValueError(f"{item.test} {item.metric}: no reference {item.reference!r} in the plan")
            if reference.unit != item.unit or reference.better != item.better:
                raise ValueError(f"{item.test} {item.metric}: unit or better differs from {item.reference!r}")
            kind = (item.stage, item.test, item.metric, _tail(item.params))
            alike.setdefault(kind, []).append(item)
        for items in alike.values():
            _refuse_twice(items)
        return self


def _refuse_twice(items: list[PlanItem]) -> None:
    """Raise ValueError if a cell appears twice in blocks of one test, metric and parameters.

    Blocks that name other rails or directions cannot share a cell, nor can a block that names everything once
    hold one twice; so the millions of cells of a large mesh are not named one by one.
    """
    ends = [end for item in items for end in product(item.rails, item.directions)]
    if len(set(ends)) == len(ends) and all(len(set(item.nodes)) == len(item.nodes) for item in items):
        return
    seen: set[str] = set()
    for item in items:
        for cell, *_ in item.cells():
            if cell in seen:
                raise ValueError(f"cell planned twice: {cell}")
            seen.add(cell)


class Problem(Record):
    """Something other than the hardware under test that spoiled a measurement, or its cause if known."""

    kind: Literal["parse", "environment", "busy", "missing-tool", "killed", "counter-reset", "setup", "other"]
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
    params: Params = {}
    samples: tuple[float, ...] = ()  # repeats behind `value`, in the same unit
    job: str | None = None  # Slurm job id
    state: str  # Slurm's job state; anything but COMPLETED cannot pass
    attempt: int = Field(default=1, ge=1)
    started: str | None = None
    duration_s: float | None = None
    raw: str | None = None  # path of the tool's own output, relative to the run folder
    # What the number stands for, where it says little by itself: found and wanted of a setting.
    detail: Annotated[str, Field(max_length=1000)] | None = None
    problem: Problem | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def cell(self) -> str:
        """The identity of the cell that this measures."""
        return cell_id(self.stage, self.test, self.metric, self.nodes, self.rail, self.direction, self.params)


class OutputRecord(Record):
    """One tool's own output inside a job (a line of `raw/<job>/outputs.jsonl`, written while the job runs).

    This is the only link between a file of raw text and the cell it measures, so it is written by
    whoever started the tool, at the moment it ended, and never derived later from orders of lists.
    """

    schema_: Literal[1] = Field(default=1, alias="schema")
    tool: Literal[
        "perftest",
        "nccl",
        "nccl-log",
        "nvbandwidth",
        "loadgen",
        "trainer",
        "mpi",
        "counters",
        "settings",
        "pcie-path",
        "copies",
        "inference",
        "gpu-state",
        "torch-collectives",
    ]
    test: Name
    file: Annotated[str, Field(pattern=f"^{FILE_NAME}$", max_length=LONGEST_FILE_NAME)]
    nodes: tuple[Name, ...] = Field(min_length=1)
    rail: Name | None = None
    direction: Name | None = None
    params: Params = {}
    attempt: int = Field(default=1, ge=1)
    exit_code: int | None  # None: never ended by itself
    started: str  # RFC 3339, UTC
    duration_s: float
    problem: Problem | None = None

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
    duration_s: float | None = None
    problem: Problem | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class CounterReading(Record):
    """One counter of one NIC or switch port over a test (a line of `counters.jsonl`)."""

    schema_: Literal[1] = Field(default=1, alias="schema")
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
    job: str | None = None
    raw: str | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def delta(self) -> int | None:
        """After minus before; None if either is missing, or the counter went backwards or began anew."""
        if self.began_anew or self.before is None or self.after is None or self.after < self.before:
            return None
        return self.after - self.before


class Component(Record):
    """One piece of hardware, firmware or software (`inventory.json`)."""

    host: Name
    kind: Literal["node", "nic", "gpu", "cable", "switch", "software"]
    name: Name
    attributes: dict[str, str] = {}


class Inventory(Record):
    """What the run was made on: the snapshot that a later comparison needs."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    taken: str
    components: tuple[Component, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class CellVerdict(Record):
    """The verdict on one cell."""

    cell: str
    outcome: Outcome
    # A word from a closed list (see judge/cells.py) and a sentence that a person can act on.
    rule: str
    reason: str
    value: float | None = None
    gate: float | None = None
    ceiling: float | None = None
    raw: str | None = None


class GroupVerdict(Record):
    """All cells of one plan item, summed up."""

    stage: Stage
    test: str
    metric: str
    unit: str
    params: Params = {}
    reference: str
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    worst: float | None = None
    median: float | None = None
    best: float | None = None


class CauseVerdict(Record):
    """A piece of hardware that explains bad results of a mesh, or a suspect (see judge/localise)."""

    element: str
    blamed: bool  # else a suspect
    confidence: float
    effect: float  # worst relative change of its results; -1 when they are missing
    evidence: tuple[str, ...]
    rivals: tuple[str, ...] = ()
    proposal: str


class Coverage(Record):
    """Cells with a finite value over cells planned."""

    planned: int
    measured: int

    @property
    def complete(self) -> bool:
        """Whether every planned cell has a value."""
        return self.planned > 0 and self.measured == self.planned


class Verdict(Record):
    """The verdict on a run (`verdict.json`): a pure function of plan, results and counters."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    outcome: Outcome
    reason: str  # one sentence
    coverage: Coverage
    stages: dict[Stage, Coverage]
    outcomes: dict[Outcome, int]
    groups: tuple[GroupVerdict, ...]
    # Every cell that did not pass, worst first. Passed cells are in the groups.
    cells: tuple[CellVerdict, ...]
    # Cells that were measured without being planned: reported, never counted.
    unplanned: tuple[str, ...] = ()
    # Flaws of the run itself: a file cut off in a line, a node that no cell measures.
    problems: tuple[str, ...] = ()
    # What a mesh's results blame, most first. They explain; cells decide.
    causes: tuple[CauseVerdict, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
