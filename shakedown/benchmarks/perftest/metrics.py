"""perftest's outputs, each held against what was ordered of its cell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Output, Value
from shakedown.benchmarks.perftest.mesh.schedule import client_and_server, nic_rail
from shakedown.benchmarks.perftest.order import MeshOrder
from shakedown.benchmarks.perftest.output import parse_perftest
from shakedown.benchmarks.perftest.output_model import PerftestResult
from shakedown.records.base import Better
from shakedown.records.errors import BadInput
from shakedown.records.results import OutputRecord

_KINDS = {"bw": "bandwidth", "lat": "latency"}
_TEST = re.compile(r"ib_(?P<operation>write|read|send|atomic)_(?P<kind>bw|lat)\Z")
_AGAIN = "measure the cell again; what belongs elsewhere proves nothing here"


def perftest(output: Output[MeshOrder]) -> Iterator[Value]:
    """Yield bandwidth, or typical and 99 % latency, at the planned size.

    Raises:
        BadInput: the output cannot be read, or is of something else than its record says or the job ordered:
            another test, nodes' addresses, GID index or MTU.
    """
    record, order = output.record, output.order
    result = parse_perftest(output.text, file=output.file)
    for wrong, fix in (_another(result, record), _elsewhere(result, record, order), _mtu(result, order)):
        if wrong:
            raise BadInput(wrong, fix=fix, file=output.file)
    size = record.params.get("size_bytes")
    for row in result.bandwidth:
        if row.size_bytes == size:
            yield "bandwidth", row.bw_average_gbps, "Gb/s", Better.HIGHER, {}
    for latency in result.latency:
        if latency.size_bytes == size:
            yield "latency_typical", latency.t_typical_us, "us", Better.LOWER, {}
            yield "latency_p99", latency.t_p99_us, "us", Better.LOWER, {}


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
    elif size not in sizes:
        wrong = f"this test moved messages of {', '.join(map(str, sizes))} bytes, its record says {size}"
    elif result.side == "server":
        # Records are written by whoever started the client, and JSON does not say whose it is.
        wrong = "this is the server's output, its record is of the client's"
    elif (result.transport, result.link_layer) != ("IB", "Ethernet"):
        wrong = f"this test ran over {result.transport} on {result.link_layer}, RoCE is IB on Ethernet"
    return wrong, _AGAIN


def _directions(both: bool) -> str:
    return "both directions at once" if both else "one direction"


def _elsewhere(result: PerftestResult, output: OutputRecord, order: MeshOrder) -> tuple[str, str]:
    """Return why this was measured between other NICs than the record's, as far as the GIDs tell.

    Where the site chose the GID's index itself, it need not be that of the rail's address.
    """
    if order.gid_index is not None:
        return "", ""
    if len(output.nodes) != 2 or output.rail is None or output.direction not in ("forward", "reverse"):
        return "", ""
    pair, direction = (output.nodes[0], output.nodes[1]), output.direction
    ends = client_and_server(output.test, pair, direction)
    for node, what, found in zip(
        ends, ("client", "server"), (result.local_ipv4, result.remote_ipv4), strict=True
    ):
        rail = nic_rail(node, pair, direction, output.rail)
        ordered = order.nodes.get(node)
        nic = ordered.rails.get(rail) if ordered else None
        if nic and found and found != nic.ipv4:
            return f"the {what} of this test is {found}, {node} has {nic.ipv4} on {rail}", _AGAIN
    return "", ""


def _mtu(result: PerftestResult, order: MeshOrder) -> tuple[str, str]:
    """Return why the RDMA MTU is not the one ordered; a job that orders none takes any."""
    ordered = order.mtu
    if ordered is None or ordered == result.mtu_bytes:
        return "", ""
    wrong = f"this test ran with an RDMA MTU of {result.mtu_bytes} bytes, {ordered} were ordered"
    return wrong, "give both NICs and the switch ports between them the planned MTU"
