"""`host-settings modules`: what the NICs' optical modules say of themselves, for everybody to read.

`ethtool -m` asks a module's EEPROM through the driver and takes CAP_NET_ADMIN, which no job has. A timer
runs this and leaves /run/shakedown/modules.json; nothing and nobody can tell it what to read.

Lines are those of ethtool's sfpdiag.c, qsfp.c, cmis.c and sff-common.c (SFF-8472, SFF-8636, CMIS): flags by
which the module itself says that a value is beyond its own alarm or warning threshold, the values, and those
thresholds. Values are held to them as well: not every module has flags, and reading them may clear them.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from host_settings.model import WriteFile
from host_settings.system import System, ToolError

FILE = "/run/shakedown/modules.json"
SCHEMA = 1
UNREAD = "unread"  # in the place of alarms and warnings
_MOST_NICS = 128
_LANE = r"(?:\s*\((?:Chan|Channel|Lane) (\d{1,2})\))?"
_FLAG = re.compile(rf"^\s*(\w[\w ]*?) (?:high|low) (alarm|warning){_LANE}\s*:\s*(On|Off)\s*$", re.M)
_NUMBER = r"(-?\d{1,7}(?:\.\d{1,6})?)"
# Name, unit and how many of ours one of theirs is: m degrees C, uV, uA, nW.
_VALUES = (
    ("temperature_mc", re.compile(rf"^\s*Module temperature\s*:\s*{_NUMBER} degrees C", re.M), 1_000),
    ("voltage_uv", re.compile(rf"^\s*Module voltage\s*:\s*{_NUMBER} V\b", re.M), 1_000_000),
    ("bias_ua", re.compile(rf"^\s*Laser (?:tx )?bias current{_LANE}\s*:\s*{_NUMBER} mA", re.M), 1_000),
    (
        "tx_power_nw",
        re.compile(rf"^\s*(?:Laser output power|Transmit avg optical power){_LANE}\s*:\s*{_NUMBER} mW", re.M),
        1_000_000,
    ),
    (
        "rx_power_nw",
        re.compile(
            rf"^\s*(?:Rcvr signal avg optical power|Receiver signal (?:average optical|OMA) power|"
            rf"Receiver signal average optical power){_LANE}\s*:\s*{_NUMBER} mW",
            re.M,
        ),
        1_000_000,
    ),
)


# What a threshold is of (sff-common.c, sff_show_thresholds), in the same unit as its value is.
_THRESHOLD = re.compile(
    rf"^\s*(Module temperature|Module voltage|Laser bias current|Laser output power|Laser rx power)"
    rf" (high|low) (alarm|warning) threshold\s*:\s*{_NUMBER} (?:degrees C|V|mA|mW)\b",
    re.M,
)
_OF = {
    "Module temperature": "temperature_mc",
    "Module voltage": "voltage_uv",
    "Laser bias current": "bias_ua",
    "Laser output power": "tx_power_nw",
    "Laser rx power": "rx_power_nw",
}
_OF_LIGHT = ("bias_ua", "tx_power_nw", "rx_power_nw")
_KINDS = ("alarm", "warning")


def parse(text: str) -> dict[str, int]:
    """Return alarms and warnings that are up and values of one module; empty: no diagnostics, as of copper.

    An alarm is up where its flag is on or the value beyond the module's threshold: whichever tells more.
    """
    flags = [(kind, state) for _, kind, _, state in _FLAG.findall(text)]
    found = _values(text)
    beyond = _beyond(text, found)
    for kind in _KINDS:
        if flags or beyond:
            on = sum(state == "On" for of, state in flags if of == kind)
            found[f"{kind}s"] = max(on, beyond.get(kind, 0))
    return found


def _beyond(text: str, values: dict[str, int]) -> dict[str, int]:
    """Return how many values are beyond each kind of threshold; a kind that the module has none of is absent.

    A lane without current is switched off: it has no light to be weak. Thresholds that leave nothing between
    them (all zero) are none.
    """
    factors = {name: factor for name, _, factor in _VALUES}
    limits: dict[tuple[str, str], dict[str, int]] = {}
    for what, side, kind, value in _THRESHOLD.findall(text):
        limits.setdefault((_OF[what], kind), {})[side] = round(float(value) * factors[_OF[what]])
    found: dict[str, int] = {}
    for (name, kind), sides in limits.items():
        low, high = sides.get("low"), sides.get("high")
        if low is None or high is None or low >= high:
            continue
        found.setdefault(kind, 0)
        for key, value in values.items():
            of, _, lane = key.partition(".")
            dark = values.get(f"bias_ua.{lane}" if lane else "bias_ua") == 0
            if of == name and not (dark and of in _OF_LIGHT):
                found[kind] += not max(low, 0) <= value <= high
    return found


def _values(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, pattern, factor in _VALUES:
        for match in pattern.finditer(text):
            *lane, value = match.groups()
            # A temperature below zero is none of a running module; counters hold no negative numbers.
            number = max(round(float(value) * factor), 0)
            found[f"{name}.lane{lane[0]}" if lane and lane[0] else name] = number
    return found


def document(system: System) -> dict[str, Any]:
    """Return what every physical NIC's module says, or why nothing is known of it, by netdev.

    A module latches a flag until it is read, so flags that were on are counted (`alarms_seen`) over readings.
    """
    before = _seen_before(system)
    netdevs: dict[str, Any] = {}
    for name in system.names("/sys/class/net")[:_MOST_NICS]:
        if not system.exists(f"/sys/class/net/{name}/device/driver"):
            continue
        try:
            done = system.run("ethtool", "-m", name)
        except ToolError as error:
            netdevs[name] = {"values": _unread(name, before), "why": str(error)[:200]}
            continue
        if done.status != 0:
            netdevs[name] = {"values": _unread(name, before), "why": done.complaint[:200]}
            continue
        values = parse(done.out)
        for kind in ("alarms", "warnings"):
            if kind in values:
                values[f"{kind}_seen"] = values[kind] + before.get((name, f"{kind}_seen"), 0)
        why = "" if values else "the module has no diagnostics"
        netdevs[name] = {"values": values, "why": why}
    return {"schema": SCHEMA, "taken_s": round(time.time(), 3), "netdevs": netdevs}


def _unread(name: str, before: dict[tuple[str, str], int]) -> dict[str, int]:
    """Return what stands for a module that could not be read: nothing, unless it was read since the start.

    Copper and virtual functions are refused for ever; one that told something may have an alarm up by now.
    """
    if not any(netdev == name for netdev, _ in before):
        return {}
    kept = {key: n for (netdev, key), n in before.items() if netdev == name and key.endswith("_seen")}
    return {**kept, UNREAD: 1}


def _seen_before(system: System) -> dict[tuple[str, str], int]:
    try:
        netdevs = json.loads(system.read(FILE) or "{}")["netdevs"]
        return {(netdev, key): n for netdev, told in netdevs.items() for key, n in told["values"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def write(system: System) -> None:
    """Leave the document for jobs to read. Raises OSError."""
    system.write_file(WriteFile(FILE, json.dumps(document(system)) + "\n"))
