"""What the receiving node kept of what arrived: the share in its class, and what was done to the rest."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from shakedown.benchmarks.base.contract import Moved, NoEvidence, Output, Value
from shakedown.benchmarks.perftest.mesh.perftest import clock_unknown
from shakedown.benchmarks.perftest.mesh.schedule import source_and_sink
from shakedown.benchmarks.perftest.metrics import moved as moved_by_perftest
from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.benchmarks.switches.benchmark import settings_of_ports
from shakedown.benchmarks.traffic_class.job import OPERATION, evidence_name
from shakedown.records.base import Better, CounterValue, Name, Record
from shakedown.records.reading import BadInput, read_as
from shakedown.records.wording import BLAMES

# The share of the bytes that a test moved which the NIC's priorities may lack and still speak of that test:
# as for all of a NIC's counters (shakedown.collect.counters).
_MISSING_SHARE = 0.05
# Fewer packets than this decide nothing.
LEAST_PACKETS = 20
_EIGHT = range(8)
# How mlx5 (en_stats.c) and bnxt (bnxt_ethtool.c) name the received bytes of a priority.
_BYTES_OF_PRIORITY = ("rx_prio{}_bytes", "rx_bytes_pri{}")
_ECN = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")  # RFC 3168
_CE = 3

Text = Annotated[str, Field(max_length=1000)]


class WantedClass(Record):
    """How data of RoCE must arrive, and where each NIC is connected."""

    dscp: int  # its DSCP
    ecn: int  # the two bits beside it as they are sent: 2 is ECT(0), 0 is Not-ECT (RFC 3168)
    priority: int  # the priority of the receiving NIC in which it is counted
    # (leaf, port) by node and rail, where the inventory names them.
    ports: dict[str, dict[str, tuple[str, str]]] = Field(default_factory=dict)


class TrafficClassSettings(MeshSettings):
    """The mesh's own order, and what must arrive."""

    wanted: WantedClass


class Packets(Record):
    """How many packets of one kind a sample has."""

    source: Annotated[str, Field(max_length=64)]
    destination: Annotated[str, Field(max_length=64)]
    dscp: int = Field(ge=0, le=63)
    ecn: int = Field(ge=0, le=3)
    kind: Literal["data", "ack", "cnp", "other"]
    count: int = Field(gt=0)


class Headers(Record):
    """The sample of one NIC; `error`: why there is none."""

    error: Text
    full: bool
    missed: int = Field(ge=0)
    packets: tuple[Packets, ...]


class Priorities(Record):
    """Counters of received bytes and packets by priority, before and after."""

    before: dict[Name, CounterValue]
    after: dict[Name, CounterValue]


class Arrivals(Record):
    """The file of one receiver, sender and rail."""

    schema_: Literal[1] = Field(alias="schema")
    node: Name
    netdev: Name
    started: Text
    ended: Text
    priorities: Priorities
    no_priorities: Text
    headers: Headers | None
    no_headers: Text


class ClassFinding(NamedTuple):
    """What a witness says: the share of the data in its class, in percent, and how it arrives."""

    percent: float
    arrives: str  # "with DSCP 0, wanted 26"
    fault: str  # what was done to it on the way; empty: nothing


def by_priorities(evidence: Arrivals, wanted: WantedClass, moved_bytes: float) -> ClassFinding | str:
    """Return what the NIC's priorities say of so many bytes, or why they say nothing."""
    before, after = evidence.priorities.before, evidence.priorities.after
    named = next((n for n in _BYTES_OF_PRIORITY if any(n.format(p) in after for p in _EIGHT)), None)
    if named is None:
        return evidence.no_priorities or f"{evidence.netdev} counts no received bytes by priority"
    names = [named.format(priority) for priority in _EIGHT]
    if lacking := [name for name in names if name not in before or name not in after]:
        return f"{evidence.netdev} was read without {lacking[0]}"
    received = [after[name] - before[name] for name in names]
    if any(count < 0 for count in received):
        return f"the counters of {evidence.netdev} were set back"
    total = sum(received)
    if total == 0 or total < (1 - _MISSING_SHARE) * moved_bytes:
        return f"the priorities of {evidence.netdev} counted {total} of {moved_bytes:.0f} bytes that arrived"
    percent = 100 * received[wanted.priority] / total
    most = max((p for p in _EIGHT if p != wanted.priority), key=lambda p: received[p])
    if received[most] > received[wanted.priority]:
        return ClassFinding(
            percent, f"in priority {most}, wanted {wanted.priority} (DSCP {wanted.dscp})", _REWRITTEN
        )
    arrives = f"in priority {wanted.priority} (DSCP {wanted.dscp})"
    if percent < 100:
        arrives += f", {100 - percent:.3g} % of the bytes in others, most in {most}"
    return ClassFinding(percent, arrives, _REWRITTEN if received[most] else "")


_REWRITTEN = "rewritten"


def by_headers(evidence: Arrivals, wanted: WantedClass, source: str, destination: str) -> ClassFinding | str:
    """Return what the headers say of the data from one address to another, or why they say nothing."""
    sample = evidence.headers
    if sample is None or sample.error:
        return (sample.error if sample else "") or evidence.no_headers or "no packet was looked at"
    ends = ip_address(source), ip_address(destination)
    data = [
        packets
        for packets in sample.packets
        if packets.kind == "data" and (_address(packets.source), _address(packets.destination)) == ends
    ]
    total = sum(packets.count for packets in data)
    if total < LEAST_PACKETS:
        seen = sum(packets.count for packets in sample.packets)
        return (
            f"{evidence.netdev} shows the kernel {total} packets of data from {source} (of {seen} of RoCE), "
            f"at least {LEAST_PACKETS} are needed"
        )
    # A mark of congestion is what ECN is there for.
    good = (wanted.ecn, _CE)
    wrong = [packets for packets in data if packets.dscp != wanted.dscp or packets.ecn not in good]
    percent = 100 * (1 - sum(packets.count for packets in wrong) / total)
    if not wrong:
        return ClassFinding(percent, f"with DSCP {wanted.dscp}, {total} packets of data looked at", "")
    worst = max(wrong, key=lambda packets: (packets.count, packets.dscp, packets.ecn))
    some = f" ({100 - percent:.3g} % of {total} packets)" if percent else ""
    if worst.dscp != wanted.dscp:
        return ClassFinding(percent, f"with DSCP {worst.dscp}{some}, wanted {wanted.dscp}", _REWRITTEN)
    arrives = f"with DSCP {worst.dscp} and {_ECN[worst.ecn]}{some}, wanted {_ECN[wanted.ecn]}"
    return ClassFinding(percent, arrives, "ECN bleached" if worst.ecn == 0 else "ECN changed")


def _address(text: str) -> object:
    try:
        return ip_address(text)
    except ValueError:
        return None


# Clocks of two nodes may differ by so much, as those of a job's other files.
_CLOCKS = timedelta(seconds=120)
_AGAIN = "run the config stage again"


def traffic_class(output: Output[TrafficClassSettings]) -> Iterator[Value]:
    """Yield the share of the data in its class, in percent: the worse of what the witnesses say.

    Raises:
        BadInput: perftest's output or the receiver's file cannot be read, or is of something else.
        NoEvidence: neither the NIC's priorities nor any header shows in which class the data arrived.
    """
    sender, sink = _ends(output)
    rail, wanted = output.record.rail, output.order.wanted
    received = sum(one.received for one in moved(output))
    evidence = _evidence(output, sink)
    here, there = (output.order.nodes[node].rails[rail or ""].ipv4 for node in (sender, sink))
    said = (by_priorities(evidence, wanted, received), by_headers(evidence, wanted, here, there))
    findings = [finding for finding in said if isinstance(finding, ClassFinding)]
    if not findings:
        reasons = "; ".join(reason for reason in said if isinstance(reason, str))
        raise NoEvidence(f"nothing shows in which class {sender}'s RoCE reaches {sink}/{rail}: {reasons}")
    worst = min(findings, key=lambda finding: finding.percent)
    text = f"{sink}/{rail} receives {sender}'s RoCE {worst.arrives}"
    if worst.fault:
        text = f"{text}: {_way(output, worst.fault, sender, sink)}"
    yield "share", worst.percent, "%", Better.HIGHER, {}, text


def moved(output: Output[TrafficClassSettings]) -> Iterator[Moved]:
    """Yield the payload that perftest says it moved, in bytes. Raises BadInput.

    How long it ran is not held against the order: what arrived shows its class. For the same reason an
    output without a rate counts, which a busy virtual machine leaves: it counts its iterations all the same.
    """
    if clock_unknown(output.text):
        yield from _without_rate(output)
        return
    order = output.order.model_copy(update={"operations": ()})
    record = output.record.model_copy(update={"test": OPERATION})
    yield from moved_by_perftest(replace(output, order=order, record=record))


def _without_rate(output: Output[TrafficClassSettings]) -> Iterator[Moved]:
    (sender, sink), size = _ends(output), output.record.params.get("size_bytes")
    rows = re.findall(rf"(?m)^[ \t]*{size}[ \t]+(\d{{1,18}})[ \t]", output.text)
    if len(rows) != 1:
        raise BadInput("perftest's table has no row of the ordered size", fix=_AGAIN, file=output.file)
    payload = float(int(rows[0]) * int(size or 0))
    yield Moved(sender, output.record.rail, payload, 0.0)
    yield Moved(sink, output.record.rail, 0.0, payload)


def _ends(output: Output[TrafficClassSettings]) -> tuple[str, str]:
    """Return (sender, receiver). Raises BadInput for a cell that was not ordered."""
    record = output.record
    if len(record.nodes) == 2 and record.direction in ("forward", "reverse"):
        ends = source_and_sink((record.nodes[0], record.nodes[1]), record.direction)
        if all(record.rail in getattr(output.order.nodes.get(node), "rails", {}) for node in ends):
            return ends
    raise BadInput(
        "its record names a pair, rail and direction that was not ordered", fix=_AGAIN, file=output.file
    )


def _evidence(output: Output[TrafficClassSettings], sink: str) -> Arrivals:
    """Return what the receiver kept. Raises BadInput and NoEvidence."""
    name = evidence_name(output.record.file)
    if not output.folder.holds(name):
        raise NoEvidence(f"{sink} kept no count of what arrived: {name} is missing")
    file = output.folder.path / name
    evidence = read_as(
        Arrivals, output.folder.text(name), file=file, about="no count of arrivals", fix=_AGAIN
    )
    if evidence.node != sink:
        raise BadInput(f"was counted by {evidence.node}, the data went to {sink}", fix=_AGAIN, file=file)
    netdev = output.order.nodes[sink].rails[output.record.rail or ""].netdev
    if netdev not in (None, evidence.netdev):
        raise BadInput(
            f"was counted at {evidence.netdev} of {sink}, the data went to its {netdev}",
            fix=_AGAIN,
            file=file,
        )
    try:
        sent, begin, end = map(
            datetime.fromisoformat, (output.record.started, evidence.started, evidence.ended)
        )
        timely = begin - _CLOCKS <= sent <= end + _CLOCKS
    except (ValueError, TypeError):
        timely = False
    if not timely:
        raise BadInput(
            f"counted from {evidence.started} to {evidence.ended}, perftest ran at {output.record.started}",
            fix=_AGAIN,
            file=file,
        )
    return evidence


def _way(output: Output[TrafficClassSettings], what: str, sender: str, sink: str) -> str:
    """Return who may have done it: the leaf ports on the way, by their settings, and else the sender too.

    What arrives is one witness: tc, nftables or eBPF on the sender's rail would give the same.
    """
    rail, ports = output.record.rail or "", output.order.wanted.ports
    netdev = output.order.nodes[sender].rails[rail].netdev or rail
    blame, of = BLAMES["rewritten"], {"what": what, "sender": sender, "netdev": netdev}
    ends = [ports.get(node, {}).get(rail) for node in (sender, sink)]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return blame.told(ports="", **of)
    (leaf, port), (last_leaf, last_port) = known
    text = f", {leaf} {port} to {last_leaf} {last_port}"
    read = settings_of_ports(output.folder.path.parent, known)
    if any(lines is None for lines in read.values()):
        return blame.told(ports=text, **of)
    wrong = next((f"{' '.join(end)}: {lines[0]}" for end, lines in read.items() if lines), "")
    if wrong:
        return BLAMES["rewritten-by-port"].told(what=what, ports=f"{text} ({wrong})")
    return blame.told(ports=f"{text}, whose settings read as wanted", **of)
