"""Dell OS10: counters from its table of queues and from `show interface`, neighbours from its LLDP report.

`show queuing statistics interface ethernet 1/1/4` is as it was recorded on a switch (netdev mailing list,
25 March 2022, "dctcp" combinations); `show interface` and `show lldp neighbors detail` as recorded on OS10.5
(github.com/microsoft/arc-switch, src/SwitchOutput/DellOS/10). No recorded output shows how this system prints
PFC, ECN marks and the drops of a priority group, so these are not read.
"""

import re
from collections.abc import Sequence
from functools import partial

from shakedown.nos import lldp, os9
from shakedown.nos.crosscheck import CABLING, DSCP, FEC, MTU, PFC, SPEED
from shakedown.nos.system import (
    Classes,
    Outputs,
    PortCounters,
    SwitchSystem,
    Tree,
    count,
    numbers,
    of_class,
    refuse_error_text,
)
from shakedown.records.tool_text import TextSource

QUEUES, INTERFACE = "queues ", "interface "  # label prefixes; the port follows
_HEAD = ("Queue", "Packets", "Bytes", "Dropped-Packets", "Dropped-Bytes")
_ROW = re.compile(r"[0-7][0-7,-]*(?: \d+){4}")
_ROCE = ("roce_tx_packets", "roce_tx_bytes", "roce_queue_drops")
_CNP = ("cnp_tx_packets", None, "cnp_queue_drops")
# What `show interface` counts, by the part it stands in. Frames with a bad checksum, and those that the port
# could not take in, are errors; "discarded" are drops.
_PORT = {
    "Input": {
        "rx_packets": r"(\S+) packets, \S+ octets",
        "rx_bytes": r"\S+ packets, (\S+) octets",
        "rx_drops": r"\S+ CRC, \S+ overrun, (\S+) discarded",
        "rx_errors": r"(\S+) CRC, (\S+) overrun, \S+ discarded",
    },
    "Output": {
        "tx_packets": r"(\S+) packets, \S+ octets",
        "tx_bytes": r"\S+ packets, (\S+) octets",
        "tx_drops": r"\S+ throttles, (\S+) discarded, \S+ Collisions,.*",
    },
}


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port."""
    return (*_PORT["Input"], *_PORT["Output"], *_ROCE, "cnp_tx_packets", "cnp_queue_drops")


def parse(outputs: Outputs, classes: Classes) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not these tables."""
    ports: PortCounters = {}
    for label, text in outputs.items():
        if label.startswith(QUEUES):
            port = label.removeprefix(QUEUES)
            ports.setdefault(port, {}).update(_queues(port, text, classes))
        elif label.startswith(INTERFACE):
            port = label.removeprefix(INTERFACE)
            _state(port, text)
            ports.setdefault(port, {}).update(os9.counted(_PORT, port, text))
    return ports


def _queues(port: str, text: str, classes: Classes) -> dict[str, int]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heads = [line for line in lines if line[0] == _HEAD[0]]
    named = [line[1].lower() for line in lines if line[0] == "Interface" and len(line) == 2]
    if heads != [list(_HEAD)] or named != [_one_name(port)]:
        TextSource(text).refuse(f"queues of {port}: not OS10's table of that port")
    found: dict[str, int] = {}
    rows = {line[0]: line[1:4] for line in lines if _ROW.fullmatch(" ".join(line))}
    for queue, names in ((classes.queue, _ROCE), (classes.cnp_queue, _CNP)):
        for row in of_class(rows, queue):
            for name, value in zip(names, row, strict=True):
                if name:
                    found[name] = found.get(name, 0) + count(value, f"{port} queue {queue}")
    return found


def _state(port: str, text: str) -> bool:
    """Return whether a port has its link. Raises BadInput: not `show interface` of that port alone."""
    refuse_error_text(text, f"{INTERFACE}{port}")
    heads = re.findall(r"(?m)^(\S+ \d\S*) is (?:up|down), line protocol is (up|down)", text)
    if [_one_name(name) for name, _ in heads] != [_one_name(port)]:
        TextSource(text).refuse(f"{INTERFACE}{port}: not OS10's `show interface` of that port")
    return bool(heads[0][1] == "up")


def _one_name(port: str) -> str:
    """`Ethernet 1/1/4` and `ethernet1/1/4` are one port."""
    return port.lower().replace(" ", "")


# The link header that OS10 counts in: its default MTU of 1532 bytes carries 1500 of IP (OS10 user guide).
_HEADER_BYTES = 32


def end(found: list[str], port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    lines = "\n".join(found)
    here = rf"(?m)^interface {re.escape(port)} / "
    mtu = re.search(here + r"mtu (\d+)$", lines)
    on = re.search(here + "priority-flow-control mode on$", lines)
    paused = re.search(here + "service-policy input type network-qos ROCE$", lines)
    lossless = re.findall(r"(?m)^policy-map type network-qos ROCE / class ROCE / pfc-cos ([\d,-]+)$", lines)
    trusted = re.search(here + "trust-map dscp ROCE$", lines)
    groups = re.findall(r"(?m)^trust dscp-map ROCE / qos-group (\d) dscp ([\d,-]+)$", lines)
    return {
        "mtu_bytes": int(mtu[1]) - _HEADER_BYTES if mtu else None,
        "pfc_priorities": frozenset().union(*map(numbers, lossless if on and paused else [])),
        "dscp_map": {n: int(group) for group, some in groups for n in numbers(some)} if trusted else {},
    }


# IEEE 802.3's clauses, as OS10 names the codes, and as switches and ethtool do.
_CODES = {"off": "none", "cl74-fc": "fc", "cl91-rs": "rs", "cl108-rs": "rs"}


def links(outputs: Outputs, ports: Sequence[str]) -> dict[str, Tree]:
    """Return rate and FEC of ports that have their link, as negotiated. Raises BadInput: not that output."""
    found: dict[str, Tree] = {}
    for port in ports:
        text = outputs.get(f"{INTERFACE}{port}")
        if text is None or not _state(port, text):
            continue
        speed = re.search(r"(?m)^[^\S\n]*+LineSpeed (\d+)([GM])\b", text)
        fec = re.search(r"(?m)\bNegotiated FEC is (\S+)$", text)
        found[port] = {
            "speed_gbps": int(speed[1]) / (1000 if speed[2] == "M" else 1) if speed else None,
            "fec": _CODES.get(fec[1].lower(), fec[1].lower()) if fec else None,
        }
    return found


SYSTEM = SwitchSystem(
    name="os10",
    parse=parse,
    reported=reported,
    tells=frozenset({MTU, PFC, DSCP, CABLING, SPEED, FEC}),
    end=end,
    links=links,
    neighbours=partial(lldp.dell_neighbours, system="OS10"),
    model=r"(?m)^System Type: *(\S+)",  # show version
    version=r"(?m)^OS Version: *(\S+)",
    not_done=("PFC watchdog: not rendered for OS10",),
)
