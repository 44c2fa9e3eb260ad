"""nccl-tests 2.13 to 2.19: results, the checks that text and JSON share, and the entry points.

Sizes and bandwidths follow nccl-tests' own definitions (doc/PERFORMANCE.md): algbw = size / time, busbw =
algbw x a factor of the operation and the number of ranks, both in GB/s = 10^9 byte/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, Source


class NcclTiming(Record):
    """One measurement of a row, out of place or in place. With -I also the spread over iterations."""

    time_us: Amount
    algbw_gb_per_s: Amount
    busbw_gb_per_s: Amount
    wrong: Count | None  # wrong elements; None: not checked ("N/A"), which is not 0
    iteration_min_us: Amount | None = None
    iteration_max_us: Amount | None = None
    iteration_p99_us: Amount | None = None
    iteration_cv_percent: Amount | None = None


class NcclRow(Record):
    """One message size. `size_bytes` is what was moved: reduce_scatter and others round down, even to 0."""

    size_bytes: Count
    count: Count
    dtype: str
    redop: str
    root: Annotated[int, Field(ge=-1)]  # -1: the operation has none
    out_of_place: NcclTiming | None  # None: not run
    in_place: NcclTiming


class NcclDevice(Record):
    """A rank and the GPU it ran on. JSON lists only the first rank of each process."""

    rank: Count
    group: Count
    pid: Count
    host: str
    device: Count
    pci: str
    name: str


class NcclResult(Record):
    """One nccl-tests run."""

    tool: Literal["nccl-tests"] = "nccl-tests"
    operation: str | None  # all_reduce, ...; None: text before 2.16 does not say
    version: str | None  # of nccl-tests; None: not stated
    nccl_version: str | None  # of the NCCL library that ran
    ranks: Count
    hosts: tuple[str, ...]
    devices: tuple[NcclDevice, ...]
    threads: Count
    gpus_per_thread: Count
    min_bytes: Count
    max_bytes: Count  # asked for
    reduced_max_bytes: Count | None  # the tool lowered max_bytes for lack of memory; JSON does not say
    step: Count
    step_is_factor: bool
    warmup_iterations: Count
    iterations: Count
    aggregated_iterations: Count
    validation: Count  # times that the data were checked per size
    cuda_graph: Count
    cpu_time: bool  # times are the host's (-C), bandwidths are not
    per_iteration: bool
    rows: tuple[NcclRow, ...] = Field(min_length=1)
    data_checked: bool  # every row was compared; "0 OK" alone does not say so
    out_of_bounds: Count
    average_busbw_gb_per_s: Amount
    last_error: str | None  # what ncclGetLastError said at the end
    warnings: tuple[str, ...] = ()


def parse_nccl(text: str, *, file: str | Path | None = None) -> NcclResult:
    """Parse one output of an nccl-tests program, text or `-J` JSON.

    The environment that `-J` writes is dropped; nothing of it reaches the result or an error message.

    Raises:
        BadInput: truncated, contradictory or failed output, anything that is not a number where one is due.
    """
    from shakedown.benchmarks.nccl import output_json as nccl_json
    from shakedown.benchmarks.nccl import output_text as nccl_text

    source = Source(text, file)
    first = next(line.text.strip() for line in source.lines if line.text.strip())
    if first.startswith("{"):
        return nccl_json.parse(source)
    return nccl_text.parse(source)


def nccl_version(code: int) -> str:
    """Decode NCCL's version number: 22809 is 2.28.9, and before 2.9, 2804 was 2.8.4."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


# algbw = size / time for these; hypercube and alltoallv count bytes otherwise.
_PLAIN = {
    "all_gather",
    "all_reduce",
    "alltoall",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "sendrecv",
}


class Digits(Record):
    """How far the printed figures of one timing can be trusted: half a unit of the last digit."""

    time_us: float
    algbw: float
    busbw: float


def check(source: Source, result: NcclResult, digits: list[tuple[Line | None, list[Digits]]]) -> None:
    """Refuse a result whose figures contradict each other: a row was lost or a digit damaged.

    Args:
        source: what to quote.
        result: the result to check.
        digits: for every row its line and the precision of its timings, out of place first.
    """
    _check_sizes(source, result, [line for line, _ in digits])
    busbw, slack = 0.0, 0.0
    count = 0
    for row, (line, precisions) in zip(result.rows, digits, strict=True):
        timings = [t for t in (row.out_of_place, row.in_place) if t is not None]
        for timing, precision in zip(timings, precisions, strict=True):
            _check_timing(source, result, row, timing, precision, line)
            busbw, slack, count = busbw + timing.busbw_gb_per_s, slack + precision.busbw, count + 1
    mean = busbw / count
    # The footer has six significant digits (%g).
    if abs(mean - result.average_busbw_gb_per_s) > slack / count + 1e-5 * mean + 1e-6:
        what = f"the average busbw {result.average_busbw_gb_per_s} is not that of the rows ({mean:.6g})"
        source.refuse(what, line=digits[-1][0], fix="run the test again; rows are missing or damaged")


def _check_timing(
    source: Source, result: NcclResult, row: NcclRow, timing: NcclTiming, digits: Digits, line: Line | None
) -> None:
    if timing.wrong and not result.out_of_bounds:
        source.refuse("a row has wrong elements but the footer says 0 out of bounds", line=line)
    if result.operation not in _PLAIN or result.cpu_time or timing.time_us <= digits.time_us:
        return
    algbw = row.size_bytes / timing.time_us / 1e3
    relative = digits.time_us / timing.time_us
    if abs(algbw - timing.algbw_gb_per_s) > digits.algbw * 1.01 + algbw * (relative * 1.01 + 1e-6):
        took = f"{row.size_bytes} bytes in {timing.time_us} us"
        what = f"algbw {timing.algbw_gb_per_s} contradicts {took}, which make {algbw:.6g} GB/s"
        source.refuse(what, line=line, fix="run the test again; the output is damaged")


def _check_sizes(source: Source, result: NcclResult, lines: list[Line | None]) -> None:
    """Every size of the sweep must be there, for every type, redop and root, in order."""
    due = _sweep(result)
    if not due:
        return
    rows = result.rows
    if len(rows) % len(due):
        what = f"{len(rows)} rows where {len(due)} sizes (or a multiple) are due: rows are missing"
        fix = "run the test again; if nccl-tests reduced maxBytes for lack of memory, ask for less (-e)"
        source.refuse(what, line=lines[-1], fix=fix)
    # Operations that split the buffer round down to 16 bytes a rank; a type may be larger than the size.
    slack = 32 * max(result.ranks, 1)
    for index, (row, line) in enumerate(zip(rows, lines, strict=True)):
        first = rows[index - index % len(due)]
        same = (row.dtype, row.redop, row.root) == (first.dtype, first.redop, first.root)
        size = due[index % len(due)]
        fits = row.size_bytes <= size <= row.size_bytes + slack or result.operation == "alltoallv"
        if not (same and fits):
            source.refuse(f"row of {row.size_bytes} bytes where {size} are due: a row is missing", line=line)


def _sweep(result: NcclResult) -> Sequence[int]:
    """The sizes that were asked for; empty if the header defines no finite sweep."""
    last = result.max_bytes if result.reduced_max_bytes is None else result.reduced_max_bytes
    size = min(result.min_bytes, last)
    if not result.step_is_factor:
        # A range of more than 2^32 sizes has no row count that fits, nor a length that Python can state.
        last = min(last, size + (result.step << 32))
        return range(size, last + 1, result.step) if result.step else ()
    if size < 1 or result.step < 2:
        return ()
    sizes = [size]
    while sizes[-1] * result.step <= last:
        sizes.append(sizes[-1] * result.step)
    return sizes
