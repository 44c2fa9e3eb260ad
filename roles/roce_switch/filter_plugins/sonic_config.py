"""Jinja2 filters for community SONiC: CONFIG_DB tables from the intent, their schema, and the difference.

Table and field names are those of sonic-buildimage's qos_config.j2 and the SONiC configuration manual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Fields = dict[str, str]
Tables = dict[str, dict[str, Fields]]

MAP = "ROCE"
LOSSLESS_QUEUE_PROFILE = "egress_lossless_profile"
# As platforms call it: sonic-buildimage's buffers_defaults of Broadcom, and of Mellanox.
LOSSY_QUEUE_PROFILES = ("egress_lossy_profile", "q_lossy_profile")
POOL = "ingress_lossless_pool"  # buffermgr.h, INGRESS_LOSSLESS_PG_POOL_NAME


def tables(
    fabric: dict[str, Any],
    ports: list[dict[str, Any]],
    lossless: list[int],
    found: Tables | None = None,
    lookup: str = "",
) -> Tables:
    """Render the intent for one switch. Pool and profile sizes are the platform's own.

    Args:
        fabric: the intent.
        ports: the ports to configure; no other port's rows and no row of the whole switch are rendered.
        lossless: the priorities that PFC protects.
        found: its CONFIG_DB. It tells the buffer model, each port's speed and the platform's profiles.
        lookup: the text of the platform's pg_profile_lookup.ini, from which buffermgrd takes the sizes.
    """
    roce, cnp, ecn = fabric["roce"], fabric["roce"]["cnp"], fabric["roce"]["ecn"]
    found = found or {}
    dog = roce["pfc"].get("watchdog")  # without times in the intent the watchdog is left as it is
    eight = [str(n) for n in range(8)]
    tc_of_dscp = {roce["dscp"]: roce["traffic_class"], cnp["dscp"]: cnp["traffic_class"]}
    queue_of_tc = {roce["traffic_class"]: roce["queue"], cnp["traffic_class"]: cnp["queue"]}
    names = [entry["port"] for entry in ports]
    enabled = ",".join(str(p) for p in lossless)
    list_name = next(iter(found.get("CABLE_LENGTH", {})), "AZURE")
    cables = {
        entry["port"]: _cable(entry, fabric, found.get("CABLE_LENGTH", {}).get(list_name, {}))
        for entry in ports
    }
    speeds = {entry["port"]: _speed(entry, fabric, found) for entry in ports}
    out: Tables = {
        "DSCP_TO_TC_MAP": {MAP: {str(d): str(tc_of_dscp.get(d, 0)) for d in range(64)}},
        "TC_TO_QUEUE_MAP": {MAP: {n: str(queue_of_tc.get(int(n), int(n))) for n in eight}},
        "TC_TO_PRIORITY_GROUP_MAP": {MAP: {n: n if int(n) in lossless else "0" for n in eight}},
        "MAP_PFC_PRIORITY_TO_QUEUE": {MAP: {n: n for n in eight}},
        "SCHEDULER": {
            "roce.lossy": {"type": "DWRR", "weight": "50"},
            "roce.lossless": {"type": "DWRR", "weight": "50"},
            "roce.cnp": {"type": "STRICT"}
            if cnp["scheduler"] == "strict"
            else {"type": "DWRR", "weight": "50"},
        },
        "WRED_PROFILE": {
            MAP: {
                "wred_green_enable": "true",
                "ecn": "ecn_all",
                "green_min_threshold": str(ecn["min_bytes"]),
                "green_max_threshold": str(ecn["max_bytes"]),
                "green_drop_probability": str(ecn["mark_percent"]),
            }
        },
        "CABLE_LENGTH": {list_name: cables},
        "PORT": {name: {"mtu": str(fabric["mtu_bytes"]["link"])} for name in names},
        "PORT_QOS_MAP": {},
        "QUEUE": {},
        "BUFFER_PG": {},
        "BUFFER_PROFILE": {},
        "BUFFER_QUEUE": {},
        "PFC_WD": {"GLOBAL": {"POLL_INTERVAL": poll_interval(dog, found)}} if dog else {},
    }
    dynamic = found.get("DEVICE_METADATA", {}).get("localhost", {}).get("buffer_model") == "dynamic"
    lossy = next((p for p in LOSSY_QUEUE_PROFILES if p in found.get("BUFFER_PROFILE", {})), None)
    for name in names:
        cable, speed = cables[name], speeds[name]
        profile = "NULL" if dynamic else f"pg_lossless_{speed}_{cable}_profile"
        sizes = None if dynamic else lossless_profile(lookup, speed, cable, found)
        if sizes and profile not in found.get("BUFFER_PROFILE", {}):
            out["BUFFER_PROFILE"][profile] = sizes
        out["PORT_QOS_MAP"][name] = {
            "dscp_to_tc_map": MAP,
            "tc_to_queue_map": MAP,
            "tc_to_pg_map": MAP,
            "pfc_to_queue_map": MAP,
            "pfc_enable": enabled,
            **({"pfcwd_sw_enable": enabled} if dog else {}),
        }
        for queue in range(8):
            out["QUEUE"][f"{name}|{queue}"] = {"scheduler": "roce.lossy"}
            if queue in lossless:
                out["BUFFER_QUEUE"][f"{name}|{queue}"] = {"profile": LOSSLESS_QUEUE_PROFILE}
                out["BUFFER_PG"][f"{name}|{queue}"] = {"profile": profile}
            else:
                # A lossy queue keeps the platform's profile, whatever its name, unless that is the lossless.
                have = covering(found.get("BUFFER_QUEUE", {}), name, queue)
                keep = have[1].get("profile") if have else None
                keep = lossy or LOSSY_QUEUE_PROFILES[0] if keep in (None, LOSSLESS_QUEUE_PROFILE) else keep
                out["BUFFER_QUEUE"][f"{name}|{queue}"] = {"profile": keep}
        out["QUEUE"][f"{name}|{roce['queue']}"] = {"scheduler": "roce.lossless", "wred_profile": MAP}
        out["QUEUE"][f"{name}|{cnp['queue']}"] = {"scheduler": "roce.cnp"}
        if dog:
            out["PFC_WD"][name] = {
                "action": dog["action"],
                "detection_time": str(dog["detect_ms"]),
                "restoration_time": str(dog["restore_ms"]),
            }
    for table, key, field, value in _undone(names, found, watched=bool(dog)):
        out.setdefault(table, {}).setdefault(key, {})[field] = value
    return out


def _undone(names: list[str], found: Tables, *, watched: bool) -> Iterable[tuple[str, str, str, str]]:
    """Yield the fields (table, key, field, value to have) with which a switch undoes what the class asks for.

    They are asked for only where they are set: no default of a release is written. sonic-swss: orchagent
    portsorch.cpp (`pfc_asym`: pauses of all priorities are obeyed), pfcwdorch.cpp (BIG_RED_SWITCH: watched
    queues drop all they get), flexcounterorch.cpp (PFCWD: the watchdog reads no counter, so sees no storm).
    """
    for name in names:
        if found.get("PORT", {}).get(name, {}).get("pfc_asym") == "on":
            yield "PORT", name, "pfc_asym", "off"
    if watched and found.get("PFC_WD", {}).get("GLOBAL", {}).get("BIG_RED_SWITCH") == "enable":
        yield "PFC_WD", "GLOBAL", "BIG_RED_SWITCH", "disable"
    polled = found.get("FLEX_COUNTER_TABLE", {}).get("PFCWD", {}).get("FLEX_COUNTER_STATUS")
    if watched and polled == "disable":
        yield "FLEX_COUNTER_TABLE", "PFCWD", "FLEX_COUNTER_STATUS", "enable"


def _cable(entry: dict[str, Any], fabric: dict[str, Any], found: Fields) -> str:
    """A link's own length, or the intent's; else what is set, or 0m, of which no platform has a profile."""
    length = entry.get("cable_m") or (fabric["roce"].get("headroom") or {}).get("cable_m")
    return f"{length}m" if length else found.get(entry["port"], "0m")


def poll_interval(dog: dict[str, Any], found: Tables) -> str:
    """Return the watchdog's interval, which is the whole switch's: the one that is set, if it fits.

    100 to 1000 ms and not above a port's times (sonic-pfcwd.yang).
    """
    most = min(dog["detect_ms"], dog["restore_ms"], 1000)
    have = found.get("PFC_WD", {}).get("GLOBAL", {}).get("POLL_INTERVAL", "")
    return have if have.isdigit() and 100 <= int(have) <= most else str(most)


def lossless_profile(lookup: str, speed: str, cable: str, found: Tables) -> Fields | None:
    """Return the buffer profile of a lossless priority group as buffermgrd makes it; None: unknown there.

    Columns of pg_profile_lookup.ini and fields of the profile: sonic-swss cfgmgr/buffermgr.cpp.
    """
    mode = found.get("BUFFER_POOL", {}).get(POOL, {}).get("mode")
    for line in lookup.splitlines():
        words = line.split()
        if mode and len(words) >= 6 and words[:2] == [speed, cable]:
            size, xon, xoff, threshold, *offset = words[2:]
            more = {"xon_offset": offset[0]} if offset else {}
            return {"pool": POOL, "xon": xon, **more, "xoff": xoff, "size": size, f"{mode}_th": threshold}
    return None


def covering(rows: dict[str, Fields], port: str, number: int) -> tuple[str, Fields] | None:
    """Return the row of a port that says something of this queue or priority group: `3`, or `3-4`."""
    for key, fields in rows.items():
        name, _, span = key.partition("|")
        if name == port and span and number in _span(span):
            return key, fields
    return None


def _span(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1) if (first + (last or first)).isdigit() else range(0)


def _speed(entry: dict[str, Any], fabric: dict[str, Any], found: Tables) -> str:
    """A port's rate as CONFIG_DB has it, in Mbit/s: the link's own, the port's, or the fabric's."""
    own = entry.get("speed_gbps")
    have = found.get("PORT", {}).get(entry["port"], {}).get("speed")
    return str(int((own or fabric["link_speed_gbps"]) * 1000)) if own or not have else have


# (table, field): the table that the field's value names a key of.
_REFERENCES = {
    ("PORT_QOS_MAP", "dscp_to_tc_map"): "DSCP_TO_TC_MAP",
    ("PORT_QOS_MAP", "tc_to_queue_map"): "TC_TO_QUEUE_MAP",
    ("PORT_QOS_MAP", "tc_to_pg_map"): "TC_TO_PRIORITY_GROUP_MAP",
    ("PORT_QOS_MAP", "pfc_to_queue_map"): "MAP_PFC_PRIORITY_TO_QUEUE",
    ("QUEUE", "scheduler"): "SCHEDULER",
    ("QUEUE", "wred_profile"): "WRED_PROFILE",
    ("BUFFER_QUEUE", "profile"): "BUFFER_PROFILE",
    ("BUFFER_PG", "profile"): "BUFFER_PROFILE",
}
# sonic-pfcwd.yang, milliseconds.
_TIMES = {"detection_time": (100, 5000), "restoration_time": (100, 60000), "POLL_INTERVAL": (100, 1000)}
_ACTIONS = ("drop", "forward", "alert")
_EIGHT = {str(n) for n in range(8)}
# Map tables: the keys that every map must have, and the values it may have.
_MAPS = {
    "DSCP_TO_TC_MAP": ({str(n) for n in range(64)}, _EIGHT),
    "TC_TO_QUEUE_MAP": (_EIGHT, _EIGHT),
    "TC_TO_PRIORITY_GROUP_MAP": (_EIGHT, _EIGHT),
    "MAP_PFC_PRIORITY_TO_QUEUE": (_EIGHT, _EIGHT),
}


def _map_errors(wanted: Tables) -> list[str]:
    errors = []
    for table, (keys, values) in _MAPS.items():
        for name, entries in wanted.get(table, {}).items():
            if set(entries) != keys:
                errors.append(f"{table}|{name}: keys {_short(set(entries) ^ keys)} missing or unknown")
            if set(entries.values()) - values:
                errors.append(f"{table}|{name}: values {_short(set(entries.values()) - values)} out of range")
    return errors


def schema_errors(wanted: Tables, found: Tables) -> list[str]:
    """What SONiC would not hold, or misread. A name may also resolve to what the switch already has."""
    errors = _map_errors(wanted)
    known_ports = set(found.get("PORT", {}))
    for table, key, fields in _rows(wanted):
        port, _, number = key.partition("|")
        if table in ("QUEUE", "BUFFER_PG", "BUFFER_QUEUE") and number not in _EIGHT:
            errors.append(f"{table}|{key}: {number or 'no number'} is no queue or priority group")
        if port.startswith("Ethernet") and port not in known_ports:
            errors.append(f"{table}|{key}: the switch has no port {port}")
        for field, value in fields.items():
            target = _REFERENCES.get((table, field))
            if (
                target
                and value != "NULL"
                and value not in {**wanted.get(target, {}), **found.get(target, {})}
            ):
                errors.append(f"{table}|{key}: {field} {value!r} is not in {target}")
            low, high = _TIMES.get(field, (0, 0)) if table == "PFC_WD" else (0, 0)
            if high and not low <= int(value) <= high:
                errors.append(f"{table}|{key}: {field} {value} ms is not {low} to {high} ms")
            if (table, field) == ("PFC_WD", "action") and value not in _ACTIONS:
                errors.append(f"{table}|{key}: action {value!r} is none of {', '.join(_ACTIONS)}")
    for name, profile in wanted.get("WRED_PROFILE", {}).items():
        low, high, share = (
            int(profile[f"green_{f}"]) for f in ("min_threshold", "max_threshold", "drop_probability")
        )
        if not 0 < low < high or not 0 < share <= 100:
            errors.append(
                f"WRED_PROFILE|{name}: thresholds {low}, {high} or probability {share} out of range"
            )
    return errors


def _rows(tables_: Tables) -> Iterable[tuple[str, str, Fields]]:
    for table, rows in sorted(tables_.items()):
        for key, fields in sorted(rows.items()):
            yield table, key, fields


def _short(values: set[str]) -> str:
    some = sorted(values)
    return ", ".join(some[:4]) + (f" and {len(some) - 4} more" if len(some) > 4 else "")


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {"roce_switch_sonic_tables": tables, "roce_switch_sonic_schema_errors": schema_errors}
