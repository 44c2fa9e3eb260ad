"""What was decided: `verdict.json`; a contract's `criteria.yml`, and `certificate.json` that answers them."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from shakedown.records.base import Document, Name, Outcome, Params, Record, Stage, shape


class CellVerdict(Record):
    """The verdict on one cell."""

    cell: str
    outcome: Outcome
    # A word from a closed list (see judge.verdict) and a sentence that a person can act on.
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
    params: Params = Field(default_factory=dict)
    reference: str
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    worst: float | None = None
    median: float | None = None
    best: float | None = None


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
    # Every cell that did not pass, worst first. Passed cells are in the groups.
    cells: tuple[CellVerdict, ...]
    # Cells that passed only when they were measured again, by the plan's rule for that.
    transients: tuple[CellVerdict, ...] = ()
    unplanned: tuple[str, ...] = ()  # cells that were measured without being planned: reported, never counted
    # Flaws of the run itself: a file cut off in a line, a node that no cell measures.
    problems: tuple[str, ...] = ()
    # What explains a mesh's bad results, the likeliest first. They explain; cells decide.
    causes: tuple[CauseVerdict, ...] = ()


_Line = Annotated[
    str, shape(r"^[^\x00-\x1f\x7f]+$", "a text on one line", "each pair has 90 % of the rate", max_length=400)
]


class Criterion(Record):
    """One criterion of a contract, and the cells that answer it."""

    # Short, as the contract numbers it.
    id: Annotated[
        str,
        shape(r"^[A-Za-z0-9][A-Za-z0-9_.:/()-]*$", "a short text without blanks", '"B.2.1"', max_length=24),
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
