"""Dell OS10: counters from `show queuing statistics interface ethernet 1/1/4`, one row an egress queue.

The table is as it was recorded on a switch (netdev mailing list, 25 March 2022, "dctcp" combinations). No
recorded output shows how this system prints PFC, ECN marks and ingress drops, so these are not read.
"""

from __future__ import annotations

import re
from pathlib import Path

from shakedown.nos.counters import Classes, Outputs, PortCounters, count
from shakedown.nos.crosscheck import DSCP, MTU, PFC
from shakedown.nos.system import SwitchSystem, Tree
from shakedown.records.tool_text import Source

QUEUES = "queues "  # label prefix; the port follows
_HEAD = ("Queue", "Packets", "Bytes", "Dropped-Packets", "Dropped-Bytes")
_ROW = re.compile(r"(?P<queue>[0-7])((\s+\d+){4})")
_ROCE = ("roce_tx_packets", "roce_tx_bytes", "roce_queue_drops")
_CNP = ("cnp_tx_packets", None, "cnp_queue_drops")


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port."""
    return (*_ROCE, "cnp_tx_packets", "cnp_queue_drops")


def parse(outputs: Outputs, classes: Classes, file: str | Path | None = None) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not this table."""
    ports: PortCounters = {}
    for label, text in outputs.items():
        if label.startswith(QUEUES):
            port = label.removeprefix(QUEUES)
            ports[port] = _queues(port, text, classes, file)
    return ports


def _queues(port: str, text: str, classes: Classes, file: str | Path | None) -> dict[str, int]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heads = [line for line in lines if line[0] == _HEAD[0]]
    named = [line[1].lower() for line in lines if line[0] == "Interface" and len(line) == 2]
    if heads != [list(_HEAD)] or named != [port.lower().replace(" ", "")]:
        Source(text, file).refuse(f"queues of {port}: not OS10's table of that port")
    found: dict[str, int] = {}
    names = {classes.queue: _ROCE, classes.cnp_queue: _CNP}
    for line in lines:
        if _ROW.fullmatch(" ".join(line)):
            for name, value in zip(names.get(int(line[0]), ()), line[1:4], strict=False):
                if name:
                    found[name] = count(value, f"{port} queue {line[0]}", file)
    return found


# The link header that OS10 counts in: its default MTU of 1532 bytes carries 1500 of IP (OS10 user guide).
_HEADER_BYTES = 32


def end(found: list[str], port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    lines = "\n".join(found)
    here = rf"(?m)^interface {re.escape(port)} / "
    mtu = re.search(here + r"mtu (\d+)$", lines)
    on = re.search(here + "priority-flow-control mode on$", lines)
    paused = re.search(here + "service-policy input type network-qos ROCE$", lines)
    lossless = re.findall(r"(?m)^policy-map type network-qos ROCE / class ROCE / pfc-cos (\d)$", lines)
    trusted = re.search(here + "trust-map dscp ROCE$", lines)
    groups = re.findall(r"(?m)^trust dscp-map ROCE / qos-group (\d) dscp ([\d,-]+)$", lines)
    return {
        "mtu_bytes": int(mtu[1]) - _HEADER_BYTES if mtu else None,
        "pfc_priorities": frozenset(map(int, lossless if on and paused else [])),
        "dscp_map": {n: int(group) for group, some in groups for n in _numbers(some)} if trusted else {},
    }


def _numbers(text: str) -> list[int]:
    """`24-26,48` as numbers."""
    spans = [part.partition("-") for part in text.split(",")]
    return [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]


SYSTEM = SwitchSystem(
    name="os10",
    parse=parse,
    reported=reported,
    # Neighbours, rate and FEC are not read: no recorded output of these commands was found.
    tells=frozenset({MTU, PFC, DSCP}),
    end=end,
)
