"""What was decided: `verdict.json`; a contract's `criteria.yml`, and `certificate.json` that answers them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import product
from typing import Annotated, Literal, overload

from pydantic import ConfigDict, Field

from shakedown.records.base import Document, Name, Outcome, Params, Record, Stage, params_text, shape, to_json
from shakedown.records.pairs import AllPairs, PairsAcross
from shakedown.records.plan import PlanItem
from shakedown.records.wording import where


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """The verdict on one cell; no model, whose fields take 1.2 kB: a large run has a million."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    cell: str
    outcome: Outcome
    # A word from a closed list (see judge.verdict) and a sentence that a person can act on.
    rule: str
    reason: str
    value: float | None = None
    gate: float | None = None
    ceiling: float | None = None
    raw: str | None = None


# What is known of a cell: nothing, that it passed with its first result, or a verdict of its own.
_ABSENT, _PASSED, _OWN = range(3)


class Cells(Sequence[CellVerdict]):
    """The verdicts on the cells of a plan item, in the plan's order.

    Of a cell that passed with its first result, as nearly all do, only value and raw output are kept, and of
    one without any result nothing. Their verdicts are made whenever they are asked for.
    """

    def __init__(self, item: PlanItem, passed: CellVerdict, absent: CellVerdict) -> None:
        """Take what the verdicts of those cells are like; the reason of `absent` gets the cell's name."""
        self.item, self._pass, self._absent = item, passed, absent
        self._known = bytearray(len(item))
        self._values = array("d", bytes(8 * len(item)))
        self._raw: list[str | None] = [None] * len(item)
        self._own: dict[int, CellVerdict] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[CellVerdict]:
        return (self._of(i, cell) for i, (cell, *_) in enumerate(self.item.cells()))

    @overload
    def __getitem__(self, i: int) -> CellVerdict: ...
    @overload
    def __getitem__(self, i: slice) -> list[CellVerdict]: ...
    def __getitem__(self, i: int | slice) -> CellVerdict | list[CellVerdict]:
        if isinstance(i, slice):
            return [self[one] for one in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        return self._own[i] if self._known[i] == _OWN else self._of(i, self._name(i))

    def __setitem__(self, i: int, verdict: CellVerdict) -> None:
        self._known[i], self._own[i] = _OWN, verdict

    def measured(self, i: int) -> bool:
        """Whether a cell has a result."""
        return self._known[i] != _ABSENT

    def passes(self, i: int, value: float, raw: str | None) -> None:
        """Note that a cell passed with this value."""
        self._known[i], self._values[i], self._raw[i] = _PASSED, value, raw

    def unlike(self) -> Iterator[tuple[int, CellVerdict]]:
        """Yield place and verdict of each cell that did not just pass with its first result, in order."""
        return ((i, self[i]) for i in self._others())

    def values(self, but: Container[str] = ()) -> list[float | None]:
        """Return the value of each cell, in its unit; None as well where one of the rules `but` decided."""
        found: list[float | None] = list(self._values)
        for i in self._others():
            own = self._own.get(i, self._absent)
            found[i] = None if own.rule in but else own.value
        return found

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each cell."""
        found = [Outcome.PASS] * len(self)
        for i in self._others():
            found[i] = self._own.get(i, self._absent).outcome
        return found

    def _others(self) -> Iterable[int]:
        if self._known.count(_PASSED) == len(self):
            return ()
        return [i for i, known in enumerate(self._known) if known != _PASSED]

    def _of(self, i: int, cell: str) -> CellVerdict:
        known, like = self._known[i], self._pass
        if known == _PASSED:
            return CellVerdict(
                cell,
                like.outcome,
                like.rule,
                like.reason,
                self._values[i],
                like.gate,
                like.ceiling,
                self._raw[i],
            )
        if known == _OWN:
            return self._own[i]
        return replace(self._absent, cell=cell, reason=f"{where(cell)}: {self._absent.reason}")

    @cached_property
    def _ends(self) -> list[str]:
        tail = params_text(self.item.params)
        return [f"/{r or '-'}/{d or '-'}/{tail}" for r, d in product(self.item.rails, self.item.directions)]

    @cached_property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        return self.item.nodes if isinstance(self.item.nodes, tuple) else _listed(self.item.nodes)

    def _name(self, i: int) -> str:
        number, end = divmod(i, len(self._ends))
        item = self.item
        return f"{item.stage}/{item.test}/{item.metric}/{','.join(self._groups[number])}{self._ends[end]}"


@lru_cache(maxsize=8)  # most items of a mesh are of the same pairs
def _listed(nodes: AllPairs | PairsAcross) -> tuple[tuple[str, ...], ...]:
    """Return the pairs written out, so that each is found by its number."""
    return tuple(nodes)


class GroupVerdict(Record):
    """All cells of one plan item, summed up."""

    stage: Stage
    test: str
    metric: str
    unit: str
    params: Params = Field(default_factory=dict)
    reference: str
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    worst: float | None = None
    median: float | None = None
    best: float | None = None


class CellsAlike(Record):
    """Cells of one test that did not pass for one reason: `results.jsonl` names their raw outputs."""

    cell: str  # identity of each, with * where its nodes stand
    outcome: Outcome
    rule: str  # a word from the same closed list
    reason: str  # of the worst of them; of the others only the numbers in it differ
    gate: float | None = None  # worst value that still passes
    ceiling: float | None = None  # the physical limit
    values: dict[str, float | None]  # by nodes, worst first: `n1,n2`


class CauseVerdict(Record):
    """A piece of hardware that explains bad results of a mesh, or a suspect (see judge.localise)."""

    element: str
    blamed: bool  # named as the cause; else a suspect
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


class Verdict(Document):
    """The verdict on a run (`verdict.json`): a pure function of plan, results and counters."""

    run: Name
    outcome: Outcome
    reason: str  # one sentence
    coverage: Coverage
    stages: dict[Stage, Coverage]
    outcomes: dict[Outcome, int]
    groups: tuple[GroupVerdict, ...]
    # Every cell that did not pass, worst first; of more than 10,000 the worst. Groups have the passed ones.
    cells: tuple[CellVerdict, ...]
    # The others that did not pass, where there are more than 10,000; no key of a smaller file.
    more_cells: tuple[CellsAlike, ...] = ()
    # Cells that passed only when they were measured again, by the plan's rule for that.
    transients: tuple[CellVerdict, ...] = ()
    unplanned: tuple[str, ...] = ()  # cells that were measured without being planned: reported, never counted
    # Flaws of the run itself: a file cut off in a line, a node that no cell measures.
    problems: tuple[str, ...] = ()
    # What explains a mesh's bad results, the likeliest first. They explain; cells decide.
    causes: tuple[CauseVerdict, ...] = ()


_IN_FULL = 10_000  # cells: 5 MB
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.-]*[A-Za-z_])")  # and no part of a name


def verdict_to_json(verdict: Verdict) -> bytes:
    """Write a verdict as its file holds it: beyond 10,000 cells, what many share is said once.

    A fabric of 128 nodes in which every cell fails would fill 300 MB, nine tenths of them the same words.
    """
    if len(verdict.cells) <= _IN_FULL:
        return to_json(verdict, {"more_cells"})
    alike: dict[tuple[object, ...], CellsAlike] = {}
    for one in verdict.cells[_IN_FULL:]:
        stage, test, metric, nodes, rest = one.cell.split("/", 4)
        reason = one.reason.removeprefix(f"{where(one.cell)}: ")
        # The numbers in a reason are of the value beside it; without one it is kept to the letter.
        kind = reason if one.value is None else _NUMBER.sub("", reason)
        of = f"{stage}/{test}/{metric}/*/{rest}"
        key = (of, one.outcome, one.rule, kind, one.gate, one.ceiling)
        if (found := alike.get(key)) is None:
            found = alike[key] = CellsAlike(
                cell=of,
                outcome=one.outcome,
                rule=one.rule,
                reason=reason,
                gate=one.gate,
                ceiling=one.ceiling,
                values={},
            )
        found.values[nodes] = one.value
    return to_json(
        verdict.model_copy(update={"cells": verdict.cells[:_IN_FULL], "more_cells": tuple(alike.values())})
    )


def verdict_says(content: bytes, verdict: Verdict) -> bool:
    """Whether a file holds this verdict, as it is written now or as it was when every cell was in full."""
    if content == verdict_to_json(verdict):
        return True
    short = b'"more_cells":' in content or len(verdict.cells) <= _IN_FULL
    return not short and content == to_json(verdict, {"more_cells"})


_Line = Annotated[
    str, shape(r"^[^\x00-\x1f\x7f]+$", "a text on one line", "each pair has 90 % of the rate", max_length=400)
]


class Criterion(Record):
    """One criterion of a contract, and the cells that answer it."""

    # Short, as the contract numbers it.
    id: Annotated[
        str, shape(r"^[A-Za-z0-9][A-Za-z0-9_.:/()-]*$", "a short text without blanks", "B.2.1", max_length=24)
    ]
    text: _Line  # what the contract asks
    # Patterns of cell ids with * and ?, as those of waivers. Each must be answered by itself.
    cells: tuple[
        Annotated[
            str,
            shape(
                r"^[^\x00-\x1f\x7f\[\]]+$",
                "a pattern of STAGE/TEST/METRIC/NODES/RAIL/DIRECTION/PARAMETERS with * and ?",
                "fabric/ib_write_bw/bandwidth/*",
                max_length=300,
            ),
        ],
        ...,
    ] = Field(min_length=1, max_length=100)
    # Runs that must each answer it; none: any of them may. What fails in another one counts all the same.
    runs: tuple[Name, ...] = ()


class Criteria(Record):
    """What a contract asks (`criteria.yml`)."""

    schema_: Literal[1] = Field(alias="schema")
    contract: _Line  # its title
    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=500)


class Met(StrEnum):
    """The answer to a criterion."""

    MET = "MET"
    IN_PART = "MET IN PART"  # but by no run on all nodes of the site
    WAIVED = "WAIVED"  # it failed, and a person signed for that
    UNANSWERED = "NOT ANSWERED"
    FAILED = "FAILED"


class Answer(Record):
    """A criterion, and what the runs say of it."""

    id: str  # the criterion's
    text: str  # the criterion's
    answer: Met  # in one word
    reason: str  # for that answer
    outcomes: dict[Outcome, int]  # of all cells that it asks for, in all runs
    nodes: int  # of the site: those on which a cell passed that the plan requires
    measured: tuple[str, ...]  # each test and metric that answers, with its worst value and loosest gate


class CertifiedRun(Record):
    """A run as the certificate has it."""

    run: Name
    system: Name
    profile: Name | None
    # SHA-256 of its SHA256SUMS.
    sums: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signer: str  # of its seal
    planned: str  # RFC 3339, UTC
    measured: str  # when its first and its last job began
    nodes: int  # that it judges
    of_nodes: int  # of its site
    scope: str  # in words
    outcome: Outcome  # of the whole run
    reason: str  # of the outcome
    # How it stands to the order that lies in it.
    order: Literal["as ordered", "not as ordered", "not ordered"]
    ordered_by: str  # who signed that order
    doubts: tuple[str, ...]  # for which what passed in it counts for nothing
    waivers: tuple[str, ...]  # of its plan
    exclusions: tuple[str, ...]  # what its plan leaves out, or says that a reader must know
    gates: tuple[str, ...]  # that no shipped profile has
    unasked: dict[Outcome, int]  # its required cells that no criterion asks for


class Certificate(Document):
    """A contract's criteria, each answered (`certificate.json`)."""

    contract: str  # its title
    # SHA-256 of `criteria.yml`.
    criteria: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    certified: str  # RFC 3339, UTC
    system: Name
    nodes: int  # of the site, by the largest of its plans
    # All answers in one word; reservations: in part, or in runs that did not pass as a whole.
    stamp: Literal["ALL MET", "MET WITH RESERVATIONS", "NOT ALL MET", "FAILED"]
    reason: str  # for that word
    runs: tuple[CertifiedRun, ...]
    answers: tuple[Answer, ...]
