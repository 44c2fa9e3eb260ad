"""Collectives through PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shakedown.benchmarks.base.metrics import Read, Value, job_settings
from shakedown.benchmarks.torch_collectives.output import TorchResult, parse_torch_collectives
from shakedown.records.base import Better
from shakedown.records.errors import BadInput
from shakedown.records.results import OutputRecord


def torch_collectives(text: str, output: OutputRecord, file: Path) -> Iterator[Value]:
    """Yield one operation's busbw and wrong elements by size, and what many small messages cost."""
    settings = job_settings(file)
    result = planned(parse_torch_collectives(text, file=file), settings, file)
    operation = output.test.removeprefix("torch_")
    rows = {(r.size_bytes, r.messages): r for r in result.rows if r.operation == operation}
    for size in settings["sizes"] if operation in settings["operations"] else ():
        if row := rows.get((size, 1)):
            yield "busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, {"size_bytes": size}
            wrong = None if row.wrong is None else float(row.wrong)
            yield "wrong", wrong, "1", Better.LOWER, {"size_bytes": size}
    many, large = settings["many"], settings["large_bytes"]
    if operation != "all_reduce" or not many:
        return
    one, small = rows.get((large, 1)), rows.get((large // many, many))
    for messages, row in ((1, one), (many, small)):
        if row:
            params = {"messages": messages, "size_bytes": row.size_bytes}
            yield Read("busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, {**params})
    if one and small:
        ratio = one.busbw_gb_per_s / small.busbw_gb_per_s
        yield Read("large_over_small", ratio, "x", Better.LOWER, {"messages": many})


def planned(result: TorchResult, settings: dict[str, Any], file: Path) -> TorchResult:
    """Return the result, if it is of the ranks and backend that were planned. Raises BadInput."""
    ranks = sum(settings["ranks"].values())
    if result.header.ranks != ranks or result.header.backend != settings["backend"]:
        found = f"{result.header.ranks} ranks over {result.header.backend}"
        raise BadInput(f"{found}, planned were {ranks} over {settings['backend']}", file=file)
    return result
