"""Jinja2 filters for Cumulus Linux: the NVUE configuration from the intent, and the difference.

`nv set qos roce` brings a fixed class: switch priority 3 lossless on traffic class 3 with half the bandwidth,
switch priority 6 strict, DSCP 24 to 31 and 48 to 55 (NVIDIA's Cumulus Linux 5.15 guide, RoCE). ECN
thresholds, cable length and the watchdog's time are set beside it; an intent with other numbers is refused.

Names by release, from NVIDIA's command reference (github.com/CumulusNetworks/docs):
`qos roce enable on` until 5.14, `qos roce state enabled` from 5.15 ("What's New", table of changed commands);
`qos congestion-control PROFILE traffic-class N min-threshold` and `max-threshold`, bytes, since 5.3;
`qos roce cable-length`, 1 to 100000 m, since 5.0; `qos pfc-watchdog polling-interval` (100 to 5000 ms) and
`robustness` (1 to 1000 intervals), and `interface PORT qos pfc-watchdog state enable`, since 5.6.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Tree = dict[str, Any]
PROFILE = "ROCE"
_STATE_SINCE = (5, 15)
# Profiles that NVUE gives to one port, which then has none of the whole switch's for that part (command
# reference: `nv set interface PORT qos pfc profile`, and the others alike). The role neither sets nor removes
# them.
OF_A_PORT = ("pfc", "mapping", "egress-scheduler", "link-pause")
_POLL_MS = 100  # the least, and the default
_CABLE_M = 100  # the default
# What a switch has of itself where nothing was set.
_SYSTEM = {
    "mtu": {"9216", "1500"},
    "cable-length": {str(_CABLE_M)},
    "polling-interval": {"100"},
    "robustness": {"3"},
}


def release(header: Tree) -> tuple[int, int]:
    """The release in the header of `nv config show`: `Cumulus Linux 5.15.0`. (0, 0) if it has none."""
    match = re.search(r"(\d+)\.(\d+)", str(header.get("version", "")))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def tree(fabric: Tree, ports: list[dict[str, Any]], header: Tree | None = None) -> Tree:
    """Render the intent, in the form of NVUE's `set`, for the release that the header names."""
    roce, ecn = fabric["roce"], fabric["roce"]["ecn"]
    dog, headroom = roce["pfc"].get("watchdog"), roce.get("headroom")
    congestion = {
        "ecn": "enable",
        "red": "disable",
        "min-threshold": ecn["min_bytes"],
        "max-threshold": ecn["max_bytes"],
        "probability": ecn["mark_percent"],
    }
    on = {"state": "enabled"} if release(header or {}) >= _STATE_SINCE else {"enable": "on"}
    port: Tree = {
        "link": {"mtu": fabric["mtu_bytes"]["link"]},
        "qos": {"congestion-control": {"profile": PROFILE}},
    }
    qos: Tree = {
        "roce": {**on, "mode": "lossless"},
        "congestion-control": {PROFILE: {"traffic-class": {str(roce["traffic_class"]): congestion}}},
    }
    if length := _cable_m(ports, headroom):
        qos["roce"]["cable-length"] = length
    if dog:
        # The watchdog acts after `robustness` intervals.
        intervals, rest = divmod(dog["detect_ms"], _POLL_MS)
        times = (dog["detect_ms"], 1) if rest else (_POLL_MS, intervals)
        qos["pfc-watchdog"] = dict(zip(("polling-interval", "robustness"), times, strict=True))
        port["qos"]["pfc-watchdog"] = {"state": "enable"}
    return {"qos": qos, "interface": {entry["port"]: port for entry in ports}}


def _cable_m(ports: list[dict[str, Any]], headroom: Tree | None) -> int | None:
    """Return the longest cable, metres: NVUE has one length for the whole switch. None: nothing is stated.

    A port without a length of its own has the intent's, or what the switch has of itself.
    """
    lengths = [entry["cable_m"] for entry in ports if entry.get("cable_m")]
    if headroom:
        return max([headroom["cable_m"], *lengths])
    return max([_CABLE_M, *lengths]) if lengths else None


def difference(wanted: Tree, found: Tree) -> Tree:
    """Leaves that differ, in people's words, and what the switch has at the wanted places."""
    lines: list[str] = []
    changes: list[dict[str, str]] = []
    have = _at(wanted, found, (), lines, changes)
    _profiles(wanted, found, lines, changes)
    for change in changes:
        if change["to"] == "absent":
            change["whose"] = "other"
            continue
        taken = _qos(found, change["port"]).get("congestion-control", {})
        ours = PROFILE in change["where"].split(".") or change["from"] == PROFILE
        # A port, and the whole switch, with the role's profile is the role's.
        ours = ours or taken.get("profile") == PROFILE
        ours = ours or (
            not change["port"] and PROFILE in (found.get("qos") or {}).get("congestion-control", {})
        )
        if change["from"] == "absent":
            change["whose"] = "nobody"
        elif ours:
            change["whose"] = "role"
        else:
            factory = change["from"] in _SYSTEM.get(change["setting"], ())
            change["whose"] = "system" if factory else "other"
    return {"differences": lines, "changes": changes, "wanted": wanted, "found": have}


# One part of a key: `swp1-4`, `swp1-2s0-3`, `peerlink`, or what goes on with the part before: `20`, `s5-6`.
_PART = re.compile(
    r"(?P<head>[A-Za-z]*?)(?P<first>\d{1,6})(-(?P<last>\d{1,6}))?(s(?P<sub>\d{1,6})(-(?P<to>\d{1,6}))?)?"
)
_NAME = re.compile(r"([A-Za-z]*?)(\d{1,6})(?:s(\d{1,6}))?")


def _of(tree: Tree, name: str) -> object:
    """Return what a tree has under a name. NVUE shows what is alike once: `swp1-4`, `lo,swp51-54,vlan10`."""
    found: object = None
    for key, value in tree.items():
        if key != name and _covers(str(key), name):
            found = _merged(found, value)
    return _merged(found, tree.get(name))


def _covers(key: str, name: str) -> bool:
    """Whether a key such as `swp1-2s0-1,15s0-2,swp20s3,s5-6` names this one."""
    wanted = _NAME.fullmatch(name)
    if not wanted:
        return name in key.split(",")
    head, number, sub = wanted[1], int(wanted[2]), wanted[3]
    here, first, last = "", 0, -1
    for part in key.split(","):
        match = _PART.fullmatch(part)
        if not match:
            here, first, last = "", 0, -1
            continue
        low, high = match["sub"], match["to"]
        if match["head"] == "s" and low is None and last >= first:  # `s5-6` of the port before
            low, high = match["first"], match["last"]
        else:
            here = match["head"] or here
            first, last = int(match["first"]), int(match["last"] or match["first"])
        subs = (
            (sub is None) if low is None else (sub is not None and int(low) <= int(sub) <= int(high or low))
        )
        if here == head and first <= number <= last and subs:
            return True
    return False


def _merged(one: object, other: object) -> object:
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _merged(one.get(key), other.get(key)) for key in {**one, **other}}
    return one if other is None else other


def _qos(found: Tree, port: str) -> Tree:
    """Return a port's own part of `qos`; nothing for no port."""
    own = _of(found.get("interface") or {}, port) if port else None
    qos = own.get("qos") if isinstance(own, dict) else None
    return qos if isinstance(qos, dict) else {}


def _profiles(wanted: Tree, found: Tree, lines: list[str], changes: list[dict[str, str]]) -> None:
    """Name the QoS profiles of our ports' own: each stands in the place of a part of `qos roce` there."""
    for port in wanted["interface"]:
        qos = _qos(found, port)
        for kind in OF_A_PORT:
            profile = qos[kind].get("profile") if isinstance(qos.get(kind), dict) else None
            if profile is not None:
                place = f"interface.{port}.qos.{kind}"
                lines.append(f"{place}.profile: {profile} -> absent")
                changes.append(
                    {"port": port, "setting": "profile", "where": place, "from": str(profile), "to": "absent"}
                )


def _at(
    wanted: object, found: object, where: tuple[str, ...], lines: list[str], changes: list[dict[str, str]]
) -> object:
    if isinstance(wanted, dict):
        below = found if isinstance(found, dict) else {}
        return {
            key: _at(value, _of(below, key), (*where, key), lines, changes) for key, value in wanted.items()
        }
    # NVUE prints numbers as numbers or as text, depending on the release.
    if str(found) != str(wanted):
        was = "absent" if found is None else str(found)
        lines.append(f"{'.'.join(where)}: {was} -> {wanted}")
        port = where[1] if where[0] == "interface" else ""
        place = ".".join(where[:-1])
        to = "not set" if wanted is None else str(wanted)
        changes.append({"port": port, "setting": where[-1], "where": place, "from": was, "to": to})
    return found


def undo(now: list[Tree], before: list[Tree], wanted: Tree, stored: list[Tree]) -> Tree:
    """What takes this role's settings back out, leaf by leaf, and what others changed meanwhile.

    Args:
        now: `nv config show` as it stands.
        before: the same before the change.
        wanted: what was set.
        stored: the same right after it was set; only leaves of ours are looked up in it.

    Returns:
        patch (for `nv config patch`; empty: nothing of ours stands), left (others' leaves, no values).
    """
    has, had, told = (_leaves(_set(document)) for document in (now, before, stored))
    ours = _leaves(wanted)
    back: dict[tuple[str, ...], object] = {}
    left = []
    for path in sorted({*has, *had, *ours}):
        is_, was = has.get(path), had.get(path)
        if str(is_) == str(was) or any(p[: len(path)] == path and len(p) > len(path) for p in (*has, *had)):
            continue  # alike, or an empty part that has something in it on the other side
        if path not in ours or str(is_) not in (str(ours[path]), str(told.get(path))):
            left.append(_shown(path))
            continue
        back[path] = was
    if users := [path for path, value in has.items() if _names_ours(path, value) and path not in back]:
        gone = [path for path, was in back.items() if list(path[:3]) == _OUR_PROFILE and was is None]
        back = {path: was for path, was in back.items() if path not in gone}
        left += [f"{'.'.join(_OUR_PROFILE)} (in use: {'.'.join(users[0])})"] if gone else []
    return {"patch": _patch(back), "left": left}


# NVUE has communities for keys: what stands below a word for a secret may be one.
_SECRET = re.compile(r"communit|passw|passphrase|secret|token|psk|(^|[-_])key")


def _shown(path: tuple[str, ...]) -> str:
    """A leaf's place, without what may be a secret in it."""
    named = next((n for n, key in enumerate(path, 1) if _SECRET.search(key.lower())), len(path))
    return ".".join((*path[:named], "***") if path[named:] else path)


def patch(wanted: Tree) -> list[Tree]:
    """What `nv config patch` takes: the settings, and those that are to be unset (None)."""
    return _patch(_leaves(wanted))


def _patch(leaves: dict[tuple[str, ...], object]) -> list[Tree]:
    out: Tree = {"unset": {}, "set": {}}
    for path, value in leaves.items():
        here = out["unset" if value is None else "set"]
        for key in path[:-1]:
            here = here.setdefault(key, {})
        here[path[-1]] = {} if value is None else value
    return [{kind: tree_} for kind, tree_ in out.items() if tree_]


def original(document: list[Tree], wanted: Tree) -> dict[str, object]:
    """The settings that a change may touch, as they stood before it: as JSON lists of keys. None: not set."""
    had = _leaves(_set(document))
    return {json.dumps(path): had.get(path) for path in _leaves(wanted)}


def set_since(now: list[Tree], before: list[Tree]) -> Tree:
    """What a configuration has otherwise than an earlier one, as `wanted`."""
    has, had = _leaves(_set(now)), _leaves(_set(before))
    return back(
        {json.dumps(p): has.get(p) for p in sorted({*has, *had}) if str(has.get(p)) != str(had.get(p))}
    )


def back(kept: dict[str, object], found: Tree | None = None) -> Tree:
    """The settings to have on the way back to an original. A profile that others' ports name by now stays."""
    tree_: Tree = {}
    stays_ = bool(stays(kept, found or {}))
    for name, value in kept.items():
        path = json.loads(name)
        if stays_ and path[:3] == _OUR_PROFILE and value is None:
            continue
        here = tree_
        for key in path[:-1]:
            here = here.setdefault(key, {})
        here[path[-1]] = value
    return tree_


_OUR_PROFILE = ["qos", "congestion-control", PROFILE]


def _names_ours(path: tuple[str, ...], value: object) -> bool:
    """Whether a leaf is a port's use of the profile."""
    of_a_port = path[:1] == ("interface",) and path[2:] == ("qos", "congestion-control", "profile")
    return of_a_port and value == PROFILE


def stays(kept: dict[str, object], found: Tree) -> list[str]:
    """The profile of ours that `back` leaves, and for whom."""
    ours = [json.loads(name) for name in kept]
    users = [
        ".".join(path)
        for path, value in _leaves(found).items()
        if _names_ours(path, value) and list(path) not in ours
    ]
    left = any(path[:3] == _OUR_PROFILE and kept[json.dumps(path)] is None for path in ours)
    return [f"{'.'.join(_OUR_PROFILE)} (in use: {users[0]})"] if users and left else []


def _set(document: list[Tree]) -> Tree:
    return next((part["set"] for part in document if "set" in part), {})


def _leaves(tree_: object, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], object]:
    """Every leaf by its path, a key such as `swp1-4` as each of its names. An empty part is a leaf too."""
    if not isinstance(tree_, dict) or not tree_:
        return {above: tree_}
    found: dict[tuple[str, ...], object] = {}
    for key, value in tree_.items():
        for name in _names(str(key)) if above[:1] == ("interface",) and len(above) == 1 else [str(key)]:
            found |= _leaves(value, (*above, name))
    return found


def _names(key: str) -> list[str]:
    """The names in a key such as `swp1-2s0-1,15s0-2,lo`, as `_covers` reads it."""
    names: list[str] = []
    head, ports = "", range(0)
    for part in key.split(","):
        match = _PART.fullmatch(part)
        if not match:
            names.append(part)
            head, ports = "", range(0)
            continue
        low, high = match["sub"], match["to"]
        if match["head"] == "s" and low is None and ports:  # `s5-6` of the port before
            low, high = match["first"], match["last"]
        else:
            head = match["head"] or head
            ports = range(int(match["first"]), int(match["last"] or match["first"]) + 1)
        subs = [""] if low is None else [f"s{sub}" for sub in range(int(low), int(high or low) + 1)]
        names += [f"{head}{port}{sub}" for port in ports for sub in subs]
    return names


def pending(revisions: Tree, controller: str) -> Tree:
    """The revisions that wait to be confirmed, from `nv config revision -o json`: ours by their message."""
    waiting = {
        name: one
        for name, one in revisions.items()
        if isinstance(one, dict) and one.get("state") == "confirm"
    }
    own = [name for name, one in waiting.items() if f"shakedown on {controller}" in _told(one, "message")]
    return {
        "own": own[0] if own else "",
        "strangers": [
            f"revision {name} of {', '.join(_told(one, 'user')) or 'a user that the switch does not tell'}"
            + "".join(f" ({text})" for text in _told(one, "message") if text.startswith("shakedown"))
            for name, one in waiting.items()
            if name not in own
        ],
        "litter": [],
    }


def _told(tree_: object, key: str) -> list[str]:
    """What a tree says under a key, at any depth: releases put it in different places."""
    if not isinstance(tree_, dict):
        return []
    own = [str(tree_[key])] if tree_.get(key) and not isinstance(tree_[key], dict) else []
    return own + [word for value in tree_.values() for word in _told(value, key)]


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
    dog = roce["pfc"].get("watchdog")
    if dog and not (_POLL_MS <= dog["detect_ms"] <= 5000 or not dog["detect_ms"] % _POLL_MS):
        reasons.append(f"cumulus: the watchdog cannot detect after {dog['detect_ms']} ms")
    return reasons


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_nvue_set": set_since,
            "roce_switch_nvue_tree": tree,
            "roce_switch_nvue_difference": difference,
            "roce_switch_nvue_refusals": refusals,
            "roce_switch_nvue_undo": undo,
            "roce_switch_nvue_patch": patch,
            "roce_switch_nvue_original": original,
            "roce_switch_nvue_back": back,
            "roce_switch_nvue_stays": stays,
            "roce_switch_nvue_pending": pending,
        }
