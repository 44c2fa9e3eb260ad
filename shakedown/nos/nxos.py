"""Counters of Cisco NX-OS, from `show interface | json` and the tables of PFC, queuing and the watchdog.

Commands by label: see roles/switch_counters/tasks/nxos.yml.
"""

from __future__ import annotations

import re
from pathlib import Path

from shakedown.nos.counters import Classes, Outputs, PortCounters, count, json_object, output

_LINK = {
    "rx_bytes": "eth_inbytes",
    "tx_bytes": "eth_outbytes",
    "rx_packets": "eth_inpkts",
    "tx_packets": "eth_outpkts",
    "rx_drops": "eth_indiscard",
    "tx_drops": "eth_outdiscard",
    "rx_errors": "eth_inerr",
    "tx_errors": "eth_outerr",
}
# Ethernet1/1   On   On  (8)    0   12
_PFC_LINE = re.compile(r"(?P<port>Ethernet\S+)\s+.*?(?P<rx>\d+)\s+(?P<tx>\d+)")
_PORT_LINE = re.compile(r".*?\b(?P<port>Ethernet\d\S*)\b.*")
_GROUP_LINE = re.compile(r"\|?\s*QOS GROUP\s+(?P<group>\d)\b.*")
# |                   Tx Pkts |       50800151|              0|
_VALUE_LINE = re.compile(r"\|?\s*(?P<name>[A-Za-z/&+ ]+?)\s*\|\s*(?P<value>[\d,]+)\s*(\|.*)?")
_QUEUE = {"Tx Pkts": "tx_packets", "Tx Byts": "tx_bytes", "WRED/AFD & Tail Drop Pkts": "queue_drops"}


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port on which the class is configured. NX-OS 9.3 and later."""
    roce = ("roce_tx_packets", "roce_tx_bytes", "roce_queue_drops", "cnp_tx_packets", "cnp_queue_drops")
    return (*_LINK, *roce, "pfc_rx_frames", "pfc_tx_frames", "watchdog_events")


def parse(outputs: Outputs, classes: Classes, file: str | Path | None = None) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not these commands' output."""
    ports: PortCounters = {}
    rows = json_object(outputs, "links", file).get("TABLE_interface", {}).get("ROW_interface", [])
    for row in rows if isinstance(rows, list) else [rows]:
        port = str(row.get("interface"))
        ports[port] = {
            name: count(row[key], f"{port} {key}", file) for name, key in _LINK.items() if key in row
        }
    for line in output(outputs, "pfc", file).splitlines():
        match = _PFC_LINE.fullmatch(line.strip())
        if match and match["port"] in ports:
            port = match["port"]
            ports[port] |= {
                f"pfc_{way}_frames": count(match[way], f"{port} PFC", file) for way in ("rx", "tx")
            }
    names = {classes.queue: "roce", classes.cnp_queue: "cnp"}
    for port, group, name, value in _blocks(output(outputs, "queues", file), file):
        if port in ports and group in names and name in _QUEUE and (names[group], name) != ("cnp", "Tx Byts"):
            ports[port][f"{names[group]}_{_QUEUE[name]}"] = value
    for port, group, name, value in _blocks(output(outputs, "watchdog", file), file):
        if port in ports and group == classes.queue and name == "Shutdown":
            ports[port]["watchdog_events"] = value
    return ports


def _blocks(text: str, file: str | Path | None) -> list[tuple[str, int, str, int]]:
    """Every (port, QoS group, name, unicast value) of a report in blocks."""
    found = []
    port, group = "", -1
    for raw in text.splitlines():
        line = raw.strip()
        if match := _GROUP_LINE.fullmatch(line):
            group = int(match["group"])
        elif match := _VALUE_LINE.fullmatch(line):
            if group >= 0:
                found.append(
                    (port, group, match["name"], count(match["value"], f"{port} {match['name']}", file))
                )
        elif match := _PORT_LINE.fullmatch(line):
            port, group = match["port"], -1
    return found
