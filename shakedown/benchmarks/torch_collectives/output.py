"""What `program.py` prints: JSON lines, a header and then one row a size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from shakedown.benchmarks.base.rates import contradicted
from shakedown.benchmarks.torch_collectives.options import TorchOperation
from shakedown.physics.collectives import Collective
from shakedown.records.base import Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal

_CONTRADICTIONS = {
    "algbw": "algbw contradicts size and time",
    "busbw": "busbw contradicts algbw and the number of ranks",
}
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
    """One size. `wrong` None: not checked, which is so of the one large message and the many small ones."""

    type: Literal["row"]
    operation: TorchOperation
    size_bytes: int = Field(gt=0)
    messages: int = Field(ge=1)
    time_us: Rate
    algbw_gb_per_s: Rate
    busbw_gb_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    wrong: int | None = Field(ge=0)

    @property
    def checked(self) -> bool:
        """Whether it is of the sweep, whose elements are compared."""
        return self.wrong is not None


class TorchResult(Record):
    """One run."""

    tool: Literal["torch-collectives"] = "torch-collectives"
    header: Header
    rows: tuple[Row, ...] = Field(min_length=1)


def parse_torch_collectives(text: str, *, file: str | Path | None = None) -> TorchResult:
    """Parse one run's output; other lines, such as a library's warnings, are passed over.

    Raises:
        BadInput: no header, no row, a damaged line, a row twice, or a rate that contradicts size and time.
    """
    header: Header | None = None
    rows: list[Row] = []
    seen: set[str] = set()
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
        if rows and header:
            if len(header.hosts) != header.ranks:
                raise BadInput("as many hosts as ranks are due", file=file, line=number)
            if what := _contradiction(rows[-1], header.ranks):
                raise BadInput(what, fix="run it again", file=file, line=number)
            if (what := _which(rows[-1])) in seen:
                raise BadInput(f"{what} once more", fix="run it again", file=file, line=number)
            seen.add(what)
    if header is None or not rows:
        raise BadInput("the output ends before its first row", fix="run it again", file=file)
    return TorchResult(header=header, rows=tuple(rows))


def _which(row: Row) -> str:
    kind = "" if row.checked else ", unchecked"
    return f"{row.operation} of {row.messages} x {row.size_bytes} bytes{kind}"


def _contradiction(row: Row, ranks: int) -> str:
    """Return what a row says of its rate and its own size and time do not give; empty if nothing."""
    rate = contradicted(
        Collective(row.operation),
        ranks=ranks,
        moved_bytes=row.size_bytes * row.messages,
        time_us=row.time_us,
        algbw_gb_per_s=row.algbw_gb_per_s,
        busbw_gb_per_s=row.busbw_gb_per_s,
    )
    return _CONTRADICTIONS[rate] if rate else ""
