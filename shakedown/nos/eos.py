"""Counters of Arista EOS, from JSON where EOS has it and from the PFC table.

Commands by label: see roles/switch_counters/tasks/eos.yml. EOS lists a port in the watchdog's output only
after its first event, so a port that is absent there counts 0; everywhere else absence is absence.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shakedown.nos.counters import Classes, Outputs, PortCounters, count, json_object, output

_LINK = {
    "rx_bytes": ("inOctets",),
    "tx_bytes": ("outOctets",),
    "rx_packets": ("inUcastPkts", "inMulticastPkts", "inBroadcastPkts"),
    "tx_packets": ("outUcastPkts", "outMulticastPkts", "outBroadcastPkts"),
}
_PFC_LINE = re.compile(r"(?P<port>\S+)\s+(?P<rx>\d+)\s+(?P<tx>\d+)\s*")


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port."""
    drops = ("rx_drops", "tx_drops", "rx_errors", "tx_errors", "roce_queue_drops")
    return (*_LINK, *drops, "ecn_marked", "pfc_rx_frames", "pfc_tx_frames", "watchdog_events")


def parse(outputs: Outputs, classes: Classes, file: str | Path | None = None) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not these commands' output."""
    ports: PortCounters = {}
    for port, values in _section(outputs, "links", "interfaces", file).items():
        ports[port] = {}
        for name, keys in _LINK.items():
            if all(key in values for key in keys):
                ports[port][name] = sum(count(values[key], f"{port} {key}", file) for key in keys)
    tables = (
        ("discards", "interfaces", {"rx_drops": "inDiscards", "tx_drops": "outDiscards"}),
        ("errors", "interfaceErrorCounters", {"rx_errors": "inErrors", "tx_errors": "outErrors"}),
    )
    for label, section, names in tables:
        for port, values in _section(outputs, label, section, file).items():
            for name, key in names.items():
                if key in values and port in ports:
                    ports[port][name] = count(values[key], f"{port} {key}", file)
    _add_queues(ports, outputs, classes, file)
    for line in output(outputs, "pfc", file).splitlines():
        match = _PFC_LINE.fullmatch(line.strip())
        if match:
            port = _long(match["port"])
            if port in ports:
                ports[port] |= {
                    f"pfc_{way}_frames": count(match[way], f"{port} PFC", file) for way in ("rx", "tx")
                }
    return ports


def _add_queues(ports: PortCounters, outputs: Outputs, classes: Classes, file: str | Path | None) -> None:
    queue = str(classes.queue)
    for port, values in _section(outputs, "queue drops", "interfaces", file).items():
        traffic = values.get("trafficClasses", {})
        one = traffic.get(f"TC{queue}", traffic.get(queue))
        if one is not None and port in ports:
            sides = [
                one[side]["countersSum"]
                for side in ("egressQueueCounters", "ingressVoqCounters")
                if side in one
            ]
            drops = [count(side.get("droppedPackets"), f"{port} droppedPackets", file) for side in sides]
            if drops:
                ports[port]["roce_queue_drops"] = sum(drops)
    for port, values in _section(outputs, "ecn", "intfQueueCounters", file).items():
        value = values.get("queueCounters", {}).get(queue)
        if value not in (None, "-") and port in ports:  # "-": ECN is not counted on this queue
            ports[port]["ecn_marked"] = count(value, f"{port} ECN", file)
    events = _section(outputs, "watchdog", "interfaces", file)
    for port, counters in ports.items():
        one = events.get(port, {}).get("txQueues", {}).get(queue, {"stuckCount": 0})
        counters["watchdog_events"] = count(one.get("stuckCount"), f"{port} stuckCount", file)


def _section(outputs: Outputs, label: str, key: str, file: str | Path | None) -> dict[str, Any]:
    section = json_object(outputs, label, file).get(key)
    return section if isinstance(section, dict) else {}


def _long(port: str) -> str:
    return re.sub(r"^Et(?=\d)", "Ethernet", port)
