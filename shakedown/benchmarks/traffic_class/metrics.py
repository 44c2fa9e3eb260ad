"""The share of a sender's data that arrives in its class, and what was done to the rest, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Moved, NoEvidence, Output, Value
from shakedown.benchmarks.perftest.mesh.schedule import source_and_sink
from shakedown.benchmarks.perftest.metrics import moved as moved_by_perftest
from shakedown.benchmarks.perftest.output_clock import clock_unknown
from shakedown.benchmarks.switches.metrics import settings_of_ports
from shakedown.benchmarks.traffic_class.evidence import Evidence, Finding, by_headers, by_priorities
from shakedown.benchmarks.traffic_class.names import OPERATION, evidence_name
from shakedown.benchmarks.traffic_class.order import TrafficClassOrder
from shakedown.records.base import Better
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal

# Clocks of two nodes may differ by so much, as those of a job's other files.
_CLOCKS = timedelta(seconds=120)
_AGAIN = "run the config stage again"


def traffic_class(output: Output[TrafficClassOrder]) -> Iterator[Value]:
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
    findings = [finding for finding in said if isinstance(finding, Finding)]
    if not findings:
        reasons = "; ".join(reason for reason in said if isinstance(reason, str))
        raise NoEvidence(f"nothing shows in which class {sender}'s RoCE reaches {sink}/{rail}: {reasons}")
    worst = min(findings, key=lambda finding: finding.percent)
    text = f"{sink}/{rail} receives {sender}'s RoCE {worst.arrives}"
    if worst.fault:
        text = f"{text}: {worst.fault}{_way(output, sender, sink)}"
    yield "share", worst.percent, "%", Better.HIGHER, {}, text


def moved(output: Output[TrafficClassOrder]) -> Iterator[Moved]:
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


def _without_rate(output: Output[TrafficClassOrder]) -> Iterator[Moved]:
    (sender, sink), size = _ends(output), output.record.params.get("size_bytes")
    rows = re.findall(rf"(?m)^[ \t]*{size}[ \t]+(\d{{1,18}})[ \t]", output.text)
    if len(rows) != 1:
        raise BadInput("perftest's table has no row of the ordered size", fix=_AGAIN, file=output.file)
    payload = float(int(rows[0]) * int(size or 0))
    yield Moved(sender, output.record.rail, payload, 0.0)
    yield Moved(sink, output.record.rail, 0.0, payload)


def _ends(output: Output[TrafficClassOrder]) -> tuple[str, str]:
    """Return (sender, receiver). Raises BadInput for a cell that was not ordered."""
    record = output.record
    if len(record.nodes) == 2 and record.direction in ("forward", "reverse"):
        ends = source_and_sink((record.nodes[0], record.nodes[1]), record.direction)
        if all(record.rail in getattr(output.order.nodes.get(node), "rails", {}) for node in ends):
            return ends
    raise BadInput(
        "its record is of no pair, rail and direction that was ordered", fix=_AGAIN, file=output.file
    )


def _evidence(output: Output[TrafficClassOrder], sink: str) -> Evidence:
    """Return what the receiver kept. Raises BadInput and NoEvidence."""
    name = evidence_name(output.record.file)
    if not output.folder.holds(name):
        raise NoEvidence(f"{sink} kept no count of what arrived: {name} is missing")
    file = output.folder.path / name
    try:
        evidence = Evidence.model_validate_json(output.folder.text(name))
    except ValidationError as error:
        raise refusal(error, Evidence, file=file, about="no count of arrivals", fix=_AGAIN) from None
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


def _way(output: Output[TrafficClassOrder], sender: str, sink: str) -> str:
    """Return the leaf ports on the way, and what was read of their settings."""
    ports = output.order.wanted.ports
    ends = [ports.get(node, {}).get(output.record.rail or "") for node in (sender, sink)]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return ""
    (leaf, port), (last_leaf, last_port) = known
    text = f", {leaf} {port} to {last_leaf} {last_port}"
    read = settings_of_ports(output.folder.path.parent, known)
    if any(lines is None for lines in read.values()):
        return text
    wrong = next((f"{' '.join(end)}: {lines[0]}" for end, lines in read.items() if lines), "")
    return f"{text} ({wrong})" if wrong else f"{text}, whose settings read as wanted"
