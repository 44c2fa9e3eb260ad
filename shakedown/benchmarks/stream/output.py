"""What STREAM prints, McCalpin's 5.9 and 5.10 and ours, and which metric each number is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import Field

from shakedown.benchmarks.base.contract import JobSettings, Output, Value
from shakedown.records.base import Better, Params, Record, shape
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import Line, TextSource

Kernel = Literal["copy", "scale", "add", "triad"]

_COMPILER = shape(r"^[A-Za-z0-9_./+-]+$", "a compiler's name or path", "gcc-13", max_length=400)


class Stream(Record):
    """Memory bandwidth of every NUMA node of every node."""

    # How many NUMA nodes each node has; one with more or fewer gives no value.
    numa_nodes: int = Field(ge=1, le=64)
    # What is judged. All four are always measured.
    kernels: tuple[Kernel, ...] = Field(default=("triad",), min_length=1)
    # Size of each of the three arrays, in MiB. STREAM's rule: at least four times the last-level cache.
    array_mib: int = Field(default=1024, ge=1)
    # How often each kernel runs; the best counts, as STREAM has it.
    times: int = Field(default=20, ge=2, le=1000)
    # The C compiler that builds our STREAM. software.stream names the site's own instead (McCalpin's, built
    # with the array size above).
    compiler: Annotated[str, _COMPILER] = "cc"
    timeout_s: int = Field(default=300, gt=0)  # seconds that one NUMA node may take

    @property
    def elements(self) -> int:
        """Elements of each array: doubles of eight bytes."""
        return self.array_mib << 17


class StreamSettings(JobSettings, Stream):
    """The site's options."""

    former = ("program",)


_ROW = re.compile(r"(Copy|Scale|Add|Triad):?\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*\Z")
_ELEMENTS = re.compile(r"Array size = (\d+) (?:\(elements\)|elements|,)?")
_TIMES = re.compile(r"Each (?:kernel|test) (?:will be executed|is run) (\d+) times")
# Arrays of eight-byte elements that each kernel reads and writes (McCalpin's stream.c, `bytes`).
_ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


class StreamRow(Record):
    """One kernel."""

    kernel: str
    best_gb_per_s: float = Field(gt=0)  # 10^9 bytes a second, in the fastest round
    mean_s: float = Field(gt=0)
    min_s: float = Field(gt=0)
    max_s: float = Field(gt=0)


class StreamResult(Record):
    """One run."""

    elements: int = Field(gt=0)  # of each of the three arrays, eight bytes each
    times: int = Field(ge=2)
    rows: tuple[StreamRow, ...]


def parse_stream(text: str, *, file: str | Path | None = None) -> StreamResult:
    """Read one run.

    Raises BadInput: a kernel is missing or there twice, the result was not validated, or a rate is not what
    its own time and the array give.
    """
    source = TextSource(text, file)
    elements, times = _said(source, _ELEMENTS, "the array size"), _said(source, _TIMES, "how often it ran")
    rows: dict[str, StreamRow] = {}
    for line in source.lines:
        if found := _ROW.match(line.text.strip()):
            row = _row(source, line, found, elements)
            if row.kernel in rows:
                source.refuse(f"{found[1]} is there twice", line=line, fix="give the output of one run")
            rows[row.kernel] = row
    for kernel in _ARRAYS:
        if kernel not in rows:
            source.ends_before(f"the row of {kernel.capitalize()}")
    if not any(line.text.startswith("Solution Validates") for line in source.lines):
        source.refuse(
            "the result was not validated", fix="run it again: a wrong sum means a broken build or memory"
        )
    return StreamResult(elements=elements, times=times, rows=tuple(rows[kernel] for kernel in _ARRAYS))


def _said(source: TextSource, what: re.Pattern[str], words: str) -> int:
    for line in source.lines:
        if found := what.search(line.text):
            return source.integer(found[1], words, line=line)
    source.refuse(f"the output does not tell {words}", fix="give STREAM's whole output")


def _row(source: TextSource, line: Line, found: re.Match[str], elements: int) -> StreamRow:
    kernel = found[1].lower()
    rate, mean, best, worst = (
        source.number(token, f"a number of {found[1]}", line=line) for token in found.groups()[1:]
    )
    if not 0 < best <= mean <= worst:
        source.refuse(
            f"{found[1]}: the times {best}, {mean}, {worst} s are no minimum, mean and maximum", line=line
        )
    # The rate once more, from the time: both are printed rounded, to half a digit of their last place.
    moved = _ARRAYS[kernel] * 8 * elements / 1e6
    half = 0.5 * 10.0 ** -len(found[4].partition(".")[2])
    least, most = moved / (best + half), moved / max(best - half, 1e-12)
    if not least - 0.06 <= rate <= most + 0.06:
        implied = f"{moved / best:.1f}"
        source.refuse(f"{found[1]}: {rate} MB/s, but its time and array give {implied}", line=line)
    return source.build(
        StreamRow, line=line, kernel=kernel, best_gb_per_s=rate / 1e3, mean_s=mean, min_s=best, max_s=worst
    )


def stream(output: Output[Stream]) -> Iterator[Value]:
    """Yield the bandwidth of every kernel that is judged, of one NUMA node.

    Raises BadInput: the output cannot be read, or is of a smaller array or fewer rounds than ordered.
    """
    order, result = output.order, parse_stream(output.text, file=output.file)
    if result.elements < order.elements or result.times < order.times:
        ran = f"{result.elements} elements {result.times} times"
        _refuse(output, f"it ran on {ran}, {order.elements} elements {order.times} times were ordered")
    for row in result.rows:
        if row.kernel in order.kernels:
            told = (
                f"best of {result.times - 1}, mean {row.mean_s * 1e3:.3f} ms, worst {row.max_s * 1e3:.3f} ms"
            )
            params: Params = {"kernel": row.kernel}
            yield "bandwidth", row.best_gb_per_s, "GB/s", Better.HIGHER, params, told


def _refuse(output: Output[Stream], what: str) -> NoReturn:
    raise BadInput(what, fix="build STREAM with the array size of acceptance.stream", file=output.file)
