"""MPI benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.base.metrics import Value, job_settings
from shakedown.benchmarks.mpi.output import parse_allreduce, parse_pingpong
from shakedown.records.base import Better, Params
from shakedown.records.results import OutputRecord


def mpi(text: str, output: OutputRecord, file: Path) -> Iterator[Value]:
    """Yield time, busbw and wrong elements of an all-reduce, or the bandwidth of a ping-pong."""
    if output.test == "mpi_allreduce":
        result = parse_allreduce(text, file=file)
        for row in result.rows:
            params: Params = {"size_bytes": row.size_bytes}
            yield "time", row.time_us, "us", Better.LOWER, params
            if row.size_bytes == max(result.header.sizes):
                yield "busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params
            yield "wrong", float(row.wrong), "1", Better.LOWER, params
    else:
        settings = job_settings(file)
        sizes = tuple(1 << i for i in range(33) if settings["min_bytes"] <= 1 << i <= settings["max_bytes"])
        for pingpong in parse_pingpong(text, sizes=sizes, file=file):
            params = {"size_bytes": pingpong.size_bytes}
            yield "bandwidth", pingpong.bandwidth_gb_per_s, "GB/s", Better.HIGHER, params
