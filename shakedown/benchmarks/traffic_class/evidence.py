"""What the receiving node kept of what arrived, and what each of two witnesses says of the data's class."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from shakedown.benchmarks.traffic_class.order import Wanted
from shakedown.records.base import CounterValue, Name, Record

# The share of the bytes that a test moved which the NIC's priorities may lack and still speak of that test:
# as for all of a NIC's counters (shakedown.collect.moved).
_MISSING_SHARE = 0.05
# Fewer packets than this decide nothing.
LEAST_PACKETS = 20
_EIGHT = range(8)
# How mlx5 (en_stats.c) and bnxt (bnxt_ethtool.c) name the received bytes of a priority.
_BYTES_OF_PRIORITY = ("rx_prio{}_bytes", "rx_bytes_pri{}")
_ECN = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")  # RFC 3168
_CE = 3

Text = Annotated[str, Field(max_length=1000)]


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


class Evidence(Record):
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


class Finding(NamedTuple):
    """What a witness says: the share of the data in its class, in percent, and how it arrives."""

    percent: float
    arrives: str  # "with DSCP 0, wanted 26"
    fault: str  # what was done to it; empty: nothing


def by_priorities(evidence: Evidence, wanted: Wanted, moved_bytes: float) -> Finding | str:
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
        return Finding(
            percent, f"in priority {most}, wanted {wanted.priority} (DSCP {wanted.dscp})", _REWRITTEN
        )
    arrives = f"in priority {wanted.priority} (DSCP {wanted.dscp})"
    if percent < 100:
        arrives += f", {100 - percent:.3g} % of the bytes in others, most in {most}"
    return Finding(percent, arrives, _REWRITTEN if received[most] else "")


_REWRITTEN = "rewritten on the way"


def by_headers(evidence: Evidence, wanted: Wanted, source: str, destination: str) -> Finding | str:
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
        return Finding(percent, f"with DSCP {wanted.dscp}, {total} packets of data looked at", "")
    worst = max(wrong, key=lambda packets: (packets.count, packets.dscp, packets.ecn))
    some = f" ({100 - percent:.3g} % of {total} packets)" if percent else ""
    if worst.dscp != wanted.dscp:
        return Finding(percent, f"with DSCP {worst.dscp}{some}, wanted {wanted.dscp}", _REWRITTEN)
    arrives = f"with DSCP {worst.dscp} and {_ECN[worst.ecn]}{some}, wanted {_ECN[wanted.ecn]}"
    return Finding(
        percent, arrives, "ECN bleached on the way" if worst.ecn == 0 else "ECN changed on the way"
    )


def _address(text: str) -> object:
    try:
        return ip_address(text)
    except ValueError:
        return None
