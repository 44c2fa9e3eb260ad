"""Cisco NX-OS: counters from `show interface | json` and the tables of PFC, queuing and the watchdog.

Commands by label: see roles/switch_counters/tasks/nxos.yml.
"""

import re
from collections.abc import Sequence

from shakedown.nos.crosscheck import CABLING, DSCP, MTU, PFC, SPEED
from shakedown.nos.lldp import add_neighbour, is_mac, remote_ports
from shakedown.nos.system import (
    Classes,
    Outputs,
    PortCounters,
    SwitchSystem,
    Tree,
    count,
    json_object,
    numbers,
    output,
)
from shakedown.records.tool_text import TextSource

_LINK = {
    "rx_bytes": "eth_inbytes",
    "tx_bytes": "eth_outbytes",
    "rx_packets": "eth_inpkts",
    "tx_packets": "eth_outpkts",
    "rx_drops": "eth_indiscard",
    "tx_drops": "eth_outdiscard",
    "rx_errors": "eth_inerr",
    "tx_errors": "eth_outerr",
    # "interface resets" of `show interface`: a link that goes down and comes up is one.
    "link_flaps": "eth_reset_cntr",
}
# Ethernet1/1   On   On  (8)    0   12
_PFC_LINE = re.compile(r"(?P<port>Ethernet\S+)\s.*?(?<!\d)(?P<rx>\d+)\s+(?P<tx>\d+)")
_PORT_LINE = re.compile(r".*?\b(?P<port>Ethernet\d\S*)\b.*")
# `CONTROL QOS GROUP` and `SPAN QOS GROUP`, which stand below the last numbered one, have no number.
_GROUP_LINE = re.compile(r"\|?\s*(?:(?:CONTROL|SPAN) )?QOS GROUP\b\s*(?P<group>\d[\d,-]*)?(?!\w).*")
# |                   Tx Pkts |       50800151|              0|
_VALUE_LINE = re.compile(
    r"\|?\s*+(?P<name>[A-Za-z/&+](?:[A-Za-z/&+ ]*[A-Za-z/&+])?)\s*\|\s*(?P<value>[\d,]+)\s*(\|.*)?"
)
_QUEUE = {"Tx Pkts": "tx_packets", "Tx Byts": "tx_bytes", "WRED/AFD & Tail Drop Pkts": "queue_drops"}


def reported(_classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port on which the class is configured. NX-OS 9.3 and later."""
    roce = ("roce_tx_packets", "roce_tx_bytes", "roce_queue_drops", "cnp_tx_packets", "cnp_queue_drops")
    return (*_LINK, *roce, "pfc_rx_frames", "pfc_tx_frames", "watchdog_events")


def parse(outputs: Outputs, classes: Classes) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not these commands' output."""
    ports: PortCounters = {}
    rows = json_object(outputs, "links").get("TABLE_interface", {}).get("ROW_interface", [])
    for row in rows if isinstance(rows, list) else [rows]:
        port = str(row.get("interface"))
        ports[port] = {name: count(row[key], f"{port} {key}") for name, key in _LINK.items() if key in row}
    for line in output(outputs, "pfc").splitlines():
        match = _PFC_LINE.fullmatch(line.strip())
        if match and match["port"] in ports:
            port = match["port"]
            ports[port] |= {f"pfc_{way}_frames": count(match[way], f"{port} PFC") for way in ("rx", "tx")}
    for port, groups, name, value in _blocks(output(outputs, "queues")):
        for number, kind in ((classes.queue, "roce"), (classes.cnp_queue, "cnp")):
            if port in ports and number in groups and name in _QUEUE and (kind, name) != ("cnp", "Tx Byts"):
                ports[port][f"{kind}_{_QUEUE[name]}"] = value
    for port, groups, name, value in _blocks(output(outputs, "watchdog")):
        if port in ports and classes.queue in groups and name == "Shutdown":
            ports[port]["watchdog_events"] = value
    return ports


def _blocks(text: str) -> list[tuple[str, frozenset[int], str, int]]:
    """Every (port, QoS groups, name, unicast value) of a report in blocks."""
    found = []
    port, groups = "", frozenset[int]()
    for raw in text.splitlines():
        line = raw.strip()
        if match := _GROUP_LINE.fullmatch(line):
            groups = numbers(match["group"] or "")
        elif match := _VALUE_LINE.fullmatch(line):
            if groups:
                found.append((port, groups, match["name"], count(match["value"], f"{port} {match['name']}")))
        elif match := _PORT_LINE.fullmatch(line):
            port, groups = match["port"], frozenset()
    return found


def end(found: list[str], port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    lines = "\n".join(found)
    here = rf"(?m)^interface {re.escape(port)} / "
    mtu = re.search(here + r"mtu (\d+)$", lines)
    on = re.search(here + "priority-flow-control mode on$", lines)
    classified = re.search(here + "service-policy type qos input ROCE-IN$", lines)
    groups = dict(re.findall(r"(?m)^policy-map type qos ROCE-IN / class (\S+) / set qos-group (\d)$", lines))
    matches = re.findall(r"(?m)^class-map type qos match-any (\S+) / match dscp ([\d,-]+)$", lines)
    lossless = re.findall(r"(?m)^policy-map type network-qos .* / pause pfc-cos ([\d,-]+)$", lines)
    return {
        # NX-OS counts the Ethernet header in, and 802.1Q's: 14 and 4 bytes of 9216 are not IP's.
        "mtu_bytes": int(mtu[1]) - 18 if mtu and int(mtu[1]) > 1500 else mtu and int(mtu[1]),
        "pfc_priorities": frozenset().union(*map(numbers, lossless if on else [])),
        "dscp_map": {
            d: int(groups[c]) for c, some in matches if classified and c in groups for d in numbers(some)
        },
    }


def links(outputs: Outputs, _ports: Sequence[str]) -> dict[str, Tree]:
    """Return the rate of ports, from `show interface | json`. Raises BadInput: not JSON."""
    found: dict[str, Tree] = {}
    rows = json_object(outputs, "links").get("TABLE_interface", {}).get("ROW_interface", [])
    for row in rows if isinstance(rows, list) else [rows]:
        speed = re.fullmatch(r"(\d+) ([GM])b/s", str(row.get("eth_speed")))
        if speed:
            gbps = int(speed[1]) / (1000 if speed[2] == "M" else 1)
            found[str(row.get("interface"))] = {"speed_gbps": gbps}
    return found


_TOTAL = re.compile(r"(?m)^[^\S\n]*+Total entries displayed: *(\d{1,9})\s*\Z")  # the last line of the report
# The heading of the brief table.
_BRIEF = re.compile(r"(?m)^[^\S\n]*+Device ID\s+Local Intf\s")
_SILENT = {"null", "not advertised", ""}


def _long(port: str) -> str:
    return re.sub(r"^Eth(?=\d)", "Ethernet", port)


def neighbours(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return LLDP neighbours from `show lldp neighbors detail`, one block a neighbour.

    Raises BadInput: a block without a local port, or fewer blocks than the last line counts. An output that
    was cut short has no such line; its last name may be half a name.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    blocks = re.split(r"(?m)^[ \t]*(?=Chassis id:)", text)[1:]
    if not blocks and _BRIEF.search(text):
        what = "the table of `show lldp neighbors`, which cuts names off and has no description of a port"
        TextSource(text).refuse(what, fix="read `show lldp neighbors detail`")
    total = _TOTAL.search(text)
    if total is None or int(total[1]) != len(blocks):
        counted = f"of {total[1]}" if total else "and no line `Total entries displayed`"
        TextSource(text).refuse(f"NX-OS's LLDP is cut short: {len(blocks)} neighbours {counted}")
    for block in blocks:
        said: dict[str, str] = {}
        # The first counts: what a neighbour wrote into its description may be many lines of any kind.
        for key, value in re.findall(r"(?m)^[^\S\n]*+([A-Z][A-Za-z ]*?):[ \t]*(.*)$", block):
            said.setdefault(key, "" if value.strip() in _SILENT else value.strip())
        local = said.get("Local Port id", "")
        if not local:
            TextSource(text).refuse("not NX-OS's LLDP: a neighbour without local port")
        name = said.get("System Name") or said.get("Chassis id", "")
        # The report does not say of what kind an id is; whatever is no MAC address is a port's name.
        port_id = said.get("Port id", "")
        remotes = remote_ports(port_id, said.get("Port Description", ""), named=not is_mac(port_id))
        add_neighbour(found, _long(local), name, map(_long, remotes))
    return found


SYSTEM = SwitchSystem(
    name="nxos",
    parse=parse,
    reported=reported,
    tells=frozenset({MTU, PFC, DSCP, CABLING, SPEED}),
    end=end,
    links=links,
    neighbours=neighbours,
    model=r'"chassis_id": *"([^"]+)"',  # show version | json
    version=r'"(?:nxos|kickstart)_ver_str": *"([^"]+)"',
    not_done=("PFC watchdog times: the platform's own; it is only switched on",),
)
