"""Jinja2 filters for community SONiC: what differs, whose it is, and which way brings it.

Three ways. `load` writes fields of rows that are there (`config load`, sonic-utilities config/main.py): the
daemons take them in passing, and no release's patch validator is asked, which refuses WRED_PROFILE before
202511 and PFC_WD on hardware that it does not list (gcu_field_operation_validators.conf.json). `patch` is
`config apply-patch`; it takes a port down while its queues change (patch_sorter.py, RequiredValueIdentifier).
Everything else needs `config reload`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Fields = dict[str, str]
Tables = dict[str, dict[str, Fields]]
Change = dict[str, str]

LOADABLE = {"PORT", "WRED_PROFILE", "PFC_WD", "FLEX_COUNTER_TABLE"}
PATCHABLE = {"QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP"}
# Tables of which a row may hold fields of somebody else; a range of queues may stand in a row of RANGED.
SHARED = {"PORT", "CABLE_LENGTH", "PORT_QOS_MAP", "PFC_WD", "BUFFER_PROFILE", "FLEX_COUNTER_TABLE"}
RANGED = ("QUEUE", "BUFFER_QUEUE", "BUFFER_PG")
OURS = re.compile(r"ROCE|roce\.(lossy|lossless|cnp)")
# What SONiC itself writes when nothing was configured: qos_config.j2, buffers_config.j2, sonic-port.yang,
# buffermgrd, and `pfcwd start_default` (sonic-utilities pfcwd/main.py).
_FACTORY = re.compile(
    r"AZURE.*|scheduler\.\d|(egress|ingress)_loss(y|less)_profile|q_lossy_profile|pg_lossless_\w+_profile|NULL"
)
_FACTORY_VALUES = {
    ("PORT", "mtu"): {"9100"},
    ("PORT_QOS_MAP", "pfc_enable"): {"", "3,4"},
    ("PORT_QOS_MAP", "pfcwd_sw_enable"): {"", "3,4"},
    ("PFC_WD", "detection_time"): {"200", "400"},
    ("PFC_WD", "restoration_time"): {"200", "400"},
    ("PFC_WD", "action"): {"drop"},
    ("PFC_WD", "POLL_INTERVAL"): {"200", "400"},
}
_CABLES = {"0m", "5m", "40m", "300m"}  # those of buffers_config.j2 and of the platforms' tables


def difference(
    wanted: Tables, found: Tables, effective: list[str] | None = None, golden: Tables | None = None
) -> dict[str, Any]:
    """Compare, row by row.

    Args:
        wanted: the rows to have.
        found: the switch's CONFIG_DB.
        effective: what its other databases say did not come about (filter roce_switch_sonic_effective).
        golden: the rows that the role writes, where `wanted` is the way back: what stands so is the role's.

    Returns:
        differences (lines), changes (the table: port, setting, from, to, whose), way (load, patch or reload),
        patch, load and unload (for those ways), dropped (rows that a single row replaces), `wanted` and
        `found`.
    """
    changes: list[Change] = []
    hit: dict[str, set[str]] = {}
    patch: list[dict[str, Any]] = []
    load: Tables = {}
    unload: Tables = {}
    new_rows = False
    split = _split(wanted, found)
    for (table, key), fields in split.items():
        changes.append(_change(table, key, "", _told(fields), "absent", found))
        hit.setdefault(table, set()).add(key)
        patch.append({"op": "remove", "path": f"/{table}/{_escaped(key)}"})
    for table, key, fields in _rows(wanted):
        have = _row(found, table, key, split)
        if fields is None:  # on the way back: the row was not there
            have = found.get(table, {}).get(key)
            if have is not None:
                changes.append(_change(table, key, "", _told(have), "absent", found))
                hit.setdefault(table, set()).add(key)
                patch.append({"op": "remove", "path": f"/{table}/{_escaped(key)}"})
                new_rows = True
            continue
        other = {f: (have or {}).get(f) for f, value in fields.items() if (have or {}).get(f) != value}
        extra = {} if table in SHARED or have is None else {f: v for f, v in have.items() if f not in fields}
        for field, was in sorted({**other, **extra}.items()):
            to = fields.get(field) or "absent"
            changes.append(_change(table, key, field, "absent" if was is None else was, to, found))
            hit.setdefault(table, set()).add(key)
            if was is None or field in extra or fields.get(field) is None:
                new_rows = True
            load.setdefault(table, {}).setdefault(key, {})[field] = to
            unload.setdefault(table, {}).setdefault(key, {})[field] = was or ""
        if (other or extra) and table in PATCHABLE:
            if table not in found and not any(p["path"] == f"/{table}" for p in patch):
                patch.append({"op": "add", "path": f"/{table}", "value": {}})
            value = _given({**(have or {}), **fields} if table in SHARED else fields)
            patch.append({"op": "add", "path": f"/{table}/{_escaped(key)}", "value": value})
    _made_by_the_role(changes, found, golden or {})
    # What was not even asked for cannot have come about.
    missing = [] if changes else list(effective or [])
    way = "reload"
    if hit and set(hit) <= LOADABLE and not new_rows:
        way = "load"
    elif hit and set(hit) <= PATCHABLE:
        way = "patch"
    return {
        "differences": [f"{c['where']} {c['setting']}: {c['from']} -> {c['to']}" for c in changes] + missing,
        "changes": changes,
        "way": way,
        "patch": patch,
        "load": load,
        "unload": unload,
        "wanted": wanted,
        "found": {
            t: {k: r for k in rows if (r := _row(found, t, k, {})) is not None} for t, rows in wanted.items()
        },
        "effective": missing,
    }


def _made_by_the_role(changes: list[Change], found: Tables, golden: Tables) -> None:
    """Say of what stands as the role writes it, or as buffermgrd then does, that it is nobody else's."""
    for one in changes:
        table, _, key = one["where"].partition("|")
        made, has = golden.get(table, {}).get(key), found.get(table, {}).get(key)
        if made and (has == made if one["setting"] == "row" else made.get(one["setting"]) == one["from"]):
            one["whose"] = "role"
        elif one["to"] == "absent" and _BUFFERMGRD.fullmatch(key):
            one["whose"] = "system"


def merged(wanted: Tables, found: Tables) -> Tables:
    """The whole CONFIG_DB as it must be: what is found, with the wanted rows in place of theirs."""
    split = _split(wanted, found)
    out: Tables = {
        table: {key: dict(row) for key, row in rows.items() if (table, key) not in split}
        for table, rows in found.items()
    }
    # What a range said of a queue of which nothing is wanted must not be lost with it.
    for (table, key), fields in split.items():
        for number in _span(key):
            out[table].setdefault(f"{key.partition('|')[0]}|{number}", dict(fields))
    for table, key, fields in _rows(wanted):
        if table in RANGED and key not in out.get(table, {}) and _row(found, table, key, split) == fields:
            continue  # a range says it already
        rows = out.setdefault(table, {})
        if fields is None:
            rows.pop(key, None)
            continue
        rows[key] = _given({**rows.get(key, {}), **fields} if table in SHARED else fields)
        if not rows[key]:
            del rows[key]
    return {table: rows for table, rows in out.items() if rows or found.get(table) == {}}


def _given(fields: dict[str, Any]) -> Fields:
    """A row without the fields that are to be absent."""
    return {field: value for field, value in fields.items() if value is not None}


def original(found: Tables, wanted: Tables) -> dict[str, Any]:
    """The rows that a change may touch, as they stood before it. None: a row, or a field, was not there."""
    kept: dict[str, Any] = {}
    made = merged(wanted, found)
    for table in sorted({*wanted, *made}):
        old, new = found.get(table, {}), made.get(table, {})
        for key in sorted({*wanted.get(table, {}), *(k for k in {*old, *new} if old.get(k) != new.get(k))}):
            row = old.get(key)
            if table in SHARED and key in wanted.get(table, {}):
                row = {field: (row or {}).get(field) for field in wanted[table][key]}
            kept[f"{table}|{key}"] = row
    return kept


# Which table's row a field names by its key. A field of a later release may name any.
_NAMES = {
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
    "profile": "BUFFER_PROFILE",
    "profile_list": "BUFFER_PROFILE",
    **{table.lower(): table for table in ("DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "SCHEDULER", "WRED_PROFILE")},
}


def _user(table: str, key: str, rows: Iterable[tuple[str, str, Fields]]) -> str:
    """The row, and its field, that makes use of this one; "" if none does."""
    for other, at, fields in rows if table in _NAMES.values() else ():
        for field, value in fields.items():
            # Earlier releases name the table, too: [WRED_PROFILE|ROCE].
            named = {one.strip("[] ").rpartition("|")[2] for one in str(value).split(",")}
            if key in named and _NAMES.get(field.removeprefix("decap_"), table) == table:
                return f"{other}|{at} {field}"
    return ""


def in_use(kept: dict[str, Any], found: Tables) -> dict[str, str]:
    """The rows that were not there before, and of which others' rows make use by now: by name, whose row."""
    users = [row for row in _rows(found) if f"{row[0]}|{row[1]}" not in kept]
    there = [name.partition("|") for name, row in kept.items() if not _given(row or {})]
    told = {
        f"{table}|{key}": _user(table, key, users) for table, _, key in there if key in found.get(table, {})
    }
    return {name: user for name, user in told.items() if user}


def back(kept: dict[str, Any], found: Tables) -> dict[str, Any]:
    """The rows to have on the way back to an original. What others' rows name by now stays."""
    tables: dict[str, Any] = {}
    used = in_use(kept, found)
    for name, row in kept.items():
        if name not in used:
            table, _, key = name.partition("|")
            tables.setdefault(table, {})[key] = row
    return tables


def stays(kept: dict[str, Any], found: Tables) -> list[str]:
    """What `back` leaves, and for whom."""
    return [f"{name} (in use: {user})" for name, user in in_use(kept, found).items()]


def unsaved(running: Tables, startup: Tables) -> list[str]:
    """Name the tables in which the running and the start-up configuration differ: somebody's unsaved work.

    Rows that buffermgrd writes by itself do not count.
    """
    return [
        table
        for table in sorted({*running, *startup})
        if _kept(table, running.get(table, {})) != _kept(table, startup.get(table, {}))
    ]


# How buffermgrd calls the profiles that it makes by itself.
_BUFFERMGRD = re.compile(r"pg_lossless_\w+_profile")


def _kept(table: str, rows: dict[str, Any]) -> dict[str, Any]:
    if table == "BUFFER_PROFILE":
        return {key: row for key, row in rows.items() if not _BUFFERMGRD.fullmatch(key)}
    if table == "BUFFER_PG":
        return {key: row for key, row in rows.items() if not _BUFFERMGRD.fullmatch(str(row.get("profile")))}
    return rows


def undo(now: Tables, before: Tables, wanted: Tables, stored: Tables | None = None) -> dict[str, Any]:
    """What takes this role's rows back out, field by field, and what others changed meanwhile.

    Args:
        now: the configuration as it stands.
        before: the configuration before the change.
        wanted: the rows that were written.
        stored: what the switch made of them, read at once; only tables of ours are looked up in it.

    Returns:
        target (the configuration without our rows), rows and patch (those that change), and left (what is
        neither the old one nor ours, without its values).
    """
    made = merged(wanted, before)
    target = {table: dict(rows) for table, rows in now.items()}
    left: list[str] = []
    rows: Tables = {}
    patch: list[dict[str, Any]] = []
    for table in sorted({*before, *made, *now}):
        told = (stored or {}).get(table, {}) if table in wanted else {}
        old, new, has = (one.get(table, {}) for one in (before, made, now))
        for key in sorted({*old, *new, *has}):
            if old.get(key) == new.get(key) and not _kept(table, {key: has.get(key, old.get(key))}):
                continue  # buffermgrd's own
            was, ours, is_ = old.get(key), new.get(key), has.get(key)
            back, others = _back(was, ours, is_, told.get(key))
            if back is None and is_ and (user := _user(table, key, _not_ours(now, before, wanted))):
                back, others = is_, [*others, f"(in use: {user})"]
            left += [f"{table}|{key}{' ' * bool(o)}{o}" if table in wanted else table for o in others]
            if back == is_:
                continue
            if back is None:
                del target[table][key]
            else:
                target.setdefault(table, {})[key] = back
            rows.setdefault(table, {})[key] = back or {}
            op = {"op": "remove"} if back is None else {"op": "add", "value": back}
            patch.append({**op, "path": f"/{table}/{_escaped(key)}"})
        if table in target and not target[table] and table not in before:
            del target[table]
    return {"target": target, "rows": rows, "patch": patch, "left": sorted(set(left))}


def _not_ours(now: Tables, before: Tables, wanted: Tables) -> Iterable[tuple[str, str, Fields]]:
    """Yield what stands otherwise than before, and not by this role."""
    for table, key, fields in _rows(now):
        ours, was = wanted.get(table, {}).get(key, {}), before.get(table, {}).get(key, {})
        yield table, key, {f: v for f, v in fields.items() if v not in (ours.get(f), was.get(f))}


def _back(
    was: Fields | None, ours: Fields | None, is_: Fields | None, told: Fields | None
) -> tuple[Fields | None, list[str]]:
    """What a row goes back to, and which of its fields somebody else changed ("": the row itself)."""
    if is_ in (was, ours) or (is_ is not None and is_ == told):
        return was, []
    if was is None or ours is None or is_ is None:
        return is_, [""]
    back, others = dict(is_), []
    for field in {*was, *ours, *is_}:
        if is_.get(field) not in (was.get(field), ours.get(field), (told or {}).get(field)):
            others.append(field)
        elif was.get(field) is None:
            back.pop(field, None)
        else:
            back[field] = was[field]
    return back, others


_GOES_BACK = re.compile(
    r"\bconfig (reload|rollback|replace|load\w*|apply-patch)\b|config_db\.json"
    r"|(?<![\w-])(reboot|shutdown)(?![\w-])"
)


def pending(printed: str, controller: str) -> dict[str, Any]:
    """The timers that may change the configuration, from `systemctl list-units --type=timer`, `ls`, the link.

    A transient timer's description is its command. The role's own trial is one whose record lies there, with
    this machine for its owner; a record without one is of an earlier release.
    """
    timers = re.findall(r"(?m)^\s*(\S+)\.timer\s+\S+\s+\S+\s+\S+\s+(.*)$", printed)
    owner = "".join(re.findall(r"(?m)^owner=(\S+)", printed))
    recorded = {"roce-trial.json", "before-roce.json"} <= set(printed.split())
    strangers = [
        f"timer {name} ({found[0]})"
        for name, what in timers
        if name != "shakedown-undo" and (found := _GOES_BACK.search(what))
    ]
    if owner not in ("", controller):
        strangers.append(
            f"the one of a run on {owner} (if that run is gone, and its timer: rm roce-trial.owner)"
        )
    elif not recorded:
        strangers += [f"timer {name}, without its record" for name, _ in timers if name == "shakedown-undo"]
    own = recorded and owner in ("", controller)
    return {"own": "shakedown-undo" if own else "", "strangers": strangers, "litter": []}


def unknown_timers(printed: str) -> list[str]:
    """The timers that somebody set by hand, whose command, such as a script, does not tell what it does."""
    timers = re.findall(r"(?m)^\s*(\S+)\.timer\s+\S+\s+\S+\s+\S+\s+(.*)$", printed)
    # systemd-run names them run-..., and describes them by what they run; a unit's own description is prose.
    return [
        f"{name} ({' '.join(what.split()[:4])[:60]})"
        for name, what in timers
        if (re.fullmatch(r"run-[a-z]\w+", name) or re.match(r"(\[systemd-run\] )?/", what))
        and name != "shakedown-undo"
        and not _GOES_BACK.search(what)
    ]


def _split(wanted: Tables, found: Tables) -> dict[tuple[str, str], Fields]:
    """Ranges (`Ethernet0|3-4`) that say something else of a queue than what is wanted."""
    out = {}
    for table in RANGED:
        for key, fields in found.get(table, {}).items():
            port = key.partition("|")[0]
            numbers = _span(key)
            if len(numbers) < 2:
                continue
            said = [wanted.get(table, {}).get(f"{port}|{number}") for number in numbers]
            single = [f"{port}|{number}" in found[table] for number in numbers]
            if any(
                one is not None and (one != fields or there) for one, there in zip(said, single, strict=True)
            ):
                out[table, key] = fields
    return out


def _row(found: Tables, table: str, key: str, split: dict[tuple[str, str], Fields]) -> Fields | None:
    """What is said of a row: by itself, or by a range that stays."""
    rows = found.get(table, {})
    if key in rows or table not in RANGED:
        return rows.get(key)
    port, numbers = key.partition("|")[0], set(_span(key))
    for other, fields in rows.items():
        if (
            other.partition("|")[0] == port
            and numbers
            and numbers <= set(_span(other))
            and (table, other) not in split
        ):
            return fields
    return None


def _span(key: str) -> range:
    match = re.fullmatch(r"[^|]+\|(\d{1,2})(?:-(\d{1,2}))?", key)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)


def _change(table: str, key: str, field: str, was: str, to: str, found: Tables) -> Change:
    port = next((p for p in (key.partition("|")[0], field) if p in found.get("PORT", {})), "")
    return {
        "port": port,
        "setting": field or "row",
        "where": f"{table}|{key}",
        "from": was,
        "to": to,
        "whose": _whose(table, key, field, was, port, found),
    }


def _whose(table: str, key: str, field: str, was: str, port: str, found: Tables) -> str:
    """The role's by its names, nobody's (absent), the system's own value, or somebody else's."""
    if was == "absent":
        return "nobody"
    taken = found.get("PORT_QOS_MAP", {}).get(port, {}).get("dscp_to_tc_map") == "ROCE"
    if OURS.fullmatch(key) or OURS.fullmatch(was) or taken:
        return "role"
    if table == "PFC_WD" and key == "GLOBAL" and "ROCE" in found.get("DSCP_TO_TC_MAP", {}):
        return "role"
    if not field:  # a row that goes: everything in it must be the system's own
        values = re.split(r", | ", was)
        return "system" if all(_FACTORY.fullmatch(v.rpartition("=")[2]) for v in values) else "other"
    factory = (
        _FACTORY.fullmatch(was)
        or was in _FACTORY_VALUES.get((table, field), ())
        or (table == "CABLE_LENGTH" and was in _CABLES)
    )
    return "system" if factory else "other"


def _told(fields: Fields) -> str:
    return ", ".join(f"{field}={value}" for field, value in sorted(fields.items()))


_COMBINED = "SAI_PORT_PRIORITY_FLOW_CONTROL_MODE_COMBINED"


def effective(
    fabric: dict[str, Any], ports: list[dict[str, str]], lossless: list[int], databases: dict[str, Any]
) -> list[str]:
    """Say what of PFC, priority groups, queues and ECN did not come about in APPL_DB and ASIC_DB.

    CONFIG_DB is what was asked. A profile that the platform does not know, or a number that the ASIC refuses,
    is only in the log. Attributes: SAI's saiport.h, saiqueue.h, saibuffer.h, saiwred.h.

    Args:
        fabric: the intent.
        ports: the ports that were configured.
        lossless: the priorities that PFC protects.
        databases: `sonic-db-dump` of APPL_DB, ASIC_DB and COUNTERS_DB, by that name.
    """
    appl, asic, counters = (_loaded(databases[name]) for name in ("APPL_DB", "ASIC_DB", "COUNTERS_DB"))
    wrong = []
    mask = sum(1 << priority for priority in lossless)
    ecn = fabric["roce"]["ecn"]

    def of(kind: str, name: str) -> Fields:
        names = {"PORT": "COUNTERS_PORT_NAME_MAP", "QUEUE": "COUNTERS_QUEUE_NAME_MAP"}
        oid = counters.get(names.get(kind, "COUNTERS_PG_NAME_MAP"), {}).get(name)
        return asic.get(f"ASIC_STATE:SAI_OBJECT_TYPE_{kind}:{oid}", {})

    for entry in ports:
        port = entry["port"]
        own = of("PORT", port)
        pfc = own.get("SAI_PORT_ATTR_PRIORITY_FLOW_CONTROL", "0")
        if pfc != str(mask):
            wrong.append(f"{port}: PFC priorities in the ASIC are mask {pfc}, not {mask}")
        if own.get("SAI_PORT_ATTR_PRIORITY_FLOW_CONTROL_MODE", _COMBINED) != _COMBINED:
            wrong.append(f"{port}: PFC in the ASIC is not the same for both ways (asymmetric)")
        if not _oid(own.get("SAI_PORT_ATTR_QOS_DSCP_TO_TC_MAP")):
            wrong.append(f"{port}: no DSCP map in the ASIC")
        for priority in lossless:
            profile = appl.get(f"BUFFER_PG_TABLE:{port}:{priority}", {}).get("profile", "absent")
            if not profile.startswith("pg_lossless_"):
                wrong.append(
                    f"{port}: priority group {priority} has profile {profile} in APPL_DB, no lossless"
                )
            group = of("INGRESS_PRIORITY_GROUP", f"{port}:{priority}")
            if not _oid(group.get("SAI_INGRESS_PRIORITY_GROUP_ATTR_BUFFER_PROFILE")):
                wrong.append(f"{port}: priority group {priority} has no buffer in the ASIC")
        queue = of("QUEUE", f"{port}:{fabric['roce']['queue']}")
        oid = queue.get("SAI_QUEUE_ATTR_WRED_PROFILE_ID")
        wred = asic.get(f"ASIC_STATE:SAI_OBJECT_TYPE_WRED:{oid}", {})
        wanted = {
            "SAI_WRED_ATTR_ECN_MARK_MODE": "SAI_ECN_MARK_MODE_ALL",
            "SAI_WRED_ATTR_GREEN_MIN_THRESHOLD": str(ecn["min_bytes"]),
            "SAI_WRED_ATTR_GREEN_MAX_THRESHOLD": str(ecn["max_bytes"]),
            "SAI_WRED_ATTR_GREEN_DROP_PROBABILITY": str(ecn["mark_percent"]),
        }
        for name, value in wanted.items():
            if wred.get(name) != value:
                short = name.removeprefix("SAI_WRED_ATTR_").lower()
                wrong.append(f"{port}: ECN {short} is {wred.get(name, 'absent')} in the ASIC, not {value}")
    return wrong


def _loaded(dump: dict[str, Any]) -> dict[str, Fields]:
    return {key: entry["value"] for key, entry in dump.items() if isinstance(entry.get("value"), dict)}


def _oid(value: str | None) -> bool:
    return value not in (None, "", "oid:0x0")


def _rows(tables_: Tables) -> Iterable[tuple[str, str, Fields]]:
    for table, rows in sorted(tables_.items()):
        for key, fields in sorted(rows.items()):
            yield table, key, fields


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")  # RFC 6901


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "roce_switch_sonic_difference": difference,
            "roce_switch_sonic_merged": merged,
            "roce_switch_sonic_unsaved": unsaved,
            "roce_switch_sonic_effective": effective,
            "roce_switch_sonic_undo": undo,
            "roce_switch_sonic_pending": pending,
            "roce_switch_sonic_unknown_timers": unknown_timers,
            "roce_switch_sonic_original": original,
            "roce_switch_sonic_back": back,
            "roce_switch_sonic_stays": stays,
        }
