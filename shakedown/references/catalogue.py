"""The references that a measurement is held against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from shakedown.records.base import Better, Name, Record, Stage
from shakedown.records.plan import Reference, ReferenceKind
from shakedown.records.reading import BadInput
from shakedown.references.ceilings import BANDWIDTH_UNITS_GBPS, Ceiling


class MissingReference(BadInput):
    """No entry fits a planned cell. A cell without a reference could only pass by not being looked at.

    `test`, `metric` and `facts` say of which cell; empty if it is of none.
    """

    test: str = ""
    metric: str = ""
    facts: Mapping[str, object] = MappingProxyType({})

    @classmethod
    def of(cls, test: str, metric: str, facts: Mapping[str, object], *, fix: str) -> MissingReference:
        """Return the refusal of one cell, by what is known of it."""
        refused = cls(f"no reference for {test} {metric} {scope_text(facts)}", fix=fix)
        refused.test, refused.metric, refused.facts = test, metric, facts
        return refused


# What there is beside writing the references by hand.
_PHYSICAL = "or take floors derived from ceilings (acceptance.profiles: [physical])"
_LEARN = "or let a first run make them (shakedown plan --learn)"
# Of so many kinds of cell each is told with its nearest entry; with more it is no line that a person reads.
_TOLD = 5
_ALL = " (shakedown plan --learn lists all)"


def all_missing(
    missing: Sequence[MissingReference], *, learn: bool = False, floors: bool = False
) -> MissingReference:
    """Return one refusal that tells of several cells: five kinds in full, sizes of one kind together.

    `learn`: the run was to learn, and cannot learn these: nothing says in which unit they are; `floors`: it
    has those derived from ceilings already.
    """
    offer = ", ".join([_PHYSICAL] * (not floors) + [_LEARN] * (not learn)) or "or leave the tests out"
    if len(missing) == 1:
        return MissingReference(missing[0].what, fix=f"{missing[0].fix}; {offer}")
    alike: dict[tuple[str, str, str], list[MissingReference]] = {}
    for one in missing:
        facts = scope_text({key: value for key, value in one.facts.items() if key != "size_bytes"})
        alike.setdefault((one.test, one.metric, facts), []).append(one)
    told = []
    for (test, metric, facts), group in list(alike.items())[:_TOLD]:
        sizes = sorted(size for one in group if isinstance(size := one.facts.get("size_bytes"), int))
        span = f" size_bytes={sizes[0]}" if sizes else ""
        more = f" to {sizes[-1]} ({len(sizes)} sizes)" if len(sizes) > 1 else ""
        cell = f"{test} {metric} {facts}{span}{more}" if test else group[0].what
        told.append(f"{cell}: {group[0].fix}")
    if left := len(alike) - len(told):
        tests = dict.fromkeys(test for test, _, _ in list(alike)[_TOLD:])
        told.append(f"and {left} more of {', '.join(tests)}{'' if learn else _ALL}")
    return MissingReference(f"{len(missing)} cells have no reference: {'; '.join(told)}", fix=offer)


def scope_text(facts: Mapping[str, object]) -> str:
    """Return facts as a person writes them: `gpu=H200 nodes=2`."""
    return " ".join(f"{key}={value}" for key, value in sorted(facts.items())) or "(no scope)"


Text = Annotated[str, Field(min_length=1, strict=True)]


class OutsidePlan(Record):
    """Published figures outside the plan: rows of the profile, or an item that no row stands for."""

    rows: tuple[Text, ...] = ()  # rows of the profile: a name, or with a final `*` all that begin so
    # What is published, where no row stands for it; `printed` is the figure.
    item: Text | None = None
    printed: Text | None = None
    judged_by: Text | None = None  # what holds a site to it, where that is not a run's verdict
    why: Text  # why no cell is held to it

    @model_validator(mode="after")
    def _rows_or_item(self) -> OutsidePlan:
        if bool(self.rows) == bool(self.item):
            raise ValueError("give rows, or item with printed; not both")
        if (self.item is None) != (self.printed is None):
            raise ValueError("item and printed belong together")
        return self

    def lists(self, name: str) -> bool:
        """Whether a reference of this name is meant."""
        return any(names(row, name) for row in self.rows)


class Erratum(Record):
    """A figure that its source prints wrong, and the arithmetic that shows it."""

    where: Text  # in the publication
    printed: Text
    # Numbers, + - * / and brackets; a test works it out and compares the result with `right`.
    arithmetic: Text
    right: Annotated[float, Field(strict=True, allow_inf_nan=False)]
    unit: Text
    note: Text


def names(row: str, name: str) -> bool:
    """Whether a row of the list means a reference: `pt-b-*` means all that begin with `pt-b-`."""
    return name.startswith(row[:-1]) if row.endswith("*") else name == row


def reason_for(name: str, outside: Iterable[OutsidePlan]) -> OutsidePlan | None:
    """Return the most exact entry of the list that means a reference, or None."""
    found = [(len(row), one) for one in outside for row in one.rows if names(row, name)]
    return max(found, key=lambda pair: pair[0])[1] if found else None


# An entry holds for a *scope*, a set of facts about a cell such as `gpu: H100-SXM` and `size_bytes:
# 17179869184`. The keys are a closed set with a type each, so that a size written as text is refused instead
# of never matching. The most specific entry that fits wins; two that fit equally well, and none, are errors
# when the plan is made.

# What an entry may be narrowed to, and the type of each; int keys also take `{min: ..., max: ...}`.
SCOPE_KEYS: dict[str, type] = {
    "system": str,
    "configuration": str,  # one of several networks or set-ups of a system, for comparisons
    "nodes": int,
    "gpus": int,  # ranks in the job
    "gpu": str,
    "nics": int,  # NICs at work on each node
    "nic_speed_gbps": int,
    "nic_driver": str,  # family of drivers: mlx5, bnxt, rxe, irdma
    "switch_nos": str,  # of counters of switches: the system, as roce_switch_nos has it
    "rdma_mtu_bytes": int,
    "rails_at_once": str,
    "route": str,  # of perftest: same-rail, rail i to rail i; cross-rail, rail i to rail i + 1
    "way": str,  # of a pair, by its cabling: same-leaf, same-pod, over-spines; absent where that is unknown
    "routing": str,  # how leaves choose an uplink: ecmp, adaptive; absent where the site does not say
    "oversubscription_percent": int,  # what a leaf's hosts send over what its uplinks carry; 100: none
    "direction": str,
    "senders": int,  # that many nodes send to one NIC at once
    "memory": str,  # of GPUDirect by perftest: host, near (the NIC's nearest GPU), far
    "operation": str,
    "size_bytes": int,
    "size_class": str,  # small, middle, large: where a source does not state the size reliably
    "messages": int,  # how many messages of size_bytes make up the payload
    "algorithm": str,  # ring, nvls, tree, ... as NCCL names it, in lower case
    "dtype": str,
    "launcher": str,  # of nccl-tests: one-process drives all GPUs of a node in turn, srun and mpirun do not
    "path": str,  # way from CPU to GPU, as the system's documentation numbers it
    "pcie_generation": int,
    "interconnect": str,  # generation of a link: NVLink3, NDR, EFAv2, ...
    "model": str,
    "sequence_tokens": int,
    "lora_rank": int,
    "global_batch": int,
    "steps": int,  # of a training: a loss is that of so many
    "data": str,  # of training: real data on the model's own weights, or generated
}

# A unit that is none of these is refused: a typing error in a unit would compare numbers that do not compare.
UNITS = frozenset(BANDWIDTH_UNITS_GBPS) | {
    "ns",
    "us",
    "ms",
    "s",
    "min",
    "samples/s",
    "tokens/s",
    "queries/s",
    "IO/s",
    "TFLOP/s",
    "W",
    "kW",
    "J",
    "%",
    "x",
    "1",
    "packets",
    "events",
    "bytes",
    "loss",
    "degC",
    "MHz",
}


class AmbiguousReference(BadInput):
    """Several entries fit a planned cell and none is more specific than the others."""


class Span(Record):
    """A closed range of whole numbers in a scope; an open end is None."""

    min: int | None = None
    max: int | None = None

    @model_validator(mode="after")
    def _holds_something(self) -> Span:
        if self.min is None and self.max is None:
            raise ValueError("a range needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"a range from {self.min} to {self.max} holds nothing")
        return self

    def covers(self, other: ScopeValue) -> bool:
        """Whether every number of `other` is in this range."""
        low, high = (other.min, other.max) if isinstance(other, Span) else (other, other)
        if isinstance(low, str) or isinstance(high, str):
            return False
        below = self.min is None or (low is not None and low >= self.min)
        return below and (self.max is None or (high is not None and high <= self.max))


ScopeValue = int | str | Span


class MeasuredOn(Record):
    """How much of a GPU model a figure knows: gates of fewer than eight cards are provisional."""

    cards: int = Field(ge=1)  # different ones
    hosts: int = Field(ge=1)  # different ones
    days: int = Field(ge=1)  # different ones
    # Standard deviation between cards, a fraction of their mean.
    spread: Annotated[float, Field(gt=0, lt=1)] | None = None


class ReferenceEntry(Record):
    """One reference of a profile. `line` is where it stands in its file."""

    id: Name
    stage: Stage
    test: Name
    metric: Name
    scope: dict[str, ScopeValue] = Field(default_factory=dict)
    value: Annotated[float, Field(strict=True, allow_inf_nan=False)] | Ceiling
    tolerance: Annotated[float, Field(strict=True, ge=0, lt=1)] | None = None
    limit: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    unit: str
    better: Better
    kind: ReferenceKind
    source: Annotated[str, Field(min_length=1, strict=True)]
    # The figure as its source prints it, where that is not `value` in `unit`; what a computed one is made of.
    printed: Annotated[str, Field(min_length=1, strict=True)] | None = None
    set_by: str | None = None
    note: str | None = None
    measured_on: MeasuredOn | None = None
    ceiling: Ceiling | None = None
    # False: shipped to be compared with and shown, never to decide; `note` says why.
    gates: Annotated[bool, Field(strict=True)] = True
    # A counter that not every device of its kind has: judged where it is reported, not missed where not.
    if_reported: Annotated[bool, Field(strict=True)] = False
    min_samples: Annotated[int, Field(strict=True, ge=1)] = 1
    fleet_min_effect: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    class_tolerance: Annotated[float, Field(strict=True, ge=0, lt=1)] | None = None
    line: int | None = None

    @field_validator("scope", mode="before")
    @classmethod
    def _typed_scope(cls, scope: Any) -> Any:  # noqa: ANN401  (whatever the file held)
        if not isinstance(scope, Mapping):
            raise ValueError("scope must be a mapping of key to value")
        try:
            return {key: _scope_value(key, value, ranges=True) for key, value in scope.items()}
        except BadInput as refused:  # pydantic collects ValueErrors only
            raise ValueError(str(refused)) from refused

    @field_validator("unit")
    @classmethod
    def _known_unit(cls, unit: str) -> str:
        if unit not in UNITS:
            raise ValueError(f"unit {unit!r} is not known; use one of {', '.join(sorted(UNITS))}")
        return unit

    @model_validator(mode="after")
    def _usable(self) -> ReferenceEntry:
        if self.kind is ReferenceKind.LEARN and self.line is not None:
            raise ValueError("kind learn is no reference; say where the value comes from")
        if self.kind is ReferenceKind.COMPUTED and not (self.printed and self.note):
            raise ValueError("kind computed needs printed, the figure it comes from, and note, how")
        for name, formula in (("value", self.value), ("ceiling", self.ceiling)):
            if not isinstance(formula, float | None) and not formula.means_in(self.unit):
                raise ValueError(f"unit mismatch: {name} {formula.formula} has no meaning in {self.unit}")
        try:
            self.reference()
        except BadInput as refused:
            raise ValueError(str(refused)) from refused
        return self

    def reference(self) -> Reference:
        """Return the entry with its formulas resolved, as the plan carries it."""
        same = {name: getattr(self, name) for name in Reference.model_fields if hasattr(self, name)}
        resolved = {
            "value": self._in_unit(self.value),
            "ceiling": self._in_unit(self.ceiling),
            "ceiling_source": None if self.ceiling is None else self.ceiling.describe(),
        }
        return Reference.model_validate({**same, **resolved})

    def _in_unit(self, number: float | Ceiling | None) -> float | None:
        return number if isinstance(number, float | None) else number.in_unit(self.unit)

    def fits(self, scope: Mapping[str, int | str]) -> bool:
        """Whether everything that this entry asks for is true of a cell."""
        return all(key in scope and _covers(wanted, scope[key]) for key, wanted in self.scope.items())

    def narrower_than(self, other: ReferenceEntry) -> bool:
        """Whether this entry holds for a true part of what the other holds for."""
        inside = all(
            key in self.scope and _covers(wanted, self.scope[key]) for key, wanted in other.scope.items()
        )
        return inside and self.scope != other.scope


class Hardware(Record):
    """What a profile was measured on, and what its plan needs. Counts are per system or per node."""

    nodes: int = Field(ge=1)
    node: str
    cpu: str | None = None
    gpu: str | None = None
    gpus_per_node: int = Field(default=0, ge=0)
    nic: str | None = None
    nics_per_node: int = Field(default=0, ge=0)
    switches: str | None = None


class FabricFacts(Record):
    """The fabric that a profile's values hold for."""

    link_speed_gbps: int = Field(ge=1)
    rdma_mtu_bytes: int
    ip_version: int = 4
    rails: int = Field(ge=1)
    leaves: int = Field(ge=1)
    spines: int = Field(default=0, ge=0)
    uplinks_per_leaf_per_spine: int = Field(default=0, ge=0)


class Profile(Record):
    """One file of references: the system it describes, what checking it found, and its entries."""

    profile: Name
    title: Annotated[str, Field(min_length=1)]
    published: Annotated[str, Field(min_length=1)]
    audit: Annotated[str, Field(min_length=1)]
    hardware: Hardware | None = None
    fabric: FabricFacts | None = None
    software: dict[str, str] = Field(default_factory=dict)
    outside_plan: tuple[OutsidePlan, ...] = ()
    errata: tuple[Erratum, ...] = ()
    entries: tuple[ReferenceEntry, ...] = Field(min_length=1)


class Catalogue:
    """All entries of one or several profiles, searched by test, metric and scope.

    Raises BadInput: two entries of one name.
    """

    def __init__(self, profiles: Iterable[Profile]) -> None:
        self.entries: dict[str, ReferenceEntry] = {}
        self.software: dict[str, dict[str, str]] = {}  # by profile: the versions that it was measured with
        # What makes the entry of a cell that no profile has, from its facts; None: nothing does.
        self.derived: Callable[[str, str, Mapping[str, Any]], ReferenceEntry | None] | None = None
        for profile in profiles:
            self.add(profile)

    def add(self, profile: Profile) -> None:
        """Add a profile's entries. Raises BadInput for one whose name is taken."""
        self.software[profile.profile] = profile.software
        for entry in profile.entries:
            if entry.id in self.entries:
                raise BadInput(
                    f"reference {entry.id!r} of profile {profile.profile!r} exists already",
                    fix="give every reference a name of its own",
                    line=entry.line,
                )
            self.entries[entry.id] = entry

    def find(self, *, test: str, metric: str, scope: Mapping[str, int | str]) -> ReferenceEntry:
        """Return the most specific entry for a cell, gating or not (`Entry.gates`).

        Raises:
            MissingReference: no entry fits.
            AmbiguousReference: several fit, and no one of them is narrower than all the others.
            BadInput: an unknown scope key, or a value of the wrong type.
        """
        facts = {key: _scope_value(key, value) for key, value in scope.items()}
        candidates = [e for e in self.entries.values() if (e.test, e.metric) == (test, metric)]
        fitting = [e for e in candidates if e.fits(facts)]  # type: ignore[arg-type]
        best = [e for e in fitting if all(e is o or e.narrower_than(o) for o in fitting)]
        if len(best) == 1:
            return best[0]
        if fitting:
            cell, names = f"{test} {metric} {scope_text(facts)}", ", ".join(e.id for e in fitting[:5])
            raise AmbiguousReference(f"{cell}: {names} fit equally well", fix="narrow the scope of one")
        if self.derived is not None and (made := self.derived(test, metric, facts)) is not None:
            return made
        raise MissingReference.of(test, metric, facts, fix=_nearest(candidates, facts))

    def match(
        self, *, test: str, metric: str, scope: Mapping[str, int | str], required: bool = True
    ) -> Reference:
        """Return the reference of a cell, with its formulas resolved. `scope` is all that is known of the
        cell.

        Raises:
            MissingReference: no entry fits, or the one that fits must not decide a required cell.
            AmbiguousReference, BadInput: as `find`.
        """
        entry = self.find(test=test, metric=metric, scope=scope)
        if required and not entry.gates:
            raise MissingReference(
                f"reference {entry.id!r} for {test} {metric} must not decide a required cell: {entry.note}",
                fix="plan the cell as not required, or add a reference that gates",
            )
        return entry.reference()


def _covers(wanted: ScopeValue, value: ScopeValue) -> bool:
    if isinstance(wanted, Span):
        return wanted.covers(value)
    return type(wanted) is type(value) and wanted == value


def _scope_value(key: object, value: object, *, ranges: bool = False) -> ScopeValue:
    """Return a scope value if its key is known and its type is the key's. Raises BadInput."""
    if not isinstance(key, str) or key not in SCOPE_KEYS:
        raise BadInput(f"scope key {key!r} is not known", fix=f"use one of {', '.join(SCOPE_KEYS)}")
    wanted = SCOPE_KEYS[key]
    if type(value) is wanted:
        return value  # type: ignore[return-value]
    if ranges and wanted is int and isinstance(value, Mapping):
        return Span.model_validate(value, strict=True)
    raise BadInput(
        f"scope {key}: {value!r} is {type(value).__name__}, not {wanted.__name__}",
        fix=f"write {key} as {'a whole number' if wanted is int else 'text'}",
    )


def _nearest(candidates: list[ReferenceEntry], facts: Mapping[str, ScopeValue]) -> str:
    """Say what would have to be true for the entry that misses by least."""
    if not candidates:
        return "add one for this test and metric to the profile"

    def misses(entry: ReferenceEntry) -> dict[str, ScopeValue]:
        return {k: v for k, v in entry.scope.items() if k not in facts or not _covers(v, facts[k])}

    near = min(candidates, key=lambda e: len(misses(e)))
    return f"add one to the profile; the nearest, {near.id}, needs {scope_text(misses(near))}"
