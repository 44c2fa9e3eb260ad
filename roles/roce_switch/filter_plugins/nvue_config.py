"""Jinja2 filters for Cumulus Linux: the NVUE configuration from the intent, and the difference.

`nv set qos roce` brings a fixed class: switch priority 3 lossless on traffic class 3 with half the bandwidth,
switch priority 6 strict, DSCP 24 to 31 and 48 to 55 (NVIDIA's Cumulus Linux 5.15 guide, RoCE). Only the ECN
thresholds are set beside it; an intent with other numbers is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tree = dict[str, Any]
PROFILE = "ROCE"


def tree(fabric: Tree, ports: list[dict[str, str]]) -> Tree:
    """Render the intent, in the form of NVUE's `set`."""
    roce, ecn = fabric["roce"], fabric["roce"]["ecn"]
    congestion = {
        "ecn": "enable",
        "red": "disable",
        "min-threshold-bytes": ecn["min_bytes"],
        "max-threshold-bytes": ecn["max_bytes"],
        "probability": ecn["mark_percent"],
    }
    port = {
        "link": {"mtu": fabric["mtu_bytes"]["link"]},
        "qos": {"pfc-watchdog": {"state": "enable"}, "congestion-control": {"profile": PROFILE}},
    }
    return {
        "qos": {
            "roce": {"enable": "on", "mode": "lossless"},
            "congestion-control": {PROFILE: {"traffic-class": {str(roce["traffic_class"]): congestion}}},
        },
        "interface": {entry["port"]: port for entry in ports},
    }


def difference(wanted: Tree, found: Tree) -> Tree:
    """Leaves that differ, in people's words, and what the switch has at the wanted places."""
    lines: list[str] = []
    have = _at(wanted, found, "", lines)
    return {"differences": lines, "wanted": wanted, "found": have}


def _at(wanted: object, found: object, where: str, lines: list[str]) -> object:
    if isinstance(wanted, dict):
        below = found if isinstance(found, dict) else {}
        return {key: _at(value, below.get(key), f"{where}.{key}", lines) for key, value in wanted.items()}
    # NVUE prints numbers as numbers or as text, depending on the release.
    if str(found) != str(wanted):
        lines.append(f"{where.lstrip('.')}: {'absent' if found is None else found} -> {wanted}")
    return found


def refusals(fabric: Tree) -> list[str]:
    """Why `qos roce` cannot be this intent."""
    roce, cnp = fabric["roce"], fabric["roce"]["cnp"]
    reasons = []
    if roce["priority"] != 3 or not 24 <= roce["dscp"] <= 31:
        reasons.append("cumulus: qos roce fixes RoCE to priority 3 and DSCP 24 to 31")
    if cnp["priority"] != 6 or not 48 <= cnp["dscp"] <= 55 or cnp["scheduler"] != "strict":
        reasons.append("cumulus: qos roce fixes CNPs to priority 6, strict, and DSCP 48 to 55")
    if roce["pfc"].get("priorities", [3]) != [3]:
        reasons.append("cumulus: qos roce makes priority 3 lossless and no other")
    return reasons


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_nvue_tree": tree,
            "roce_switch_nvue_difference": difference,
            "roce_switch_nvue_refusals": refusals,
        }
