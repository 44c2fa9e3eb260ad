"""Collectives through PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Output, Read, Value
from shakedown.benchmarks.base.rates import longer_than_recorded
from shakedown.benchmarks.gpu.at_end import disturbed
from shakedown.benchmarks.torch_collectives.order import TorchOrder
from shakedown.benchmarks.torch_collectives.output import TorchResult, parse_torch_collectives
from shakedown.benchmarks.torch_collectives.program import burst_iterations
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput


def torch_collectives(output: Output[TorchOrder]) -> Iterator[Value]:
    """Yield one operation's busbw and wrong elements by size, and what many small messages cost."""
    order, operation = output.order, output.record.test.removeprefix("torch_")
    found = [row for row in as_ordered(output).rows if row.operation == operation]
    # The comparison may have a message of a size of the sweep.
    sweep = {row.size_bytes: row for row in found if row.checked and row.messages == 1}
    busy = disturbed(output.folder, {node: range(count) for node, count in order.ranks.items()})
    for size in order.sizes if operation in order.operations else ():
        if row := sweep.get(size):
            params: Params = {"size_bytes": size}
            yield Read("busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params, disturbed=busy)
            yield "wrong", float(row.wrong or 0), "1", Better.LOWER, params
    many, large = order.many, order.large_bytes
    if operation != "all_reduce" or not many:
        return
    rows = {(row.size_bytes, row.messages): row for row in found if not row.checked}
    one, small = rows.get((large, 1)), rows.get((large // many, many))
    for messages, row in ((1, one), (many, small)):
        if row:
            params = {"messages": messages, "size_bytes": row.size_bytes}
            yield Read("busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params, disturbed=busy)
    if one and small:
        ratio = one.busbw_gb_per_s / small.busbw_gb_per_s
        yield Read("large_over_small", ratio, "x", Better.LOWER, {"messages": many}, disturbed=busy)


def as_ordered(output: Output[TorchOrder]) -> TorchResult:
    """Return the result, if it is of the ranks, hosts and backend that were ordered. Raises BadInput."""
    result, order = parse_torch_collectives(output.text, file=output.file), output.order
    ranks = sum(order.ranks.values())
    if result.header.ranks != ranks or result.header.backend != order.backend:
        found = f"{result.header.ranks} ranks over {result.header.backend}"
        raise BadInput(f"{found}, planned were {ranks} over {order.backend}", file=output.file)
    # Ranks by host, whatever the hosts call themselves.
    on_hosts = sorted(Counter(result.header.hosts).values())
    if on_hosts != sorted(order.ranks.values()):
        found = f"{' + '.join(map(str, on_hosts))} ranks by host"
        planned = " + ".join(map(str, sorted(order.ranks.values())))
        raise BadInput(f"{found}, planned were {planned}", fix="run it as planned", file=output.file)
    if result.header.iterations not in (None, order.iterations):
        found = f"{result.header.iterations} iterations"
        raise BadInput(f"{found}, planned were {order.iterations}", fix="run it as planned", file=output.file)
    times = {True: order.iterations, False: burst_iterations(order.iterations)}
    counted_s = sum(row.time_us * times[row.checked] for row in result.rows) / 1e6
    if too_long := longer_than_recorded(counted_s, output.record):
        raise BadInput(too_long, fix="run it again", file=output.file)
    return result
