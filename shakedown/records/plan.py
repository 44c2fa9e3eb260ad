"""The plan of a run: its items and what each is expected to show."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from shakedown.records.base import Better, Document, Name, Params, Record, Stage, params_text, shape
from shakedown.records.pairs import AllPairs, PairsAcross, apart
from shakedown.records.results import Measurement

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


# A plan lists its nodes and only multiplies them by rails and directions: 36 kB could ask for 10^9 cells, and
# each costs a kilobyte when it is judged. Eight rails, each with each, in two directions are 128.
MOST_CELLS, MOST_CELLS_OF_A_GROUP = 250_000, 128


class ReferenceKind(StrEnum):
    """Where a reference value comes from, strongest claim last."""

    BASELINE = "baseline"  # this site's own earlier runs
    COMPUTED = "computed"  # worked out from what a publication prints, which has no such figure
    MEASURED = "measured"  # a measurement, published or our own
    VENDOR = "vendor"
    CONTRACT = "contract"
    PHYSICAL = "physical"
    LEARN = "learn"  # none yet: the run that is planned is to make it, and does not judge by it


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
    # Fraction of the value by which the median of the whole class may be worse (None: off). A fleet that is
    # slow as one has no outlier, and each of its cells may pass.
    class_tolerance: float | None = Field(default=None, ge=0, lt=1)

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


def _kind_of_groups(given: object) -> str:
    """Return which way of naming groups of nodes was written."""
    if isinstance(given, PairsAcross) or (isinstance(given, dict) and "pairs_across" in given):
        return "across"
    return "pairs" if isinstance(given, dict | AllPairs) else "groups"


_Groups = Annotated[
    Annotated[tuple[tuple[Name, ...], ...], Field(min_length=1), Tag("groups")]
    | Annotated[AllPairs, Tag("pairs")]
    | Annotated[PairsAcross, Tag("across")],
    # A refusal then names what was written, not what else it might have been.
    Discriminator(_kind_of_groups),
]
_MOST_COMPARED = 1_000_000  # cells of blocks that may share some; groups of a night have a few thousand


class PlanItem(Record):
    """A block of cells: the product of `nodes` x `rails` x `directions`, for one test, metric and parameters.

    `nodes` lists node tuples: `["n1"]` for a single-node test, `["n1", "n2"]` for a pair (direction
    `forward` then means data from n1 to n2, `reverse` from n2 to n1, `both` at once), all of them for a
    collective. Pairs of some nodes are written by the nodes alone (`AllPairs`, `PairsAcross`). Counters are
    planned like any metric: metric `counter.NAME`, limit 0 where zero is due.
    """

    stage: Stage
    test: Name
    metric: Name
    unit: str
    better: Better
    nodes: _Groups  # groups that are measured together, or all pairs of some nodes
    rails: tuple[Name | None, ...] = (None,)
    directions: tuple[Name | None, ...] = (None,)
    params: Params = Field(default_factory=dict)
    reference: Name
    required: bool = True
    # Counters that not every device has: a cell without a reading is then not missed.
    if_reported: bool = False
    # Why the cells of this block will not be measured although they belong to the ladder.
    not_run: str | None = None

    def cells(self) -> Iterator[tuple[str, tuple[str, ...], str | None, str | None]]:
        """Yield (cell id, nodes, rail, direction) of every cell of the block."""
        # What the cells share is written once: a plan of 1,024 nodes has 164,000 of them.
        prefix, tail = f"{self.stage}/{self.test}/{self.metric}/", params_text(self.params)
        ends = [(r, d, f"/{r or '-'}/{d or '-'}/{tail}") for r, d in product(self.rails, self.directions)]
        for nodes in self.nodes:
            start = prefix + ",".join(nodes)
            for rail, direction, end in ends:
                yield start + end, nodes, rail, direction

    def __len__(self) -> int:
        return len(self.nodes) * len(self.rails) * len(self.directions)

    def measured(self, run: str, nodes: tuple[str, ...], value: float | None, **more: Any) -> Measurement:  # noqa: ANN401
        """Return what was measured of a cell of this block; `more` is as `Measurement` has it."""
        same = {key: getattr(self, key) for key in ("stage", "test", "metric", "unit", "better", "params")}
        return Measurement(run=run, nodes=nodes, value=value, **same, **more)


class CellPlaces:
    """Where each cell lies among those of some items, without naming one: a large mesh has millions."""

    def __init__(self, items: Sequence[PlanItem]) -> None:
        self._of: dict[tuple[str | None, ...], list[tuple[int, Mapping[tuple[str, ...], int], int, int]]]
        self._of = defaultdict(list)
        numbers: dict[object, dict[tuple[str, ...], int]] = {}  # most tests are of the same nodes
        for index, item in enumerate(items):
            if (of := numbers.get(item.nodes)) is None:
                of = numbers[item.nodes] = {nodes: number for number, nodes in enumerate(item.nodes)}
            tail, width = params_text(item.params), len(item.rails) * len(item.directions)
            for end, (rail, direction) in enumerate(product(item.rails, item.directions)):
                kind = (item.stage, item.test, item.metric, rail, direction, tail)
                self._of[kind].append((index, of, width, end))

    def find(
        self,
        stage: str,
        test: str,
        metric: str,
        nodes: tuple[str, ...],
        rail: str | None,
        direction: str | None,
        params: str,  # as `params_text` has them
    ) -> tuple[int, int] | None:
        """Return the number of a cell's item and that of the cell in it; None: no item has it."""
        for index, of, width, end in self._of.get((stage, test, metric, rail, direction, params), ()):
            if (number := of.get(nodes)) is not None:
                return index, number * width + end
        return None

    def named(self, cell: str) -> tuple[int, int] | None:
        """Return the same of the cell with this identity (`cell_id`)."""
        stage, test, metric, nodes, rail, direction, params = cell.split("/", 6)
        on, way = (None if end == "-" else end for end in (rail, direction))
        return self.find(stage, test, metric, tuple(nodes.split(",")), on, way, params)


_CELLS = shape(
    r"^[a-z]+/[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+/[^\[\]]+$",
    "STAGE/TEST/METRIC/REST with stage, test and metric written out, and * or ? in the rest alone",
    "fabric/ib_write_bw/bandwidth/*n7*/rail2/*",
    max_length=300,
)


class Waiver(Record):
    """A failure that a person accepts, signed for: whose it is, until when, and why.

    `cells` is a pattern of cell ids (`fabric/ib_write_bw/bandwidth/*n7*/rail2/*`, with * and ?). Its stage,
    test and metric are written out, so that no waiver covers more than one kind of measurement. A * beside a
    digit takes no further digit: `*n7*` is n7 and not n70.
    """

    name: Name  # told in verdict and report
    cells: Annotated[str, _CELLS]
    reason: Annotated[str, Field(min_length=3, max_length=300)]
    owner: Annotated[str, Field(min_length=2, max_length=100)]
    expires: date  # the last day on which it holds, by the day on which the run was planned
    ticket: Annotated[str, Field(max_length=100)] | None = None

    @property
    def words(self) -> str:
        """Say who waived it and why."""
        ticket = f", {self.ticket}" if self.ticket else ""
        return f"waived by {self.owner} until {self.expires}{ticket}: {self.reason}"

    def covers(self, cell: str) -> bool:
        """Whether a cell is of the pattern."""
        return cell_pattern(self.cells).fullmatch(cell) is not None


@lru_cache
def cell_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern with * and ? as an expression; no number is taken for a part of a longer one.

    What stands between two * is looked for from the left and once, so many of them cost no more time.
    """
    first, *others = ["".join("." if c == "?" else re.escape(c) for c in part) for part in text.split("*")]
    before = "".join("(?![0-9])" if part[-1:].isdigit() else "" for part in [first] if others)
    found = first + before
    for number, own in enumerate(others, start=1):
        begin, end = ("(?<![0-9])" if own[:1].isdigit() else ""), ("(?![0-9])" if own[-1:].isdigit() else "")
        found += f".*{begin}{own}" if number == len(others) else f"(?>.*?{begin}{own}{end})"
    return re.compile(found, re.DOTALL)


class PlanScope(Record):
    """Which part of a site a plan is of. A plan without it is of the whole site."""

    nodes: tuple[Name, ...] = Field(min_length=1)  # those that are judged
    of_nodes: int = Field(gt=0)
    rails: tuple[Name, ...] = ()
    of_rails: int = Field(ge=0)
    stages: tuple[Stage, ...] = ()  # none: all of them
    partners: tuple[Name, ...] = ()  # nodes that are measured with and never judged
    # quick: neighbours in a ring alone; night: what has its turn in one night; none: as the site asks
    mesh: Literal["quick", "night"] | None = None

    @property
    def words(self) -> str:
        """Say it: `3 of 64 nodes, fabric only: not an acceptance of the site`."""
        parts = []
        if len(self.nodes) < self.of_nodes:
            parts.append(f"{len(self.nodes)} of {self.of_nodes} nodes")
        if len(self.rails) < self.of_rails:
            parts.append(f"{len(self.rails)} of {self.of_rails} rails")
        if self.stages:
            parts.append(f"{' and '.join(self.stages)} only")
        if self.mesh:
            parts.append("one night's turn" if self.mesh == "night" else f"{self.mesh} mesh")
        return f"{', '.join(parts) or 'the whole site'}: not an acceptance of the site"


class Remeasure(Record):
    """What becomes of a rate or time outside its gate: it is measured again, and all samples decide.

    A cell is transient, and passes, if less than half of its samples lie outside (one of three, two of five).
    So many transients as chance gives at `budget`, but with probability `risk`, are a healthy cluster's; more
    of them, over all or on one NIC or node, fail. Correctness and counters are never measured again.
    """

    tests: tuple[Name, ...] = Field(min_length=1)  # those whose jobs measure again
    again: int = Field(default=2, ge=2, le=10)  # further samples that a doubtful cell needs
    at_most: int = Field(default=6, ge=2, le=20)  # how often a cell is measured again
    budget: float = Field(default=0.005, gt=0, lt=0.1)  # part of a test's cells that may be transient
    # Part of a test's cells that may have no value at first.
    late_budget: float = Field(default=0.025, gt=0, lt=0.1)
    # Probability with which a cluster that keeps to the budgets fails all the same.
    risk: float = Field(default=0.001, gt=0, lt=0.1)


class Plan(Document):
    """Everything that must be measured, and against what (`plan.json`)."""

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
    scope: PlanScope | None = None  # the part of the site that was asked for, if it is not the whole
    waivers: tuple[Waiver, ...] = ()  # failures that are accepted, each signed for by a person
    # When a cell outside its gate is measured again. None: never, its first result decides.
    remeasure: Remeasure | None = None
    # What a plan of this size can tell: how often a healthy cluster fails, and a slow NIC passes.
    power: tuple[str, ...] = ()
    # What the counters of NICs show, node by node, and what none of them does.
    nic_counters: tuple[str, ...] = ()
    # How long it is expected to take and may take; None: made before plans said so.
    expectation: Expectation | None = None
    not_covered: tuple[NotCovered, ...] = ()  # what it leaves out, and why
    simulated: bool = False  # nothing is measured: a rehearsal, which no record of real machines takes in

    @model_validator(mode="after")
    def _every_cell_is_referenced_once(self) -> Plan:
        cells, listed = sum(len(item) for item in self.items), sum(len(item.nodes) for item in self.items)
        if cells > max(MOST_CELLS, MOST_CELLS_OF_A_GROUP * listed):
            raise ValueError(
                f"{cells} cells of {listed} groups of nodes, more than {MOST_CELLS_OF_A_GROUP} of each"
            )
        alike: dict[tuple[str, ...], list[PlanItem]] = {}
        for item in self.items:
            reference = self.references.get(item.reference)
            if reference is None:
                raise ValueError(f"{item.test} {item.metric}: no reference {item.reference!r} in the plan")
            if reference.unit != item.unit or reference.better != item.better:
                raise ValueError(f"{item.test} {item.metric}: unit or better differs from {item.reference!r}")
            kind = (item.stage, item.test, item.metric, params_text(item.params))
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
    if len(set(ends)) == len(ends) and all(_once(item.nodes) for item in items):
        return
    # A few bytes of `all_pairs_of` name millions of cells, which must not be written out one by one.
    blocks = [item for item in items if isinstance(item.nodes, AllPairs | PairsAcross)]
    if len(blocks) == len(items) and _all_apart(blocks):
        return
    if blocks and sum(map(len, items)) > _MOST_COMPARED:
        kind = f"{items[0].test} {items[0].metric}"
        raise ValueError(f"{kind}: several blocks of all pairs share a rail: write them as one")
    seen: set[str] = set()
    for item in items:
        for cell, *_ in item.cells():
            if cell in seen:
                raise ValueError(f"cell planned twice: {cell}")
            seen.add(cell)


def _once(nodes: tuple[tuple[str, ...], ...] | AllPairs | PairsAcross) -> bool:
    """Whether a block names each group of nodes once; all pairs do."""
    return isinstance(nodes, AllPairs | PairsAcross) or len(set(nodes)) == len(nodes)


def _all_apart(items: list[PlanItem]) -> bool:
    """Whether no two blocks of pairs share a cell, as those of one mesh by its pairs' ways do not."""
    for place, item in enumerate(items):
        ends = set(product(item.rails, item.directions))
        if len(ends) < len(item.rails) * len(item.directions):
            return False
        for other in items[:place]:
            shares = not ends.isdisjoint(product(other.rails, other.directions))
            if shares and not apart(item.nodes, other.nodes):  # type: ignore[arg-type]  # both are pairs
                return False
    return True
