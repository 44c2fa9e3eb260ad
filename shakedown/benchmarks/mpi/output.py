"""The two MPI benchmarks of the collective stage: mpi4py's ping-pong and our checked all-reduce."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Literal

from shakedown.benchmarks.base.rates import contradicted
from shakedown.physics.collectives import Collective
from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, Source

_PINGPONG_HEADING = ["#", "Size", "[B]", "Bandwidth", "[MB/s]"]
# Size and bandwidth (10^6 byte/s); since mpi4py 4 also mean time and its deviation in s, and samples.
_PINGPONG_ROW = re.compile(
    r"\s*(?P<size>\d+)\s+(?P<bandwidth>\S+)"
    r"(?: \| (?P<seconds>\S+) \S+ \S+\s+(?P<samples>\d+))?\s*\Z"
)


class PingpongRow(Record):
    """One message size. The time is half the round trip."""

    size_bytes: Count
    bandwidth_gb_per_s: Amount
    # None: printed without statistics (--no-stats), as older releases ordered.
    time_us: Amount | None
    samples: Count | None


def parse_pingpong(
    text: str, *, sizes: tuple[int, ...], file: str | Path | None = None
) -> tuple[PingpongRow, ...]:
    """Read `python -m mpi4py.bench pingpong`. It has no closing line, so the planned sizes are needed.

    Raises:
        BadInput: a size is missing or out of turn, a token is not a number, or a bandwidth is not that of its
            time.
    """
    source = Source(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    heading = next((i for i, x in enumerate(lines) if x.text.split()[:5] == _PINGPONG_HEADING), None)
    if heading is None:
        source.ends_before("the table of results")
    # The heading promises times or none; a row that lost them is not the tool's.
    timed = "Samples" in lines[heading].text.split()
    rows = tuple(_pingpong_row(source, line, timed=timed) for line in lines[heading + 1 :])
    if not source.terminated or tuple(row.size_bytes for row in rows) != sizes:
        got = ", ".join(str(row.size_bytes) for row in rows) or "none"
        source.refuse(f"sizes measured are {got}, expected were {sizes[0]} to {sizes[-1]} by doubling")
    return rows


def _pingpong_row(source: Source, line: Line, *, timed: bool) -> PingpongRow:
    match = _PINGPONG_ROW.match(line.text)
    if not match or timed is (match["seconds"] is None):
        source.refuse(f"not a row of the ping-pong table: {line.text[:80]!r}", line=line)
    row = source.build(
        PingpongRow,
        line=line,
        size_bytes=source.integer(match["size"], "size", line=line),
        bandwidth_gb_per_s=source.number(match["bandwidth"], "bandwidth", line=line) / 1e3,
        time_us=source.number(match["seconds"], "mean time", line=line) * 1e6 if timed else None,
        samples=source.integer(match["samples"], "samples", line=line) if timed else None,
    )
    if row.time_us is not None:
        due = row.size_bytes / row.time_us / 1e3 if row.time_us else math.inf
        # Printed are two decimals of MB/s, and eight digits of the time.
        if not math.isclose(row.bandwidth_gb_per_s, due, rel_tol=1e-6, abs_tol=0.0051e-3):
            source.refuse("bandwidth contradicts size and mean time", line=line)
    return row


class AllreduceRow(Record):
    """One message size of `shakedown.benchmarks.mpi.allreduce`."""

    type: Literal["row"]
    size_bytes: Count
    time_us: Amount
    algbw_gb_per_s: Amount
    busbw_gb_per_s: Amount
    wrong: Count


class AllreduceHeader(Record):
    """Its first line."""

    type: Literal["header"]
    mpi: str
    hosts: tuple[str, ...]
    sizes: tuple[Count, ...]
    # None: written by a release that did not say.
    iterations: Count | None = None
    warmup: Count | None = None


class AllreduceResult(Record):
    """One run: as many rows as the header promised."""

    header: AllreduceHeader
    rows: tuple[AllreduceRow, ...]


def parse_allreduce(text: str, *, file: str | Path | None = None) -> AllreduceResult:
    """Read the JSON lines of `shakedown.benchmarks.mpi.allreduce`.

    Raises:
        BadInput: a line is not what the program writes, rows are missing, or a rate is not that of its time.
    """
    source = Source(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    if not lines:
        source.ends_before("the header")
    header = source.validate(AllreduceHeader, source.json(lines[0].text, line=lines[0]), line=lines[0])
    rows = tuple(
        source.validate(AllreduceRow, source.json(line.text, line=line), line=line) for line in lines[1:]
    )
    if tuple(row.size_bytes for row in rows) != header.sizes or not source.terminated:
        source.ends_before(f"all {len(header.sizes)} sizes are measured")
    for row, line in zip(rows, lines[1:], strict=True):
        if rate := contradicted(
            Collective.ALL_REDUCE,
            ranks=len(header.hosts),
            moved_bytes=row.size_bytes,
            time_us=row.time_us,
            algbw_gb_per_s=row.algbw_gb_per_s,
            busbw_gb_per_s=row.busbw_gb_per_s,
        ):
            source.refuse(f"{rate} contradicts size, time and number of ranks", line=line)
    return AllreduceResult(header=header, rows=rows)
