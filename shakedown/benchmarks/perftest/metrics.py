"""perftest's outputs, each held against what was ordered of its cell."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from shakedown.benchmarks.base.contract import Moved, Output, Value
from shakedown.benchmarks.base.output import longer_than_recorded
from shakedown.benchmarks.perftest.mesh.schedule import client_and_server, nic_rail, source_and_sink
from shakedown.benchmarks.perftest.mesh.spec import DIRECTIONS, RDMA_CM, SWEEP
from shakedown.benchmarks.perftest.mesh.store import gids_taken
from shakedown.benchmarks.perftest.output import BandwidthRow, LatencyRow, PerftestResult, parse_perftest
from shakedown.benchmarks.perftest.settings import MeshSettings, NicSettings
from shakedown.records.base import Better, Params
from shakedown.records.reading import BadInput
from shakedown.records.results import OutputRecord

_KINDS = {"bw": "bandwidth", "lat": "latency"}
_TEST = re.compile(r"ib_(?P<operation>write|read|send|atomic)_(?P<kind>bw|lat)\Z")
# How far the time that a test counted over may be from the ordered one: its alarms come late on a busy host.
_LENGTH_TOLERANCE = 0.25
_AGAIN = "measure the cell again; what belongs elsewhere proves nothing here"


def perftest(output: Output[MeshSettings]) -> Iterator[Value]:
    """Yield bandwidth (of both ways their sum), or typical and 99 % latency, at the planned size.

    Raises BadInput: the output cannot be read, or is of something else than its record says or the job
    ordered: another test, device, GID index, addresses, type of service, MTU, iterations or duration.
    """
    result, record = _as_set(output), output.record
    swept = output.order.operation(record.test, None, record.params.get("qps", 1))
    for row in _rows(result, record):
        of_size: Params = {"size_bytes": row.size_bytes} if "sweep" in record.params else {}
        if of_size and swept is not None and row.size_bytes not in swept.sizes:
            continue  # it has no reference, so it is no cell of the plan
        if isinstance(row, BandwidthRow):
            metric = "bandwidth_both" if result.bidirectional else "bandwidth"
            yield metric, row.bw_average_gbps, "Gb/s", Better.HIGHER, of_size
        else:
            yield "latency_typical", row.t_typical_us, "us", Better.LOWER, of_size
            yield "latency_p99", row.t_p99_us, "us", Better.LOWER, of_size


def moved(output: Output[MeshSettings]) -> Iterator[Moved]:
    """Yield the payload from the source's NIC to the sink's, in bytes. Raises as `perftest` does.

    In duration mode perftest counts the middle of the time only, so more went over than this.
    """
    record = output.record
    if len(record.nodes) != 2 or record.rail is None or record.direction not in DIRECTIONS:
        return
    result, pair = _as_set(output), (record.nodes[0], record.nodes[1])
    ordered = output.order.operation(record.test, record.params.get("size_bytes"), result.queue_pairs)
    each_pair = ordered is None or ordered.duration_s is None  # else the number is of all queue pairs
    for row in _rows(result, record):
        payload = float(row.size_bytes * row.iterations * (result.queue_pairs if each_pair else 1))
        ways = ("forward", "reverse") if record.direction == "both" else (record.direction,)
        # Counted over a time, send puts both ways into one number (print_report_bw); else it is each side's.
        if not each_pair and result.operation == "send":
            payload /= len(ways)
        for way in ways:
            source, sink = source_and_sink(pair, way)
            yield Moved(source, nic_rail(source, pair, way, record.rail), payload, 0.0)
            yield Moved(sink, nic_rail(sink, pair, way, record.rail), 0.0, payload)


def _rows(result: PerftestResult, record: OutputRecord) -> Iterator[BandwidthRow | LatencyRow]:
    size, swept = record.params.get("size_bytes"), "sweep" in record.params
    yield from (row for row in result.bandwidth if swept or row.size_bytes == size)
    yield from (latency for latency in result.latency if swept or latency.size_bytes == size)


@lru_cache(maxsize=1)  # an output's values and its bytes are asked for one after the other
def _parsed(text: str, file: Path) -> PerftestResult:
    return parse_perftest(text, file=file)


def _as_set(output: Output[MeshSettings]) -> PerftestResult:
    """Return the result, if it is of what the record says and the job ordered. Raises BadInput."""
    record, order = output.record, output.order
    result = _parsed(output.text, output.file)
    for wrong, fix in (
        _another(result, record),
        _elsewhere(result, output),
        _another_class(result, order),
        _mtu(result, order),
        _less_work(result, record, order),
    ):
        if wrong:
            raise BadInput(wrong, fix=fix, file=output.file)
    return result


def _another(result: PerftestResult, output: OutputRecord) -> tuple[str, str]:
    """Return why this is another test than the record's, and what to do; empty if it is the same."""
    test, size, qps = _TEST.match(output.test), output.params.get("size_bytes"), output.params.get("qps", 1)
    both = output.direction == "both"
    sizes = [row.size_bytes for row in result.bandwidth] + [row.size_bytes for row in result.latency]
    wrong = ""
    if test is None:
        wrong = f"perftest has no test {output.test!r}"
    elif (result.operation, result.kind) != (test["operation"], _KINDS[test["kind"]]):
        wrong = f"this is a {result.operation} {result.kind} test, its record says {output.test}"
    elif result.bidirectional is not both:
        wrong = f"this test ran in {_directions(result.bidirectional)}, its record says {_directions(both)}"
    elif result.queue_pairs != qps:
        wrong = f"this test ran on {result.queue_pairs} queue pairs, its record says {qps}"
    elif "sweep" in output.params:
        if tuple(sizes) != SWEEP:
            all_of_them = f"its record says all {len(SWEEP)} of perftest -a"
            wrong = f"this test moved messages of {len(sizes)} sizes, {all_of_them}"
    elif sizes != [size]:  # a row of a sweep is of another run, warm from the sizes before it
        wrong = f"this test moved messages of {', '.join(map(str, sizes))} bytes, its record says {size}"
    if wrong:
        return wrong, _AGAIN
    if result.rdma_cm is not (output.params.get("connection") == RDMA_CM):
        way = "by RDMA-CM" if result.rdma_cm else "without RDMA-CM"
        wrong = f"this test was connected {way}, its record says otherwise"
    elif result.side == "server":
        # Records are written by whoever started the client, and JSON does not say whose it is.
        wrong = "this is the server's output, but its record names the client's"
    elif result.connection != "RC":
        wrong = f"this test ran on connections of type {result.connection}, RC was ordered"
    elif (result.transport, result.link_layer) != ("IB", "Ethernet"):
        wrong = f"this test ran over {result.transport} on {result.link_layer}, RoCE is IB on Ethernet"
    return wrong, _AGAIN


def _directions(both: bool) -> str:
    return "both directions at once" if both else "one direction"


def _elsewhere(result: PerftestResult, output: Output[MeshSettings]) -> tuple[str, str]:
    """Return why this was measured between other NICs, or by another GID, than its record and order say."""
    record, order = output.record, output.order
    if len(record.nodes) != 2 or record.rail is None or record.direction not in DIRECTIONS:
        return "", ""
    pair, direction = (record.nodes[0], record.nodes[1]), record.direction
    ends = client_and_server(record.test, pair, direction)
    found: list[str] = []
    for node, what, ipv4 in zip(
        ends, ("client", "server"), (result.local_ipv4, result.remote_ipv4), strict=True
    ):
        rail = nic_rail(node, pair, direction, record.rail)
        nic = order.nodes[node].rails.get(rail) if node in order.nodes else None
        if nic is None:
            continue
        # Where the site chose the GID's index itself, it need not be that of the rail's address.
        if order.gid_index is None and ipv4 != nic.ipv4:
            is_what = ipv4 or "of no IPv4 address"
            found.append(f"the {what} of this test is {is_what}, {node} has {nic.ipv4} on {rail}")
        if what == "client":
            found += _of_client(result, output, node, rail, nic)
    return (found[0], _AGAIN) if found else ("", "")


def _of_client(
    result: PerftestResult, output: Output[MeshSettings], node: str, rail: str, nic: NicSettings
) -> Iterator[str]:
    """Yield what the client says of itself that is not so: device and GID index."""
    if nic.rdma_device and result.device != nic.rdma_device:
        yield f"this test ran on {result.device}, {node} has {nic.rdma_device} on {rail}"
    chosen = output.order.gid_index
    # An address may have GIDs of RoCE v1 and v2, so the address alone does not say which was used.
    taken = output.folder.once(gids_taken, node).get(rail, set()) if chosen is None else {chosen}
    if taken and result.gid_index not in taken:
        which = " or ".join(map(str, sorted(taken)))
        whose = f"{node}'s driver had found {which}" if chosen is None else f"{which} was ordered"
        yield f"this test used GID index {result.gid_index}, {whose}"


def _another_class(result: PerftestResult, order: MeshSettings) -> tuple[str, str]:
    """Return why the type of service is not the traffic class ordered. perftest tells it of -T alone."""
    if result.tos is None or order.tclass is None or result.tos == order.tclass:
        return "", ""
    return f"this test ran with type of service {result.tos}, {order.tclass} was ordered", _AGAIN


def _mtu(result: PerftestResult, order: MeshSettings) -> tuple[str, str]:
    """Return why the RDMA MTU is not the one ordered; a job that orders none takes any."""
    ordered = order.mtu
    if ordered is None or ordered == result.mtu_bytes:
        return "", ""
    wrong = f"this test ran with an RDMA MTU of {result.mtu_bytes} bytes, {ordered} were ordered"
    return wrong, "give both NICs and the switch ports between them the planned MTU"


def _counted_s(result: PerftestResult, row: BandwidthRow) -> float:
    """Return over how many seconds a row was counted: its iterations over their rate; 0 if it has no rate."""
    rate = row.bw_average_gbps * 1e9 / 8 / row.size_bytes
    if result.bidirectional and result.operation != "send":
        # The bandwidth is of both sides, the iterations are the client's (print_full_bw_report).
        rate /= 2
    return row.iterations / rate if rate > 0 else 0.0


def _less_work(result: PerftestResult, record: OutputRecord, order: MeshSettings) -> tuple[str, str]:
    """Return why the test did not run as many iterations, or as long, as was ordered.

    In duration mode perftest counts from a quarter of the time to a quarter before its end, in whole seconds
    (linux-rdma/perftest, perftest_parameters.c, margin); iterations over their rate are that time.
    """
    qps = record.params.get("qps", 1)
    ordered = order.operation(record.test, record.params.get("size_bytes"), qps)
    fix = "measure the cell again, as it was planned"
    for row in _rows(result, record):
        if ordered is None:
            continue
        if ordered.iterations is not None and row.iterations != ordered.iterations:
            return f"this test ran {row.iterations} iterations, {ordered.iterations} were ordered", fix
        if not isinstance(row, BandwidthRow):
            continue
        took_s = _counted_s(result, row)
        if too_long := longer_than_recorded(took_s, record, _LENGTH_TOLERANCE):
            return too_long, _AGAIN
        if ordered.duration_s is None:
            continue
        counted_s = ordered.duration_s - 2 * (ordered.duration_s // 4)
        if abs(took_s - counted_s) > _LENGTH_TOLERANCE * counted_s:
            due = f"{counted_s} s of the {ordered.duration_s} s ordered are due"
            return f"this test counted over {took_s:.3g} s, {due}", fix
    return "", ""
