"""Jinja2 filters for Dell Enterprise SONiC: what `roce enable` makes of a switch, and the difference.

`roce enable` expands to a fixed class (Dell's RoCEv2 high-level design, section 4.1): DSCP 26 to group 3,
DSCP 48 to group 6, ECN 1048576/2097152 bytes at 5 %, queue 6 strict. It does not run over existing maps,
saves and reboots. The watchdog and the MTU are set beside it, without a reboot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
_ECN = {"min_bytes": 1048576, "max_bytes": 2097152, "mark_percent": 5}


def compare(
    fabric: Facts, ports: list[dict[str, str]], lossless: list[int], facts: Facts, mtus: dict[str, int | None]
) -> Facts:
    """Compare the switch's network resources (sonic_facts) with the intent.

    Returns:
        differences (lines), needs_roce (whether `roce enable` and its reboot are due), refusals, and
        `wanted` and `found` as flat dictionaries.
    """
    wanted = _wanted(fabric, ports, lossless)
    found = _found(facts, ports, mtus)
    lines = [
        f"{key}: {found.get(key)} -> {value}" for key, value in wanted.items() if found.get(key) != value
    ]
    beside = ("mtu ", "watchdog ")
    enabled = bool(facts.get("roce", {}).get("roce_enable"))
    reasons = _refusals(fabric)
    if not enabled and (facts.get("qos_maps") or {}):
        reasons.append(
            "enterprise_sonic: roce enable refuses to replace existing QoS maps; remove them first"
        )
    if enabled and any(not line.startswith(beside) for line in lines):
        reasons.append(
            "enterprise_sonic: RoCE is enabled with other values; disable it in a drained window first"
        )
    return {
        "differences": lines,
        "needs_roce": not enabled,
        "refusals": reasons,
        "wanted": wanted,
        "found": found,
    }


def _wanted(fabric: Facts, ports: list[dict[str, str]], lossless: list[int]) -> Facts:
    roce, cnp, dog = fabric["roce"], fabric["roce"]["cnp"], fabric["roce"]["pfc"]["watchdog"]
    wanted: Facts = {
        "roce": True,
        "pfc priorities": ",".join(map(str, lossless)),
        f"group of DSCP {roce['dscp']}": str(roce["traffic_class"]),
        f"group of DSCP {cnp['dscp']}": str(cnp["traffic_class"]),
        "ECN": [roce["ecn"][key] for key in _ECN],
    }
    for entry in ports:
        port = entry["port"]
        wanted[f"lossless {port}"] = lossless
        wanted[f"watchdog {port}"] = [dog["action"], dog["detect_ms"], dog["restore_ms"]]
        wanted[f"mtu {port}"] = fabric["mtu_bytes"]["link"]
    return wanted


def _found(facts: Facts, ports: list[dict[str, str]], mtus: dict[str, int | None]) -> Facts:
    roce = facts.get("roce", {})
    found: Facts = {
        "roce": bool(roce.get("roce_enable")),
        "pfc priorities": roce.get("pfc_priority"),
        "ECN": None,
    }
    interfaces = {one["name"]: one for one in facts.get("qos_interfaces") or []}
    used = {
        one.get("qos_maps", {}).get("dscp_fwd_group")
        for name, one in interfaces.items()
        if name in {e["port"] for e in ports}
    }
    for one in (facts.get("qos_maps") or {}).get("dscp_maps") or []:
        if used == {one["name"]}:  # a map that not all our ports use proves nothing
            for entry in one.get("entries") or []:
                found[f"group of DSCP {entry['dscp']}"] = str(entry["fwd_group"])
    for profile in facts.get("qos_wred") or []:
        green = profile.get("green", {})
        if profile.get("ecn") == "green" and green.get("enable"):
            found["ECN"] = [green.get(k) for k in ("min_threshold", "max_threshold", "drop_probability")]
    for entry in ports:
        port = entry["port"]
        pfc = interfaces.get(port, {}).get("pfc", {})
        found[f"lossless {port}"] = sorted(p["dot1p"] for p in pfc.get("priorities") or [] if p.get("enable"))
        times = ("watchdog_action", "watchdog_detect_time", "watchdog_restore_time")
        found[f"watchdog {port}"] = [pfc.get(key) for key in times]
        found[f"mtu {port}"] = mtus.get(port)
    return found


def _refusals(fabric: Facts) -> list[str]:
    roce, cnp = fabric["roce"], fabric["roce"]["cnp"]
    reasons = []
    if (roce["dscp"], roce["priority"]) not in ((24, 3), (26, 3), (4, 4)):
        reasons.append(
            "enterprise_sonic: roce enable fixes RoCE to DSCP 24 or 26 and priority 3, or DSCP 4 and 4"
        )
    if (cnp["dscp"], cnp["queue"], cnp["scheduler"]) != (48, 6, "strict"):
        reasons.append("enterprise_sonic: roce enable fixes CNPs to DSCP 48 and queue 6, strict")
    if {key: roce["ecn"][key] for key in _ECN} != _ECN:
        reasons.append("enterprise_sonic: roce enable fixes ECN to 1048576/2097152 bytes and 5 %")
    return reasons


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {"roce_switch_enterprise_sonic_compare": compare}
