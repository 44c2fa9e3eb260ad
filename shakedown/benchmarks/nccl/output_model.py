"""What a run of nccl-tests gave, and what its figures must satisfy among themselves.

A lost row or a damaged digit shows here."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from shakedown.benchmarks.base.contract import steps
from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, TextSource

# Sizes and bandwidths follow nccl-tests' own definitions (doc/PERFORMANCE.md): algbw = size / time, busbw =
# algbw x a factor of the operation and the number of ranks, both in GB/s = 10^9 byte/s.


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
    """A rank and the GPU it ran on."""

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
    reduced_max_bytes: Count | None  # the tool lowered max_bytes for lack of memory
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
    data_checked: bool  # every row was compared (see `checked`); "0 OK" alone does not say so
    out_of_bounds: Count
    average_busbw_gb_per_s: Amount
    last_error: str | None  # what ncclGetLastError said at the end
    warnings: tuple[str, ...] = ()

    @property
    def wrong_somewhere(self) -> int:
        """How many wrong elements the footer counts where no row has any: nobody knows of which size."""
        return 0 if self.wrong_in_rows else self.out_of_bounds

    @property
    def denied(self) -> bool:
        """Whether rows have wrong elements of which the footer knows nothing: seen wrong, and damaged."""
        return not self.out_of_bounds and self.wrong_in_rows

    @property
    def wrong_in_rows(self) -> bool:
        """Whether a row has wrong elements."""
        return any(t.wrong for row in self.rows for t in (row.out_of_place, row.in_place) if t)


# Programs that cannot compare what they did in place, and print N/A (reportErrors in src/<program>.cu).
_UNCHECKED_IN_PLACE = frozenset({"alltoall", "alltoallv", "sendrecv"})


def checked(rows: Iterable[NcclRow], operation: str | None) -> bool:
    """Whether all elements were compared, in place too unless nccl-tests cannot."""
    timings = [
        timing
        for row in rows
        for timing in (row.out_of_place, row.in_place if operation not in _UNCHECKED_IN_PLACE else None)
        if timing is not None
    ]
    return bool(timings) and all(timing.wrong is not None for timing in timings)


# Every program computes its bandwidths from size, time and ranks alone (GetBw and GetCollByteCount in
# src/<program>.cu, the same from 2.13 to 2.19 and in RCCL-tests), so each printed figure has a second
# witness.


class Digits(NamedTuple):
    """How far the printed figures of one timing can be trusted: half a unit of the last digit."""

    time_us: float
    algbw: float
    busbw: float


class _Law(NamedTuple):
    """A program's arithmetic for a number of ranks."""

    algbw: float  # algbw = this x size / time
    busbw: float  # busbw = this x algbw
    parts: int | None  # size = count x bytes of the type x this; None: a traffic matrix decides


_FINE_GB_PER_S = 10.0  # from here on two decimals are less than 0.05 % apart
# NAME_SUFFIX names builds: all_reduce_perf_mpi is all_reduce (nccl-tests' README).
_RUN = "_perf"
_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}


def operation_of(program: str) -> str:
    """Return what a program runs: all_reduce of all_reduce_perf and of all_reduce_perf_mpi."""
    return program.partition(_RUN)[0]


def _laws(ranks: int) -> dict[str, _Law]:
    shared = (ranks - 1) / ranks
    split = _Law(1, shared, ranks)
    whole = _Law(1, 1, 1)
    return {
        "all_reduce": _Law(1, 2 * shared, 1),
        "all_gather": split,
        "reduce_scatter": split,
        "alltoall": split,
        "gather": split,
        "scatter": split,
        "alltoallv": split._replace(parts=None),
        "broadcast": whole,
        "reduce": whole,
        "sendrecv": whole,
        "hypercube": _Law(shared, 1, ranks),
    }


def precise_busbw_gb_per_s(result: NcclResult, row: NcclRow, timing: NcclTiming) -> float:
    """Return a timing's busbw, from size and time where these have more digits than what was printed.

    Two decimals are printed: steps of 5 % at 0.2 GB/s. The time beside it has four digits or more, and both
    were found to agree (`check`). With -C the time is the host's and says nothing of the rate.
    """
    printed = timing.busbw_gb_per_s
    law = _laws(_communicator(result)).get(result.operation or "")
    if printed >= _FINE_GB_PER_S or printed != round(printed, 2):
        return printed
    if law is None or result.cpu_time or timing.time_us <= 0:
        return printed
    return law.busbw * law.algbw * row.size_bytes / timing.time_us / 1e3


def check(source: TextSource, result: NcclResult, digits: list[tuple[Line, list[Digits]]]) -> None:
    """Refuse a result whose figures contradict each other: a row was lost or a digit damaged.

    Args:
        source: what to quote.
        result: the result to check.
        digits: for every row its line and the precision of its timings, out of place first.

    Raises BadInput: a contradiction. Wrong elements that only the footer or only a row shows are none: wrong
    data were seen.
    """
    process = result.threads * result.gpus_per_thread
    if not process or result.ranks % process:
        what = f"the list of ranks is not complete: {result.ranks}, in processes of {process}"
        source.refuse(what, fix="capture rank 0's output alone, whole")
    _check_sizes(source, result, [line for line, _ in digits])
    _check_laws(source, result, digits)
    busbw, slack = 0.0, 0.0
    count = 0
    for row, (_, precisions) in zip(result.rows, digits, strict=True):
        for timing, precision in zip(_timings(row), precisions, strict=True):
            busbw, slack, count = busbw + timing.busbw_gb_per_s, slack + precision.busbw, count + 1
    mean = busbw / count
    # The footer has six significant digits (%g).
    if abs(mean - result.average_busbw_gb_per_s) > slack / count + 1e-5 * mean + 1e-6:
        what = f"the average busbw {result.average_busbw_gb_per_s} is not that of the rows ({mean:.6g})"
        source.refuse(what, line=digits[-1][0], fix="run the test again; rows are missing or damaged")


def _timings(row: NcclRow) -> list[NcclTiming]:
    return [t for t in (row.out_of_place, row.in_place) if t is not None]


def _check_laws(source: TextSource, result: NcclResult, digits: list[tuple[Line, list[Digits]]]) -> None:
    """Hold every row against its program's arithmetic; against each program's where none is named."""
    laws = _laws(_communicator(result))
    law = laws.get(result.operation or "")
    if law is not None:
        broken = _broken(result, law, digits)
    else:
        each = [_broken(result, law, digits) for law in laws.values()]
        # The program that explains most says best what is wrong.
        broken = None if None in each else max((x for x in each if x), key=lambda x: x[0])
    if broken is not None:
        _, what, line = broken
        source.refuse(what, line=line, fix="run the test again; the output is damaged")


def _communicator(result: NcclResult) -> int:
    """Return how many ranks took part with rank 0: NCCL_TESTS_SPLIT makes groups, which run side by side."""
    first = result.devices[0].group
    share = sum(1 for device in result.devices if device.group == first) / len(result.devices)
    return max(1, round(result.ranks * share))


def _broken(
    result: NcclResult, law: _Law, digits: list[tuple[Line, list[Digits]]]
) -> tuple[float, str, Line] | None:
    """Return the first row that breaks a law: how far the law held, what is wrong, and the row's line."""
    for number, (row, (line, precisions)) in enumerate(zip(result.rows, digits, strict=True)):
        width = _BYTES.get(row.dtype)
        if law.parts and width and row.count * width * law.parts != row.size_bytes:
            return number, f"{row.count} elements of {row.dtype} contradict {row.size_bytes} bytes", line
        for timing, precision in zip(_timings(row), precisions, strict=True):
            if what := _contradiction(row.size_bytes, timing, precision, law, cpu_time=result.cpu_time):
                return number + 0.5, what, line
    return None


def _contradiction(size: int, timing: NcclTiming, digits: Digits, law: _Law, *, cpu_time: bool) -> str:
    algbw, busbw = timing.algbw_gb_per_s, timing.busbw_gb_per_s
    due = algbw * law.busbw
    if abs(busbw - due) > 1.01 * (digits.busbw + digits.algbw * law.busbw) + 1e-6 * due:
        return f"busbw {busbw} contradicts algbw {algbw}, which makes {due:.6g} GB/s"
    # With -C the time is the host's and the bandwidths are not; a time of 0.00 has no rate.
    if cpu_time or timing.time_us <= digits.time_us:
        return ""
    rate = law.algbw * size / timing.time_us / 1e3
    slack = rate * (1.01 * digits.time_us / timing.time_us + 1e-6)
    took = f"contradicts {size} bytes in {timing.time_us} us"
    if abs(algbw - rate) > 1.01 * digits.algbw + slack:
        return f"algbw {algbw} {took}, which make {rate:.6g} GB/s"
    if abs(busbw - rate * law.busbw) > 1.01 * digits.busbw + slack * law.busbw:
        return f"busbw {busbw} {took}, which make {rate * law.busbw:.6g} GB/s"
    return ""


def _check_sizes(source: TextSource, result: NcclResult, lines: list[Line]) -> None:
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
    return steps(size, last, result.step)
