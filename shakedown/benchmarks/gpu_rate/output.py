"""What program.py prints: a header, windows of about one second, and an end, of each GPU of a node."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import Field, TypeAdapter, ValidationError

from shakedown.benchmarks.gpu_rate.options import Work
from shakedown.records.base import Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Rounding of a rate that is printed with all its digits, beside the same from work and time.
_SAME = 1e-6
# Of the GPU's clock and the host's: they agreed to 5e-5 in each of 22 recorded series, busy GPUs among them.
_CLOCKS = 0.02


class _Header(Record):
    type: Literal["header"]
    gpu: int = Field(ge=0, le=63)
    name: str
    uuid: str
    torch: str
    matrix: int
    copy_bytes: int


class Window(Record):
    """One window. `rate`: operations or bytes a second."""

    type: Literal["window"]
    work: Work
    end: Positive  # seconds since 1970
    ms: Positive  # of the GPU's own time
    done: int = Field(gt=0)  # products or copies
    rate: Positive

    @property
    def begin(self) -> float:
        """When it began, in seconds since 1970."""
        return self.end - self.ms / 1e3


class _Cannot(Record):
    type: Literal["cannot"]
    work: Work
    why: str


class _End(Record):
    type: Literal["end"]


class GpuRun(Record):
    """All that one GPU did."""

    gpu: int
    name: str
    matrix: int
    copy_bytes: int
    windows: tuple[Window, ...]
    cannot: Mapping[Work, str]  # why it cannot do a kind of work

    def of(self, work: Work) -> tuple[Window, ...]:
        """The windows of one kind of work."""
        return tuple(window for window in self.windows if window.work == work)


_LINE: TypeAdapter[_Header | Window | _Cannot | _End] = TypeAdapter(
    Annotated[_Header | Window | _Cannot | _End, Field(discriminator="type")]
)


def parse_gpu_rate(text: str, *, file: str | Path | None = None) -> tuple[GpuRun, ...]:
    """Read what the GPUs of one node did.

    Raises:
        BadInput: a line that is none of ours, a GPU that did not come to its end or is there twice, a rate
            that is not what its own work and time give.
    """
    runs: dict[int, GpuRun] = {}
    header: _Header | None = None
    windows: list[Window] = []
    cannot: dict[Work, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            found = _LINE.validate_json(line)
        except ValidationError as error:
            about = "not a line of a GPU's rate"
            kinds = _Header | Window | _Cannot | _End
            raise refusal(error, kinds, file=file, line=number, about=about, fix="run it again") from None
        if (header is None) != isinstance(found, _Header):
            _refuse("a GPU's lines do not begin with a header and close with an end", file, number)
        if isinstance(found, _Header):
            header, windows, cannot = found, [], {}
        elif isinstance(found, Window):
            assert header is not None
            amount = 2.0 * (header.copy_bytes if found.work == "copy" else header.matrix**3)
            implied = found.done * amount / (found.ms / 1e3)
            if abs(found.rate - implied) > _SAME * implied:
                _refuse(f"rate {found.rate:.6g}, but its work and time give {implied:.6g}", file, number)
            windows.append(found)
        elif isinstance(found, _Cannot):
            cannot[found.work] = found.why
        else:
            assert header is not None
            if header.gpu in runs:
                _refuse(f"GPU {header.gpu} is there twice", file, number)
            if odd := _out_of_time(windows):
                _refuse(f"GPU {header.gpu}: {odd}", file, number)
            runs[header.gpu] = GpuRun(
                gpu=header.gpu,
                name=header.name,
                matrix=header.matrix,
                copy_bytes=header.copy_bytes,
                windows=tuple(windows),
                cannot=cannot,
            )
            header = None
    if header is not None or not runs:
        what = f"GPU {header.gpu}" if header else "any GPU"
        _refuse(f"output ends before the end of {what}", file, len(text.splitlines()))
    return tuple(runs[gpu] for gpu in sorted(runs))


def _out_of_time(windows: list[Window]) -> str:
    """Return where windows do not follow each other by the clock; empty if they do. There is no pause."""
    for work in dict.fromkeys(window.work for window in windows):
        own = [window for window in windows if window.work == work]
        if any(later.end <= earlier.end for earlier, later in pairwise(own)):
            return f"windows of {work} are out of order or doubled"
        spent_s, span_s = sum(window.ms for window in own[1:]) / 1e3, own[-1].end - own[0].end
        if abs(spent_s - span_s) > _CLOCKS * span_s:
            return f"{len(own) - 1} windows of {work} took {spent_s:.4g} s, {span_s:.4g} s by the clock"
    return ""


def _refuse(what: str, file: str | Path | None, line: int) -> NoReturn:
    raise BadInput(what, fix="run it again", file=file, line=line)
