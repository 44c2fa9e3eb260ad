"""What dd prints, and which metric it is."""

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from shakedown.benchmarks.base.contract import Output, Value
from shakedown.benchmarks.disk.settings import Disk
from shakedown.records.base import Better, Record
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import TextSource

_LINE = re.compile(r"(\d+) bytes .* copied, (\S+) s, ")


class DiskResult(Record):
    """One run."""

    bytes: int = Field(gt=0)
    seconds: float = Field(gt=0)


def parse_disk(text: str, *, file: str | Path | None = None) -> DiskResult:
    """Read one run. Raises BadInput."""
    source = TextSource(text, file)
    for line in source.lines:
        if found := _LINE.match(line.text):
            return source.build(
                DiskResult,
                line=line,
                bytes=source.integer(found[1], "bytes", line=line),
                seconds=source.number(found[2], "the time", line=line),
            )
    source.refuse("no line tells how much was copied", fix="give dd's whole output")


def disk(output: Output[Disk]) -> Iterator[Value]:
    """Yield the bandwidth. Raises BadInput."""
    result = parse_disk(output.text, file=output.file)
    if result.bytes < output.order.size_mib << 20:
        raise BadInput("it wrote less than ordered", fix="run it again", file=output.file)
    yield "bandwidth", result.bytes / result.seconds / 1e9, "GB/s", Better.HIGHER, {}, ""
