"""Jinja2 filters for Dell Enterprise SONiC: what `roce enable` makes of a switch, and the difference.

`roce enable` expands to a fixed class (Dell's RoCEv2 high-level design, section 4.1): DSCP 26 to group 3,
DSCP 48 to group 6, ECN 1048576/2097152 bytes at 5 %, queue 6 strict. It does not run over existing maps,
saves and reboots. Watchdog, cable length, PFC's symmetry and MTU are set beside it, without reboot.

A class that is there already, made by hand, needs no `roce enable`. Names and defaults of what is read are
those of dellemc.enterprise_sonic 3.2.0; its `cable_length` defaults to 40m, so that it is always given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
_ECN = {"min_bytes": 1048576, "max_bytes": 2097152, "mark_percent": 5}


def compare(
    fabric: Facts, ports: list[dict[str, Any]], lossless: list[int], facts: Facts, mtus: dict[str, int | None]
) -> Facts:
    """Compare the switch's network resources (sonic_facts) with the intent.

    Returns:
        differences (lines), needs_roce (whether `roce enable` and its reboot are due), refusals, and
        `wanted` and `found` as flat dictionaries.
    """
    found = _found(fabric, facts, ports, mtus)
    wanted = _wanted(fabric, ports, lossless)
    if not found["roce"]:
        # Made by hand: the parts say whether the class is there, not the switch's one word for it.
        by_hand = {key: value for key, value in wanted.items() if key not in ("roce", "pfc priorities")}
        if all(found.get(key) == value for key, value in by_hand.items() if not key.startswith(BESIDE)):
            wanted = by_hand
    lines = [
        f"{key}: {found.get(key)} -> {value}" for key, value in wanted.items() if found.get(key) != value
    ]
    enabled = found["roce"]
    needs_roce = not enabled and any(not line.startswith(BESIDE) for line in lines)
    reasons = _refusals(fabric, ports)
    if needs_roce and (facts.get("qos_maps") or {}):
        reasons.append(
            "enterprise_sonic: roce enable refuses to replace existing QoS maps; remove them first"
        )
    if enabled and any(not line.startswith(BESIDE) for line in lines):
        reasons.append(
            "enterprise_sonic: RoCE is enabled with other values; disable it in a drained window first"
        )
    return {
        "differences": lines,
        "changes": [
            _change(key, found.get(key), value, enabled)
            for key, value in wanted.items()
            if found.get(key) != value
        ],
        "needs_roce": needs_roce,
        "refusals": reasons,
        "wanted": wanted,
        "found": found,
    }


# Set beside `roce enable`, and what a switch has there of itself (Dell's defaults; None: nothing is set).
BESIDE = ("mtu ", "watchdog ", "cable ", "asymmetric ")
_SYSTEM = {"mtu": (9100,), "cable": ("40m",), "asymmetric": (False,), "watchdog": (["drop", None, None],)}


def _change(key: str, was: object, to: object, enabled: bool) -> dict[str, str]:
    setting, _, port = key.partition(" ")
    beside = key.startswith(BESIDE)
    nobody = not was or was == [None, None, None]
    if nobody:
        whose = "nobody"
    elif beside and was in _SYSTEM[setting]:
        whose = "system"
    else:  # `roce enable` made it, or what stands beside it
        whose = "role" if not beside or enabled else "other"
    return {
        "port": port if beside or setting == "lossless" else "",
        "setting": setting if beside else key,
        "where": "",
        "from": "absent" if nobody and was is not False else str(was),
        "to": str(to),
        "whose": whose,
    }


def _wanted(fabric: Facts, ports: list[dict[str, str]], lossless: list[int]) -> Facts:
    roce, cnp = fabric["roce"], fabric["roce"]["cnp"]
    dog, headroom = roce["pfc"].get("watchdog"), roce.get("headroom")
    wanted: Facts = {
        "roce": True,
        "pfc priorities": ",".join(map(str, lossless)),
        f"group of DSCP {roce['dscp']}": str(roce["traffic_class"]),
        f"group of DSCP {cnp['dscp']}": str(cnp["traffic_class"]),
        **{f"queue of group {one['traffic_class']}": one["queue"] for one in (roce, cnp)},
        "ECN": [roce["ecn"][key] for key in _ECN],
    }
    for entry in ports:
        port = entry["port"]
        wanted[f"lossless {port}"] = lossless
        if dog:  # without times in the intent the watchdog is left as it is
            wanted[f"watchdog {port}"] = [dog["action"], dog["detect_ms"], dog["restore_ms"]]
        length = entry.get("cable_m") or (headroom or {}).get("cable_m")  # a link's own, or the intent's
        if length:
            wanted[f"cable {port}"] = f"{length}m"
        wanted[f"asymmetric {port}"] = False
        wanted[f"mtu {port}"] = fabric["mtu_bytes"]["link"]
    return wanted


def _found(fabric: Facts, facts: Facts, ports: list[dict[str, str]], mtus: dict[str, int | None]) -> Facts:
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
    ours = [interfaces.get(entry["port"], {}) for entry in ports]
    found["ECN"] = _ecn(fabric, facts, ours)
    for one in (fabric["roce"], fabric["roce"]["cnp"]):
        found[f"queue of group {one['traffic_class']}"] = _queue(one["traffic_class"], facts, ours)
    for entry in ports:
        port = entry["port"]
        pfc = interfaces.get(port, {}).get("pfc", {})
        found[f"lossless {port}"] = sorted(p["dot1p"] for p in pfc.get("priorities") or [] if p.get("enable"))
        times = ("watchdog_action", "watchdog_detect_time", "watchdog_restore_time")
        found[f"watchdog {port}"] = [pfc.get(key) for key in times]
        found[f"cable {port}"] = interfaces.get(port, {}).get("cable_length", "40m")
        found[f"asymmetric {port}"] = bool(pfc.get("asymmetric"))
        found[f"mtu {port}"] = mtus.get(port)
    return found


def _ecn(fabric: Facts, facts: Facts, ports: list[Facts]) -> list[Any] | None:
    """The thresholds and share of the profile on RoCE's queue of all ports; None: there is none, or several.

    A profile that no queue uses marks nothing. Where no port tells its queues' profiles, and `roce enable`
    made them, the one with its values is it.
    """
    profiles: dict[str, list[Any]] = {}
    for profile in facts.get("qos_wred") or []:
        green = profile.get("green") or {}
        if profile.get("ecn") == "green" and green.get("enable"):
            keys = ("min_threshold", "max_threshold", "drop_probability")
            profiles[profile["name"]] = [green.get(key) for key in keys]
    queue = fabric["roce"]["queue"]
    told = [
        {one.get("wred_profile") for one in port.get("queues") or [] if one.get("id") == queue}
        for port in ports
    ]
    names = set().union(*told)
    if not names and (facts.get("roce") or {}).get("roce_enable"):
        made = list(_ECN.values())
        return made if made in profiles.values() else next(iter(profiles.values()), None)
    return profiles.get(names.pop()) if len(names) == 1 and all(told) else None


def _queue(group: int, facts: Facts, ports: list[Facts]) -> Any:  # noqa: ANN401  (a number, or what is told)
    """The queue of a forwarding group on all ports, its own number where no map is set; None: they differ."""
    maps = {
        one["name"]: {str(e["fwd_group"]): e.get("queue_index") for e in one.get("entries") or []}
        for one in (facts.get("qos_maps") or {}).get("fwd_group_queue_maps") or []
    }
    used = {(port.get("qos_maps") or {}).get("fwd_group_queue") for port in ports}
    queues = {group if name not in maps else maps[name].get(str(group)) for name in used}
    return queues.pop() if len(queues) == 1 else None


def _refusals(fabric: Facts, ports: list[dict[str, Any]]) -> list[str]:
    roce, cnp = fabric["roce"], fabric["roce"]["cnp"]
    reasons = []
    whole = (roce.get("headroom") or {}).get("cable_m")
    for where, cable in {"": whole, **{f" of {e['port']}": e.get("cable_m") for e in ports}}.items():
        if cable not in (None, 5, 40, 300) and not (where and cable == whole):
            reasons.append(f"enterprise_sonic: a cable is 5, 40 or 300 m long there, not {cable} m{where}")
    if (roce["dscp"], roce["priority"]) not in ((24, 3), (26, 3), (4, 4)):
        reasons.append(
            "enterprise_sonic: roce enable fixes RoCE to DSCP 24 or 26 and priority 3, or DSCP 4 and 4"
        )
    if (cnp["dscp"], cnp["queue"], cnp["scheduler"]) != (48, 6, "strict"):
        reasons.append("enterprise_sonic: roce enable fixes CNPs to DSCP 48 and queue 6, strict")
    if {key: roce["ecn"][key] for key in _ECN} != _ECN:
        reasons.append("enterprise_sonic: roce enable fixes ECN to 1048576/2097152 bytes and 5 %")
    return reasons


def unready(read: Facts, mixture_accepted: bool) -> list[str]:
    """Why a switch must not be changed as it is: nothing undoes its requests when the connection is lost."""
    requests = int(read["needs_roce"]) + sum(
        change["setting"] in {word.strip() for word in BESIDE} for change in read["changes"]
    )
    if requests < 2 or mixture_accepted:
        return []
    return [
        f"Enterprise SONiC has no commit timer, and this takes {requests} requests one after another: a "
        "connection lost between two leaves a mixture until the next run. To accept that set "
        "roce_switch_mixture_accepted"
    ]


def interfaces(
    fabric: Facts, ports: list[dict[str, str]], found: Facts, *, back: bool = False
) -> list[Facts]:
    """The input of sonic_qos_interfaces: every value that has a default there is given.

    Args:
        fabric: the intent.
        ports: the ports to configure.
        found: what they have now, which stands where the intent says nothing; with `back` it is all.
        back: whether this is the way back.
    """
    wanted = {} if back else _wanted(fabric, ports, [])
    entries = []
    for entry in ports:
        port = entry["port"]
        here = {**found, **wanted}
        action, detect, restore = here[f"watchdog {port}"]
        times = {"watchdog_detect_time": detect, "watchdog_restore_time": restore}
        pfc = {"asymmetric": here[f"asymmetric {port}"], "watchdog_action": action or "drop"}
        pfc |= {key: value for key, value in times.items() if value is not None}
        entries.append({"name": port, "cable_length": here[f"cable {port}"], "pfc": pfc})
    return entries


def left(now: Facts, before: Facts, typed: list[list[str]] | None = None) -> list[str]:
    """What stands beside `roce enable` and is neither the old value nor ours: somebody set it meanwhile.

    `typed`: setting and value of what earlier runs set, maybe for another intent.
    """
    ours = {(setting, value) for _, setting, value in typed or ()}
    return [
        key
        for key, value in now["wanted"].items()
        if key.startswith(BESIDE)
        and now["found"].get(key) not in (value, before["found"].get(key))
        and (key.split(" ")[0], str(now["found"].get(key))) not in ours
    ]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_enterprise_sonic_compare": compare,
            "roce_switch_enterprise_sonic_interfaces": interfaces,
            "roce_switch_enterprise_sonic_unready": unready,
            "roce_switch_enterprise_sonic_left": left,
        }
