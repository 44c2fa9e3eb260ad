"""nccl-tests 2.13 to 2.19 and RCCL-tests: what a run gave. The checks are in output_check.py.

Sizes and bandwidths follow nccl-tests' own definitions (doc/PERFORMANCE.md): algbw = size / time, busbw =
algbw x a factor of the operation and the number of ranks, both in GB/s = 10^9 byte/s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count


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
    data_checked: bool  # every row was compared (see `checked`); "0 OK" alone does not say so
    out_of_bounds: Count
    average_busbw_gb_per_s: Amount
    last_error: str | None  # what ncclGetLastError said at the end
    warnings: tuple[str, ...] = ()

    @property
    def wrong_somewhere(self) -> int:
        """How many wrong elements the footer counts where no row has any: nobody knows of which size."""
        told = any(t.wrong for row in self.rows for t in (row.out_of_place, row.in_place) if t)
        return 0 if told else self.out_of_bounds


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


def nccl_version(code: int) -> str:
    """Decode NCCL's version number: 22809 is 2.28.9, and before 2.9, 2804 was 2.8.4."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
