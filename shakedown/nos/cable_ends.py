"""What each end of a cable says of itself, from raw read-backs: the switch's settings and the host's report.

The role roce_switch saves `SWITCH.settings.json` (variable roce_switch_raw_dir); hosts report their settings
during the config stage; neighbours come from the switch's counter reading or a host's own lldpd.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from shakedown.benchmarks.config.settings import TargetReport
from shakedown.nos.counters import json_object
from shakedown.nos.crosscheck import Cable, End
from shakedown.nos.readings import SwitchReading, load_record
from shakedown.records.base import Name, Record
from shakedown.records.errors import BadInput

Tree = dict[str, Any]
Neighbours = Mapping[str, list[tuple[str, str]]]


class SettingsCable(Record):
    """One entry of the switch's cabling."""

    port: str
    host: Name
    netdev: Name
    rail: Name


class SwitchSettings(Record):
    """What the role wanted on a switch and what it read back (`SWITCH.settings.json`)."""

    schema_: Literal[1] = Field(alias="schema")
    switch: Name
    nos: Name
    cabling: tuple[SettingsCable, ...]
    differences: tuple[str, ...]
    found: Any
    not_done: tuple[str, ...]

    # Beside these a system's read-back has fields of its own, for its way of applying.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


def load_settings(path: Path) -> SwitchSettings:
    """Read one settings file. Raises BadInput if it is none."""
    return load_record(path, SwitchSettings)


def cables(settings: SwitchSettings) -> list[Cable]:
    """Return the planned cables of a switch."""
    return [Cable(switch=settings.switch, **entry.model_dump()) for entry in settings.cabling]


def switch_ends(
    settings: SwitchSettings, heard: Neighbours | None = None, links: Mapping[str, Tree] | None = None
) -> dict[tuple[str, str], End]:
    """Return what each cabled port says of itself. A system that is not understood here tells nothing.

    Args:
        settings: what the role read back.
        heard: the LLDP neighbours of its ports; None if it was not asked.
        links: rate and FEC of its ports, where its settings do not tell them.

    Raises:
        BadInput: the read-back is not what that system's read-back looks like.
    """
    describe = _SYSTEMS.get(settings.nos, _unknown)
    ends = {}
    for entry in settings.cabling:
        try:
            fields = describe(settings.found, entry.port) | (links or {}).get(entry.port, {})
            known = {key: value for key, value in fields.items() if value is not None}
            ends[settings.switch, entry.port] = End(neighbours=_seen(heard, entry.port), **known)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise BadInput(
                f"{settings.switch}: no read-back of {settings.nos}: {error!r}", fix="read the switch again"
            ) from None
    return ends


def host_end(report: TargetReport, heard: Neighbours | None = None) -> End:
    """Return what a host's NIC says of itself. A setting that it lacks is None."""
    found = {setting.key: setting.found for setting in report.settings}
    fields: dict[str, Any] = {
        "mtu_bytes": found.get("mtu.host_bytes"),
        "speed_gbps": found.get("link.speed_gbps"),
        "fec": found.get("link.fec"),
    }
    if "pfc.priorities" in found:
        fields["pfc_priorities"] = frozenset(found["pfc.priorities"])
    if "dscp.map" in found:
        fields["dscp_map"] = _host_map(str(found["dscp.map"]))
    return End(neighbours=_seen(heard, report.target), **fields)


def neighbours_of(reading: SwitchReading) -> Neighbours | None:
    """Return the LLDP neighbours in a counter reading; None if the switch was not asked.

    Raises:
        BadInput: what it printed is not understood.
    """
    from shakedown.nos import lldp

    readers = {"eos": lldp.neighbours_eos, "nxos": lldp.neighbours_nxos}
    output = reading.outputs.get("neighbours")
    return readers.get(reading.nos, lldp.neighbours)(output.stdout) if output else None


def links_of(reading: SwitchReading) -> dict[str, Tree]:
    """Return rate (`speed_gbps`) and FEC (`fec`) of each cabled port, as far as a counter reading has them.

    From EOS's `show interfaces status | json`, NX-OS's `show interface | json` and, on Cumulus, ethtool.

    Raises:
        BadInput: an output is not JSON where it should be.
    """
    outputs = {label: output.stdout for label, output in reading.outputs.items()}
    found: dict[str, Tree] = {}
    if reading.nos == "eos" and "status" in outputs:
        statuses = json_object(outputs, "status").get("interfaceStatuses", {})
        for port, status in statuses.items():
            if status.get("linkStatus") == "connected" and status.get("bandwidth"):
                found[port] = {"speed_gbps": status["bandwidth"] / 1e9}  # bit/s
    elif reading.nos == "nxos":
        rows = json_object(outputs, "links").get("TABLE_interface", {}).get("ROW_interface", [])
        for row in rows if isinstance(rows, list) else [rows]:
            speed = re.fullmatch(r"(\d+) ([GM])b/s", str(row.get("eth_speed")))
            if speed:
                found[str(row.get("interface"))] = {
                    "speed_gbps": int(speed[1]) / (1000 if speed[2] == "M" else 1)
                }
    elif reading.nos == "cumulus":
        for cable in reading.cabling:
            speed = re.search(r"(?m)^\s*Speed: (\d+)Mb/s$", outputs.get(f"ethtool {cable.port}", ""))
            fec = re.search(r"(?m)^Active FEC encoding:\s*(\w+)\s*$", outputs.get(f"fec {cable.port}", ""))
            found[cable.port] = {
                "speed_gbps": int(speed[1]) / 1000 if speed else None,
                "fec": _FEC.get(fec[1].lower(), fec[1].lower()) if fec else None,
            }
    return found


# As ethtool names them, and as switches do.
_FEC = {"off": "none", "baser": "fc"}


def _seen(heard: Neighbours | None, port: str) -> tuple[str, ...] | None:
    return None if heard is None else tuple(f"{name}/{remote}" for name, remote in heard.get(port, []))


def _host_map(text: str) -> dict[int, int]:
    """Read `0-25:0 26:3 27-63:0`."""
    mapping = {}
    for part in text.split():
        dscps, _, priority = part.partition(":")
        first, _, last = dscps.partition("-")
        for dscp in range(int(first), int(last or first) + 1):
            mapping[dscp] = int(priority)
    return mapping


# ---- one function a system: its `found` and a port to the fields of End ----


def _linux(found: Tree, port: str) -> Tree:
    classes = [one for one in found[port]["classes"] or [] if "dscp" in one]
    return {
        "mtu_bytes": found[port]["mtu"],
        # Each DSCP has a filter for IPv4 and one for IPv6: the one asked first says it here. That both are as
        # they should be is compared with the port's settings.
        "dscp_map": {
            one["dscp"]: one["traffic_class"]
            for one in sorted(classes, key=lambda one: one["pref"], reverse=True)
        },
    }  # no PFC: a Linux bridge has none to tell


def _sonic(found: Tree, port: str) -> Tree:
    qos = found["PORT_QOS_MAP"].get(port, {})
    used = found["DSCP_TO_TC_MAP"].get(qos.get("dscp_to_tc_map"), {})
    row = found["PORT"].get(port, {})
    mtu, speed = row.get("mtu"), row.get("speed")
    return {
        "mtu_bytes": mtu and int(mtu),
        "speed_gbps": speed and int(speed) / 1000,  # CONFIG_DB has Mbit/s
        "fec": row.get("fec"),
        "pfc_priorities": frozenset(int(p) for p in qos.get("pfc_enable", "").split(",") if p),
        "dscp_map": {int(dscp): int(group) for dscp, group in used.items()},
    }


def _cumulus(found: Tree, port: str) -> Tree:
    roce = found["qos"]["roce"]
    on = (roce["enable"], roce["mode"]) == ("on", "lossless")
    # What `qos roce` maps (Cumulus Linux 5.15 guide): DSCP 24-31 to class 3, 48-55 to class 6.
    fixed = {**dict.fromkeys(range(24, 32), 3), **dict.fromkeys(range(48, 56), 6)}
    mtu = found["interface"][port]["link"]["mtu"]
    return {
        "mtu_bytes": mtu and int(mtu),
        "pfc_priorities": frozenset({3}) if on else frozenset(),
        "dscp_map": fixed if on else {},
    }


def _enterprise_sonic(found: Tree, port: str) -> Tree:
    groups = {
        key.rpartition(" ")[2]: value for key, value in found.items() if key.startswith("group of DSCP ")
    }
    return {
        "mtu_bytes": found[f"mtu {port}"],
        "pfc_priorities": frozenset(found[f"lossless {port}"]),
        "dscp_map": {int(dscp): int(group) for dscp, group in groups.items()},
    }


def _eos(found: list[str], port: str) -> Tree:
    lines = "\n".join(found)
    here = rf"(?m)^interface {re.escape(port)} / "
    mtu = re.search(here + r"mtu (\d+)$", lines)
    profile = re.search(here + "service-profile ROCE$", lines)
    lossless = re.findall(r"(?m)^qos profile ROCE / priority-flow-control priority (\d) no-drop$", lines)
    groups = re.findall(r"(?m)^qos map dscp (\d+) to traffic-class (\d)$", lines)
    return {
        "mtu_bytes": int(mtu[1]) if mtu else None,
        "pfc_priorities": frozenset(map(int, lossless if profile else [])),
        "dscp_map": {int(dscp): int(group) for dscp, group in groups},
    }


def _nxos(found: list[str], port: str) -> Tree:
    lines = "\n".join(found)
    here = rf"(?m)^interface {re.escape(port)} / "
    mtu = re.search(here + r"mtu (\d+)$", lines)
    on = re.search(here + "priority-flow-control mode on$", lines)
    classified = re.search(here + "service-policy type qos input ROCE-IN$", lines)
    groups = dict(re.findall(r"(?m)^policy-map type qos ROCE-IN / class (\S+) / set qos-group (\d)$", lines))
    matches = re.findall(r"(?m)^class-map type qos match-any (\S+) / match dscp (\d+)$", lines)
    lossless = re.findall(r"(?m)^policy-map type network-qos .* / pause pfc-cos (\d)$", lines)
    return {
        # NX-OS counts the Ethernet header in, and 802.1Q's: 14 and 4 bytes of 9216 are not IP's.
        "mtu_bytes": int(mtu[1]) - 18 if mtu and int(mtu[1]) > 1500 else mtu and int(mtu[1]),
        "pfc_priorities": frozenset(map(int, lossless if on else [])),
        "dscp_map": {int(d): int(groups[c]) for c, d in matches if classified and c in groups},
    }


def _unknown(_found: object, _port: str) -> Tree:
    return {}


_SYSTEMS: dict[str, Callable[[Any, str], Tree]] = {
    "linux": _linux,
    "sonic": _sonic,
    "cumulus": _cumulus,
    "enterprise_sonic": _enterprise_sonic,
    "eos": _eos,
    "nxos": _nxos,
}
