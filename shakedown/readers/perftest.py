"""perftest's outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shakedown.core.records import Better, OutputRecord
from shakedown.parsers.perftest import parse_perftest
from shakedown.readers.common import Value


def perftest(text: str, output: OutputRecord, file: Path) -> Iterator[Value]:
    """Yield bandwidth, or typical and 99 % latency, at the planned size."""
    result = parse_perftest(text, file=file)
    size = output.params.get("size_bytes")
    for row in result.bandwidth:
        if row.size_bytes == size:
            yield "bandwidth", row.bw_average_gbps, "Gb/s", Better.HIGHER, {}
    for latency in result.latency:
        if latency.size_bytes == size:
            yield "latency_typical", latency.t_typical_us, "us", Better.LOWER, {}
            yield "latency_p99", latency.t_p99_us, "us", Better.LOWER, {}
