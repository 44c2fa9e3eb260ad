"""MPI benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.mpi.options import Sweep
from shakedown.benchmarks.mpi.output import parse_allreduce, parse_pingpong
from shakedown.records.base import Better, Params


def mpi(output: Output[Sweep]) -> Iterator[Value]:
    """Yield time, busbw and wrong elements of an all-reduce, or the bandwidth of a ping-pong."""
    if output.record.test == "mpi_allreduce":
        result = parse_allreduce(output.text, file=output.file)
        for row in result.rows:
            params: Params = {"size_bytes": row.size_bytes}
            yield "time", row.time_us, "us", Better.LOWER, params
            if row.size_bytes == max(result.header.sizes):
                yield "busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params
            yield "wrong", float(row.wrong), "1", Better.LOWER, params
    else:
        for pingpong in parse_pingpong(output.text, sizes=output.order.powers_of_two(), file=output.file):
            params = {"size_bytes": pingpong.size_bytes}
            yield "bandwidth", pingpong.bandwidth_gb_per_s, "GB/s", Better.HIGHER, params
