"""What `program.py` prints: JSON lines, a header and then one row a size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shakedown.records.base import Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Header(Record):
    """What ran, on which hosts (one entry a rank)."""

    type: Literal["header"]
    torch: str
    library: str
    backend: Literal["nccl", "gloo"]
    ranks: int = Field(ge=1)
    hosts: tuple[str, ...]
    iterations: int | None = Field(default=None, ge=1)  # None: written by a release that did not say


class Row(Record):
    """One size. `wrong` None: not checked."""

    type: Literal["row"]
    operation: str
    size_bytes: int = Field(gt=0)
    messages: int = Field(ge=1)
    time_us: Rate
    algbw_gb_per_s: Rate
    busbw_gb_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    wrong: int | None = Field(ge=0)


class TorchResult(Record):
    """One run."""

    tool: Literal["torch-collectives"] = "torch-collectives"
    header: Header
    rows: tuple[Row, ...] = Field(min_length=1)


def parse_torch_collectives(text: str, *, file: str | Path | None = None) -> TorchResult:
    """Parse one run's output; other lines, such as a library's warnings, are passed over.

    Raises:
        BadInput: no header, no row, a damaged line, or a rate that contradicts size and time.
    """
    header: Header | None = None
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.startswith("{"):
            continue
        try:
            if header is None:
                header = Header.model_validate_json(line)
            else:
                rows.append(Row.model_validate_json(line))
        except ValidationError as error:
            raise refusal(
                error, Row if header else Header, file=file, line=number, fix="run it again"
            ) from None
        if rows and header and len(header.hosts) != header.ranks:
            raise BadInput("as many hosts as ranks are due", file=file, line=number)
        if (
            rows
            and abs(
                rows[-1].size_bytes * rows[-1].messages / rows[-1].time_us / 1e3 - rows[-1].algbw_gb_per_s
            )
            > 1e-6 * rows[-1].algbw_gb_per_s
        ):
            raise BadInput("algbw contradicts size and time", fix="run it again", file=file, line=number)
    if header is None or not rows:
        raise BadInput("the output ends before its first row", fix="run it again", file=file)
    return TorchResult(header=header, rows=tuple(rows))
