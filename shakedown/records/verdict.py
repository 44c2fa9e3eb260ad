"""What was decided: `verdict.json`."""

from pydantic import Field

from shakedown.records.base import Document, Name, Outcome, Params, Record, Stage


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
