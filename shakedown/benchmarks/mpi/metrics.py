"""MPI benchmarks: their numbers, and which way their messages went."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Moved, Output, Read, Value
from shakedown.benchmarks.base.pinning import Deviation, judge_pinning
from shakedown.benchmarks.mpi.options import MpiOrder
from shakedown.benchmarks.mpi.output import AllreduceResult, PingpongRow, parse_allreduce, parse_pingpong
from shakedown.benchmarks.mpi.transport import judge_way
from shakedown.benchmarks.mpi.ucx_log import parse_ucx_log
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
from shakedown.records.wording import count


def mpi(output: Output[MpiOrder]) -> Iterator[Value]:
    """Yield time, busbw and wrong elements of an all-reduce, or the bandwidth of a ping-pong."""
    if output.record.test == "mpi_allreduce":
        result = _allreduce(output)
        for row in result.rows:
            params: Params = {"size_bytes": row.size_bytes}
            yield "time", row.time_us, "us", Better.LOWER, params
            if row.size_bytes == max(result.header.sizes):
                yield "busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params
            yield "wrong", float(row.wrong), "1", Better.LOWER, params
    else:
        for pingpong in _pingpong(output):
            params = {"size_bytes": pingpong.size_bytes}
            yield "bandwidth", pingpong.bandwidth_gb_per_s, "GB/s", Better.HIGHER, params


def mpi_log(output: Output[MpiOrder]) -> Iterator[Value]:
    """Yield 0 or 1 for each check of the way that messages went, and of where ranks ran. Raises BadInput."""
    order, nodes = output.order, output.record.nodes
    found: list[Deviation] = []
    if order.transport is not None and len(nodes) > 1:
        log = parse_ucx_log(output.text, file=output.file)
        found.extend(judge_way(log, order.transport, len(nodes), order.devices))
    if order.pinned:
        found.append(judge_pinning(output.folder, dict.fromkeys(nodes, 1)))
    for one in found:
        wrong = None if one.wrong is None else float(one.wrong)
        yield Read("wrong", wrong, "1", Better.LOWER, {"check": one.check}, one.detail)


def moved(output: Output[MpiOrder]) -> Iterator[Moved]:
    """Yield what each node must have sent and received, in bytes. Raises as `mpi` does.

    One rank a node: for an all-reduce each must at least give away its own message and learn the sum of the
    others', whatever the algorithm; of a ping-pong each message goes both ways. Warm-up comes on top.
    """
    order, nodes = output.order, output.record.nodes
    if len(nodes) < 2:
        return
    if output.record.test == "mpi_allreduce":
        sizes = [row.size_bytes for row in _allreduce(output).rows]
        payload = float(sum(sizes) * order.iterations)
    else:
        payload = float(sum(row.size_bytes for row in _pingpong(output)) * order.iterations)
    for node in nodes:
        yield Moved(node, None, payload, payload)


def _pingpong(output: Output[MpiOrder]) -> tuple[PingpongRow, ...]:
    """Return the rows of the ping-pong, if it is the one that was ordered. Raises BadInput."""
    order, fix = output.order, "run it as planned"
    rows = parse_pingpong(output.text, sizes=order.powers_of_two(), file=output.file)
    for row in rows:
        if row.samples is None:
            if order.timed:
                what = f"{row.size_bytes} bytes: no time beside the bandwidth, which nothing else bears out"
                raise BadInput(what, fix=fix, file=output.file)
        elif row.samples != order.iterations:
            what = f"{row.size_bytes} bytes: {count(row.samples, 'sample')}, planned were {order.iterations}"
            raise BadInput(what, fix=fix, file=output.file)
    return rows


def _allreduce(output: Output[MpiOrder]) -> AllreduceResult:
    """Return the all-reduce, if it is the one that was ordered. Raises BadInput."""
    result, order = parse_allreduce(output.text, file=output.file), output.order
    header, fix = result.header, "run it as planned"
    # The program rounds to whole numbers of its type; the planner's sizes are whole already.
    if header.sizes != order.steps():
        sizes = ", ".join(map(str, header.sizes))
        raise BadInput(f"sizes are {sizes}, planned were {order.steps()}", fix=fix, file=output.file)
    if len(header.hosts) != len(output.record.nodes) or len(set(header.hosts)) != len(header.hosts):
        nodes = len(output.record.nodes)
        ranks, hosts = count(len(header.hosts), "rank"), count(len(set(header.hosts)), "host")
        what = f"it ran on {ranks} of {hosts}, planned was one on each of {nodes} nodes"
        raise BadInput(what, fix=fix, file=output.file)
    if header.iterations not in (None, order.iterations):
        what = f"it ran {header.iterations} iterations, {order.iterations} were planned"
        raise BadInput(what, fix=fix, file=output.file)
    return result
