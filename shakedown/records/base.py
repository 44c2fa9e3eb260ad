"""What every record shares: no unknown field, the words for stages and outcomes, a cell's identity.

Every record refuses unknown fields and carries a schema version, so that a file of another release
is refused in one line and not half-understood. One cell is the unit of everything: *test x metric x
nodes x rail x direction x parameters*; its identity is `cell_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shakedown.records.shapes import shape

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
