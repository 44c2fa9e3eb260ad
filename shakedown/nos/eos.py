"""Arista EOS: counters from JSON where EOS has it and from the PFC table, settings from its command lines.

Commands by label: see roles/switch_counters/tasks/eos.yml. EOS lists a port in the watchdog's output only
after its first event, so a port that is absent there counts 0; everywhere else absence is absence.
"""

import re
from collections.abc import Sequence
from typing import Any

from shakedown.nos.crosscheck import CABLING, DSCP, MTU, PFC, SPEED
from shakedown.nos.lldp import add_neighbour, remote_ports
from shakedown.nos.system import (
    Classes,
    Outputs,
    PortCounters,
    SwitchSystem,
    Tree,
    count,
    json_object,
    numbers,
    of_class,
    output,
)
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import TextSource

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
    return (*_LINK, *drops, "ecn_marked", "pfc_rx_frames", "pfc_tx_frames", "watchdog_events", "link_flaps")


def parse(outputs: Outputs, classes: Classes) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not these commands' output."""
    ports: PortCounters = {}
    for port, values in _section(outputs, "links", "interfaces").items():
        ports[port] = {}
        for name, keys in _LINK.items():
            if all(key in values for key in keys):
                ports[port][name] = sum(count(values[key], f"{port} {key}") for key in keys)
    tables = (
        ("discards", "interfaces", {"rx_drops": "inDiscards", "tx_drops": "outDiscards"}),
        ("errors", "interfaceErrorCounters", {"rx_errors": "inErrors", "tx_errors": "outErrors"}),
    )
    for label, section, names in tables:
        for port, values in _section(outputs, label, section).items():
            for name, key in names.items():
                if key in values and port in ports:
                    ports[port][name] = count(values[key], f"{port} {key}")
    _add_flaps(ports, outputs)
    _add_queues(ports, outputs, classes)
    for line in output(outputs, "pfc").splitlines():
        match = _PFC_LINE.fullmatch(line.strip())
        if match:
            port = _long(match["port"])
            if port in ports:
                ports[port] |= {f"pfc_{way}_frames": count(match[way], f"{port} PFC") for way in ("rx", "tx")}
    return ports


def _add_flaps(ports: PortCounters, outputs: Outputs) -> None:
    if "interfaces" not in outputs:
        return  # a reading of an older release of the role: not read, which is not 0
    for port, values in _section(outputs, "interfaces", "interfaces").items():
        own = values.get("interfaceCounters") if isinstance(values, dict) else None
        if port in ports and isinstance(own, dict) and "linkStatusChanges" in own:
            changes = own["linkStatusChanges"]
            ports[port]["link_flaps"] = count(changes, f"{port} linkStatusChanges")


def _add_queues(ports: PortCounters, outputs: Outputs, classes: Classes) -> None:
    for port, values in _section(outputs, "queue drops", "interfaces").items():
        drops = [
            count(one[side]["countersSum"].get("droppedPackets"), f"{port} droppedPackets")
            for one in of_class(values.get("trafficClasses", {}), classes.queue)
            for side in ("egressQueueCounters", "ingressVoqCounters")
            if side in one
        ]
        if drops and port in ports:
            ports[port]["roce_queue_drops"] = sum(drops)
    for port, values in _section(outputs, "ecn", "intfQueueCounters").items():
        marks = of_class(values.get("queueCounters", {}), classes.queue)
        told = [value for value in marks if value not in (None, "-")]  # "-": not counted on this queue
        if told and port in ports:
            ports[port]["ecn_marked"] = sum(count(value, f"{port} ECN") for value in told)
    events = _section(outputs, "watchdog", "interfaces")
    for port, counters in ports.items():
        stuck = of_class(events.get(port, {}).get("txQueues", {}), classes.queue)
        counters["watchdog_events"] = sum(count(one.get("stuckCount"), f"{port} stuckCount") for one in stuck)


def _section(outputs: Outputs, label: str, key: str) -> dict[str, Any]:
    section = json_object(outputs, label).get(key)
    if not isinstance(section, dict):
        # {"errors": [...]} too: a command that failed is no switch without events.
        raise BadInput(f"{label}: EOS's JSON has no object {key!r}", fix="read the switch again")
    return section


def _long(port: str) -> str:
    return re.sub(r"^Et(?=\d)", "Ethernet", port)


def end(found: list[str], port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    lines = "\n".join(found)
    here = rf"(?m)^interface {re.escape(port)} / "
    mtu = re.search(here + r"mtu (\d+)$", lines)
    profile = re.search(here + "service-profile ROCE$", lines)
    lossless = re.findall(r"(?m)^qos profile ROCE / priority-flow-control priority ([\d,-]+) no-drop$", lines)
    groups = re.findall(r"(?m)^qos map dscp (\d[\d ,-]*) to traffic-class (\d)$", lines)
    return {
        "mtu_bytes": int(mtu[1]) if mtu else None,
        "pfc_priorities": frozenset().union(*map(numbers, lossless if profile else [])),
        "dscp_map": {dscp: int(group) for some, group in groups for dscp in numbers(some)},
    }


def links(outputs: Outputs, _ports: Sequence[str]) -> dict[str, Tree]:
    """Return the rate of connected ports, from `show interfaces status | json`. Raises BadInput: not JSON."""
    found: dict[str, Tree] = {}
    if "status" in outputs:
        statuses = json_object(outputs, "status").get("interfaceStatuses", {})
        for port, status in statuses.items():
            if status.get("linkStatus") == "connected" and status.get("bandwidth"):
                found[port] = {"speed_gbps": status["bandwidth"] / 1e9}  # bit/s
    return found


def neighbours(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return LLDP neighbours from `show lldp neighbors detail | json` (as Arista's ANTA reads it).

    Raises BadInput: not that command's JSON.
    """
    source = TextSource(text)
    document = source.json()
    ports = document.get("lldpNeighbors") if isinstance(document, dict) else None
    if not isinstance(ports, dict):
        source.refuse("not EOS's LLDP: no object `lldpNeighbors`")
    found: dict[str, list[tuple[str, str]]] = {}
    for local, entry in ports.items():
        for one in entry.get("lldpNeighborInfo", []) if isinstance(entry, dict) else []:
            info = one.get("neighborInterfaceInfo", {}) if isinstance(one, dict) else {}
            port_id = str(info.get("interfaceId_v2") or info.get("interfaceId") or "")
            description = str(info.get("interfaceDescription") or "")
            named = info.get("interfaceIdType") == "interfaceName"
            name = one.get("systemName") or one.get("chassisId") if isinstance(one, dict) else None
            remotes = remote_ports(port_id.strip('"'), description.strip('"'), named=named)
            add_neighbour(found, str(local), name if isinstance(name, str) else "", remotes)
    return found


SYSTEM = SwitchSystem(
    name="eos",
    parse=parse,
    reported=reported,
    tells=frozenset({MTU, PFC, DSCP, CABLING, SPEED}),
    end=end,
    links=links,
    neighbours=neighbours,
    model=r'"modelName": *"([^"]+)"',  # show version | json
    version=r'"version": *"([^"]+)"',
)
