"""Collectives through PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Output, Read, Value
from shakedown.benchmarks.torch_collectives.order import TorchOrder
from shakedown.benchmarks.torch_collectives.output import TorchResult, parse_torch_collectives
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput


def torch_collectives(output: Output[TorchOrder]) -> Iterator[Value]:
    """Yield one operation's busbw and wrong elements by size, and what many small messages cost."""
    order, operation = output.order, output.record.test.removeprefix("torch_")
    rows = {(r.size_bytes, r.messages): r for r in as_ordered(output).rows if r.operation == operation}
    for size in order.sizes if operation in order.operations else ():
        if row := rows.get((size, 1)):
            params: Params = {"size_bytes": size}
            yield "busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params
            wrong = None if row.wrong is None else float(row.wrong)
            yield "wrong", wrong, "1", Better.LOWER, params
    many, large = order.many, order.large_bytes
    if operation != "all_reduce" or not many:
        return
    one, small = rows.get((large, 1)), rows.get((large // many, many))
    for messages, row in ((1, one), (many, small)):
        if row:
            params = {"messages": messages, "size_bytes": row.size_bytes}
            yield Read("busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params)
    if one and small:
        ratio = one.busbw_gb_per_s / small.busbw_gb_per_s
        yield Read("large_over_small", ratio, "x", Better.LOWER, {"messages": many})


def as_ordered(output: Output[TorchOrder]) -> TorchResult:
    """Return the result, if it is of the ranks and backend that were ordered. Raises BadInput."""
    result, order = parse_torch_collectives(output.text, file=output.file), output.order
    ranks = sum(order.ranks.values())
    if result.header.ranks != ranks or result.header.backend != order.backend:
        found = f"{result.header.ranks} ranks over {result.header.backend}"
        raise BadInput(f"{found}, planned were {ranks} over {order.backend}", file=output.file)
    if result.header.iterations not in (None, order.iterations):
        found = f"{result.header.iterations} iterations"
        raise BadInput(f"{found}, planned were {order.iterations}", fix="run it as planned", file=output.file)
    return result
