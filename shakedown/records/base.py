"""The shapes every record shares, and what makes a value acceptable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


# A key that people write has its `pattern` from `shape`, so a value that it refuses is told in one sentence
# everywhere: `must be NAME/VERSION, such as openmpi/4.1.6`. Each pattern has its words once, here or beside
# it.

_WORDS: dict[str, tuple[str, str]] = {}  # by pattern: what is right, and an example of it


def shape(pattern: str, must_be: str, example: str, **limits: Any) -> Any:  # noqa: ANN401  (as pydantic's Field)
    """Return pydantic's Field of a text of this pattern; `limits` are further ones, such as `max_length`.

    Raises ValueError: the pattern has other words already, which would hide these.
    """
    if _WORDS.setdefault(pattern, (must_be, example)) != (must_be, example):
        raise ValueError(f"two descriptions of {pattern}")
    return Field(pattern=pattern, **limits)


def words_of(detail: ErrorDetails) -> str:
    """Return what one of pydantic's findings says, in plain words where it is about a pattern."""
    if detail["type"] == "string_pattern_mismatch":
        must_be, example = _WORDS.get(str(detail.get("ctx", {}).get("pattern")), ("", ""))
        if must_be:
            return f"must be {must_be}, such as {example}"
    return detail["msg"].removeprefix("Value error, ")


def known() -> Iterator[tuple[str, str, str]]:
    """Yield each pattern that has words, with them and the example."""
    for pattern, (must_be, example) in _WORDS.items():
        yield pattern, must_be, example


# Of several rooms. Paths end up in argv.
PlainPath = Annotated[
    str,
    shape(
        r"^/[A-Za-z0-9_./+-]+$",
        "an absolute path of letters, digits and _ . / + -",
        "/opt/perftest/bin",
        max_length=400,
    ),
]
# As its switch names it: Ethernet1/1, hundredGigE 1/1.
PortName = Annotated[
    str, shape(r"^[A-Za-z][A-Za-z0-9_.:/ -]{0,63}$", "a port's name as its switch has it", "Ethernet1/1")
]


# Every record refuses unknown fields and carries a schema version, so that a file of another release
# is refused in one line and not half-understood. One cell is the unit of everything: *test x metric x
# nodes x rail x direction x parameters*; its identity is `cell_id`.

SCHEMA = 1
# Host, rail, test, metric and counter names end up in paths, cell ids and HTML.
_NAME = shape(
    r"^[A-Za-z0-9][A-Za-z0-9_.:+>-]*$",
    "a name of letters, digits and _ . : + > - that begins with a letter or digit",
    "gpu001",
    min_length=1,
    max_length=128,
)
Name = Annotated[str, _NAME]
# A comma or an equals sign would let two different sets of parameters have one cell id.
_PARAM = shape(
    r"^[^,=\x00-\x1f\x7f]*$", "a text without comma, equals sign, line break", "65536", max_length=200
)
Param = bool | int | float | Annotated[str, _PARAM]
Params = dict[Name, Param]
# Counters of NICs and switches have 64 bits. A larger number was never counted, and would not fit the
# arithmetic that judges it.
COUNTER_END = 1 << 64
CounterValue = Annotated[int, Field(ge=0, lt=COUNTER_END)]


class Record(BaseModel):
    """Base of all records: immutable, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Document(Record):
    """A record that is a file of its own, or a line of one: it says of which release it is."""

    schema_: Literal[1] = Field(default=1, alias="schema")

    model_config = ConfigDict(populate_by_name=True)


_MOST_INDENTED = 8 << 20  # bytes; nobody reads more than that, and indents are a quarter of it


def to_json(record: Record, without: set[str] | None = None) -> bytes:
    """Write a record as its file holds it, the same bytes for the same record; not indented if large.

    `without`: keys that this file has not.
    """
    text = record.model_dump_json(by_alias=True, indent=1, exclude=without)
    if len(text) > _MOST_INDENTED:
        text = record.model_dump_json(by_alias=True, exclude=without)
    return (text + "\n").encode()


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
    """The values of a verdict. A run has one of the first four or BASELINE; a cell may be waived."""

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_RUN = "NOT-RUN"
    WAIVED = "WAIVED"  # it failed, and a person signed for it (records.plan.Waiver)
    BASELINE = "BASELINE"  # measured and not judged: the reference is to be made from it (`plan --learn`)


def tally(counts: Mapping[Outcome, int]) -> dict[Outcome, int]:
    """Return how many cells have each outcome, with zeros; BASELINE only where something was learnt."""
    return {o: counts.get(o, 0) for o in Outcome if o is not Outcome.BASELINE or counts.get(o)}


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
    return f"{stage}/{test}/{metric}/{','.join(nodes)}/{rail or '-'}/{direction or '-'}/{params_text(params)}"


def params_text(params: Params) -> str:
    """Return the parameters as a cell id ends in them: `k=v` by name, or `-` for none."""
    if len(params) == 1:  # nearly always, and there are a hundred thousand of them
        for name, value in params.items():
            return f"{name}={value}"
    return ",".join([f"{k}={params[k]}" for k in sorted(params)]) or "-"


class NicSpec(Record):
    """One fabric NIC as the inventory describes it."""

    rail: Name
    rdma_device: Name
    netdev: Name
    ipv4: str
    leaf: Name | None = None
    leaf_port: Name | None = None
    # Its kernel driver, where the RDMA device's name does not tell it (rocep65s0f0).
    driver: Name | None = None
