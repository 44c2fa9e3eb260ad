"""Jinja2 filters for community SONiC: CONFIG_DB tables from the intent, their schema, and the difference.

Table and field names are those of sonic-buildimage's qos_config.j2 and the SONiC configuration manual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Fields = dict[str, str]
Tables = dict[str, dict[str, Fields]]

MAP = "ROCE"
# What `config apply-patch` takes (sonic-utilities' generic config updater); a change of any other table
# needs the whole configuration to be loaded anew.
PATCHABLE = {"WRED_PROFILE", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP"}
LOSSLESS_QUEUE_PROFILE, LOSSY_QUEUE_PROFILE = "egress_lossless_profile", "egress_lossy_profile"


def tables(
    fabric: dict[str, Any], ports: list[dict[str, Any]], lossless: list[int], dynamic_buffers: bool
) -> Tables:
    """Render the intent. Pool and profile sizes are the platform's and never rendered."""
    roce, cnp, ecn = fabric["roce"], fabric["roce"]["cnp"], fabric["roce"]["ecn"]
    dog = roce["pfc"]["watchdog"]
    eight = [str(n) for n in range(8)]
    tc_of_dscp = {roce["dscp"]: roce["traffic_class"], cnp["dscp"]: cnp["traffic_class"]}
    queue_of_tc = {roce["traffic_class"]: roce["queue"], cnp["traffic_class"]: cnp["queue"]}
    names = [entry["port"] for entry in ports]
    enabled = ",".join(str(p) for p in lossless)
    cables = {
        entry["port"]: f"{entry.get('cable_m') or fabric['roce']['headroom']['cable_m']}m" for entry in ports
    }
    speeds = {entry["port"]: _speed(entry, fabric) for entry in ports}
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
        "CABLE_LENGTH": {"AZURE": cables},
        "PORT": {name: {"mtu": str(fabric["mtu_bytes"]["link"])} for name in names},
        "PORT_QOS_MAP": {"global": {"dscp_to_tc_map": MAP}},
        "QUEUE": {},
        "BUFFER_PG": {},
        "BUFFER_QUEUE": {},
        "PFC_WD": {"GLOBAL": {"POLL_INTERVAL": str(dog["detect_ms"])}},
    }
    for name in names:
        out["PORT_QOS_MAP"][name] = {
            "dscp_to_tc_map": MAP,
            "tc_to_queue_map": MAP,
            "tc_to_pg_map": MAP,
            "pfc_to_queue_map": MAP,
            "pfc_enable": enabled,
            "pfcwd_sw_enable": enabled,
        }
        for queue in range(8):
            out["QUEUE"][f"{name}|{queue}"] = {"scheduler": "roce.lossy"}
            is_lossless = queue in lossless
            out["BUFFER_QUEUE"][f"{name}|{queue}"] = {
                "profile": LOSSLESS_QUEUE_PROFILE if is_lossless else LOSSY_QUEUE_PROFILE
            }
            if is_lossless:
                profile = f"pg_lossless_{speeds[name]}_{cables[name]}_profile"
                out["BUFFER_PG"][f"{name}|{queue}"] = {"profile": "NULL" if dynamic_buffers else profile}
        out["QUEUE"][f"{name}|{roce['queue']}"] = {"scheduler": "roce.lossless", "wred_profile": MAP}
        out["QUEUE"][f"{name}|{cnp['queue']}"] = {"scheduler": "roce.cnp"}
        out["PFC_WD"][name] = {
            "action": dog["action"],
            "detection_time": str(dog["detect_ms"]),
            "restoration_time": str(dog["restore_ms"]),
        }
    return out


def _speed(entry: dict[str, Any], fabric: dict[str, Any]) -> int:
    """A port's rate as CONFIG_DB has it, in Mbit/s; a port with a host has the fabric's."""
    return int((entry.get("speed_gbps") or fabric["link_speed_gbps"]) * 1000)


# (table, field): the table that the field's value names a key of.
_REFERENCES = {
    ("PORT_QOS_MAP", "dscp_to_tc_map"): "DSCP_TO_TC_MAP",
    ("PORT_QOS_MAP", "tc_to_queue_map"): "TC_TO_QUEUE_MAP",
    ("PORT_QOS_MAP", "tc_to_pg_map"): "TC_TO_PRIORITY_GROUP_MAP",
    ("PORT_QOS_MAP", "pfc_to_queue_map"): "MAP_PFC_PRIORITY_TO_QUEUE",
    ("QUEUE", "scheduler"): "SCHEDULER",
    ("QUEUE", "wred_profile"): "WRED_PROFILE",
    ("BUFFER_QUEUE", "profile"): "BUFFER_PROFILE",
}
_EIGHT = {str(n) for n in range(8)}
# Map tables: the keys that every map must have, and the values it may have.
_MAPS = {
    "DSCP_TO_TC_MAP": ({str(n) for n in range(64)}, _EIGHT),
    "TC_TO_QUEUE_MAP": (_EIGHT, _EIGHT),
    "TC_TO_PRIORITY_GROUP_MAP": (_EIGHT, _EIGHT),
    "MAP_PFC_PRIORITY_TO_QUEUE": (_EIGHT, _EIGHT),
}


def schema_errors(wanted: Tables, found: Tables) -> list[str]:
    """What SONiC would not hold, or misread. A name may also resolve to what the switch already has."""
    errors = []
    for table, (keys, values) in _MAPS.items():
        for name, entries in wanted.get(table, {}).items():
            if set(entries) != keys:
                errors.append(f"{table}|{name}: keys {_short(set(entries) ^ keys)} missing or unknown")
            if set(entries.values()) - values:
                errors.append(f"{table}|{name}: values {_short(set(entries.values()) - values)} out of range")
    known_ports = set(found.get("PORT", {}))
    for table, key, fields in _rows(wanted):
        port, _, number = key.partition("|")
        if table in ("QUEUE", "BUFFER_PG", "BUFFER_QUEUE") and number not in _EIGHT:
            errors.append(f"{table}|{key}: {number or 'no number'} is no queue or priority group")
        if port.startswith("Ethernet") and port not in known_ports:
            errors.append(f"{table}|{key}: the switch has no port {port}")
        for field, value in fields.items():
            target = _REFERENCES.get((table, field))
            if target and value not in {**wanted.get(target, {}), **found.get(target, {})}:
                errors.append(f"{table}|{key}: {field} {value!r} is not in {target}")
    for name, profile in wanted.get("WRED_PROFILE", {}).items():
        low, high, share = (
            int(profile[f"green_{f}"]) for f in ("min_threshold", "max_threshold", "drop_probability")
        )
        if not 0 < low < high or not 0 < share <= 100:
            errors.append(
                f"WRED_PROFILE|{name}: thresholds {low}, {high} or probability {share} out of range"
            )
    return errors


def difference(wanted: Tables, found: Tables) -> dict[str, Any]:
    """Rows and fields that differ, in people's words, and whether `config apply-patch` can bring them.

    Only wanted rows are looked at; fields that a wanted row has beside the wanted ones are too much, except
    in PORT and CABLE_LENGTH, where most of a row is not ours.
    """
    lines: list[str] = []
    tables_hit: set[str] = set()
    patch: list[dict[str, Any]] = []
    for table, key, fields in _rows(wanted):
        have = found.get(table, {}).get(key)
        shared = table in ("PORT", "CABLE_LENGTH")
        for field, value in sorted(fields.items()):
            if have is None or have.get(field) != value:
                was = "absent" if have is None else have.get(field, "absent")
                lines.append(f"{table}|{key} {field}: {was} -> {value}")
                tables_hit.add(table)
        extra = set() if shared or have is None else set(have) - set(fields)
        for field in sorted(extra):
            lines.append(f"{table}|{key} {field}: {have[field] if have else ''} -> absent")
            tables_hit.add(table)
        if have != fields and table in PATCHABLE:
            if table not in found and not any(p["path"] == f"/{table}" for p in patch):
                patch.append({"op": "add", "path": f"/{table}", "value": {}})
            patch.append({"op": "add", "path": f"/{table}/{_escaped(key)}", "value": fields})
    here = {t: {k: found[t][k] for k in rows if k in found.get(t, {})} for t, rows in wanted.items()}
    return {
        "differences": lines,
        "patchable": tables_hit <= PATCHABLE,
        "patch": patch,
        "wanted": wanted,
        "found": here,
    }


def merged(wanted: Tables, found: Tables) -> Tables:
    """The whole CONFIG_DB as it must be: what is found, with the wanted rows in place of theirs."""
    out: Tables = {table: dict(rows) for table, rows in found.items()}
    for table, key, fields in _rows(wanted):
        rows = out.setdefault(table, {})
        rows[key] = {**rows.get(key, {}), **fields} if table in ("PORT", "CABLE_LENGTH") else dict(fields)
    return out


def _rows(tables_: Tables) -> Iterable[tuple[str, str, Fields]]:
    for table, rows in sorted(tables_.items()):
        for key, fields in sorted(rows.items()):
            yield table, key, fields


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")  # RFC 6901


def _short(values: set[str]) -> str:
    some = sorted(values)
    return ", ".join(some[:4]) + (f" and {len(some) - 4} more" if len(some) > 4 else "")


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_sonic_tables": tables,
            "roce_switch_sonic_schema_errors": schema_errors,
            "roce_switch_sonic_difference": difference,
            "roce_switch_sonic_merged": merged,
        }
