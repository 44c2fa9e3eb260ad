"""Jinja2 filters of the role: why a switch cannot hold the intent. Pure: decided before any change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

NOSES = ("linux", "sonic", "enterprise_sonic", "cumulus", "eos", "nxos", "os9", "os10")
# Lossless priorities that the platform can hold, where its documents give a number.
# OS9: dcb-map takes two; Enterprise SONiC: sonic_qos_interfaces documents `priorities` as two at most.
LOSSLESS_LIMIT = {"os9": 2, "enterprise_sonic": 2}

Intent = dict[str, Any]


def lossless_priorities(fabric: Intent) -> list[int]:
    """The priorities that PFC protects: `roce.pfc.priorities`, or the RoCE class alone."""
    pfc = fabric["roce"].get("pfc", {})
    return sorted(pfc.get("priorities", [fabric["roce"]["priority"]])) if pfc.get("enabled") else []


def refusals(
    fabric: Intent, nos: str, ports: list[dict[str, str]], management: list[str], hosts: list[str]
) -> list[str]:
    """Why this intent cannot go onto this switch; empty if it can."""
    if nos not in NOSES:
        return [f"unknown switch system {nos!r}; it is one of {', '.join(NOSES)}"]
    return _wrong_cabling(fabric, ports, management, hosts) + _wrong_class(fabric, nos)


def _wrong_cabling(
    fabric: Intent, ports: list[dict[str, str]], management: list[str], hosts: list[str]
) -> list[str]:
    reasons = [] if ports else ["leaf_ports names no port"]
    rails = {rail["name"] for rail in fabric["rails"]}
    seen: set[str] = set()
    ends: dict[tuple[str, str], str] = {}
    for entry in ports:
        missing = [key for key in ("port", "host", "netdev", "rail") if not entry.get(key)]
        if missing:
            reasons.append(f"port {entry.get('port') or '?'} has no cabling: {', '.join(missing)} is missing")
            continue
        port, end = entry["port"], (entry["host"], entry["netdev"])
        if port in seen:
            reasons.append(f"port {port} is listed twice")
        if entry["rail"] not in rails:
            reasons.append(f"port {port}: rail {entry['rail']!r} is not in the intent")
        if entry["host"] not in hosts:
            reasons.append(f"port {port}: host {entry['host']!r} is not in the inventory")
        if port in management:
            reasons.append(f"port {port} carries management")
        if end in ends:
            reasons.append(f"ports {ends[end]} and {port} are both cabled to {'/'.join(end)}")
        seen.add(port)
        ends[end] = port
    return reasons


def _wrong_class(fabric: Intent, nos: str) -> list[str]:
    reasons = []
    roce, cnp, ecn = fabric["roce"], fabric["roce"]["cnp"], fabric["roce"]["ecn"]
    lossless, limit = lossless_priorities(fabric), LOSSLESS_LIMIT.get(nos)
    if limit is not None and len(lossless) > limit:
        reasons.append(f"{nos} holds at most {limit} lossless queues, the intent has {lossless}")
    for name, one in (("roce", roce), ("roce.cnp", cnp)):
        bounds = (("dscp", 63), ("priority", 7), ("traffic_class", 7), ("queue", 7))
        reasons += [
            f"{name}.{key} {one[key]} is not 0 to {top}" for key, top in bounds if not 0 <= one[key] <= top
        ]
    for key in ("dscp", "traffic_class", "queue"):
        if roce[key] == cnp[key]:
            reasons.append(f"roce and roce.cnp have the same {key}")
    if nos != "linux":
        for name, one in (("roce", roce), ("roce.cnp", cnp)):
            if not one["priority"] == one["traffic_class"] == one["queue"]:
                reasons.append(f"{name}: {nos} is rendered with priority, traffic class and queue equal only")
    if nos == "os9" and any(one["dscp"] >> 3 != one["queue"] for one in (roce, cnp)):
        reasons.append("os9 takes the queue from the upper three bits of the DSCP; the intent's differ")
    if nos in ("os9", "os10") and any(ecn[k] % 1024 for k in ("min_bytes", "max_bytes")):
        reasons.append(f"{nos} takes ECN thresholds in KB; the intent's are no multiples of 1024 bytes")
    if cnp["priority"] in lossless:
        reasons.append(f"the CNP priority {cnp['priority']} must not be lossless")
    if lossless and roce["priority"] not in lossless:
        reasons.append(f"the RoCE priority {roce['priority']} is not among the lossless ones {lossless}")
    if not 0 < ecn["min_bytes"] < ecn["max_bytes"] or not 0 < ecn["mark_percent"] <= 100:
        reasons.append("roce.ecn needs 0 < min_bytes < max_bytes and 0 < mark_percent <= 100")
    return reasons


def cli_refusals(fabric: Intent, nos: str, ports: list[dict[str, str]], running: str) -> list[str]:
    """Why a switch, as it is configured, cannot take the intent."""
    reasons = []
    if nos == "os9":
        for entry in ports:
            section = re.search(rf"(?m)^interface {re.escape(entry['port'])}\n((?:[ !].*\n?)*)", running)
            if section and re.search(r"(?m)^ flowcontrol (rx|tx) on", section[1]):
                reasons.append(
                    f"port {entry['port']}: link-level flow control is on; OS9 has no PFC beside it"
                )
    return reasons


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_refusals": refusals,
            "roce_switch_lossless": lossless_priorities,
            "roce_switch_cli_refusals": cli_refusals,
        }
