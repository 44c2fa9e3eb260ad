"""SONiC: settings from CONFIG_DB, counters from `sonic-db-dump -n COUNTERS_DB -y -k 'COUNTERS*'`.

COUNTERS_DB names objects by number; COUNTERS_{PORT,QUEUE,PG}_NAME_MAP give the numbers of `Ethernet0`,
`Ethernet0:3` (queue) and `Ethernet0:3` (priority group). Counter names are SAI's (saiport.h, saiqueue.h,
saibuffer.h); the watchdog's are those of sonic-swss pfcwdorch. How often a link went up or down is in
APPL_DB, `PORT_TABLE:Ethernet0` `flap_count`, from the first time on and in releases that count it (sonic-swss
orchagent/portsorch.cpp, updateDbPortFlapCount).
"""

from typing import Any

from shakedown.nos import lldp
from shakedown.nos.crosscheck import CABLING, DSCP, FEC, MTU, PFC, SPEED
from shakedown.nos.system import (
    Classes,
    Outputs,
    PortCounters,
    SwitchSystem,
    Tree,
    count,
    json_object,
    numbers,
)
from shakedown.records.reading import BadInput

_PORT_MAP = "COUNTERS_PORT_NAME_MAP"
_PORT = {
    "rx_bytes": ("IF_IN_OCTETS",),
    "tx_bytes": ("IF_OUT_OCTETS",),
    "rx_packets": ("IF_IN_UCAST_PKTS", "IF_IN_NON_UCAST_PKTS"),
    "tx_packets": ("IF_OUT_UCAST_PKTS", "IF_OUT_NON_UCAST_PKTS"),
    "rx_drops": ("IF_IN_DISCARDS",),
    "tx_drops": ("IF_OUT_DISCARDS",),
    "rx_errors": ("IF_IN_ERRORS",),
    "tx_errors": ("IF_OUT_ERRORS",),
}
# Counted where the port has forward error correction and the platform tells it.
_FEC = {
    "fec_uncorrectable": "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES",
    "fec_symbol_errors": "SAI_PORT_STAT_IF_IN_FEC_SYMBOL_ERRORS",
}
_QUEUE = {
    "roce_tx_packets": "SAI_QUEUE_STAT_PACKETS",
    "roce_tx_bytes": "SAI_QUEUE_STAT_BYTES",
    "roce_queue_drops": "SAI_QUEUE_STAT_DROPPED_PACKETS",
    "ecn_marked": "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS",
    "roce_queue_watermark_bytes": "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES",
    "watchdog_events": "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED",
    "watchdog_drops": "PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS",
}
_CNP_QUEUE = {"cnp_tx_packets": "SAI_QUEUE_STAT_PACKETS", "cnp_queue_drops": "SAI_QUEUE_STAT_DROPPED_PACKETS"}
_GROUP = {
    "roce_ingress_drops": "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS",
    "roce_headroom_watermark_bytes": "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES",
}


def reported(classes: Classes) -> tuple[str, ...]:
    """Name the counters of every port on which the class is configured.

    ECN marks are not among them: SONiC polls them only where that was switched on (`counterpoll wredqueue`).
    """
    pfc = (f"pfc_rx_prio{classes.priority}", f"pfc_tx_prio{classes.priority}")
    roce = ("roce_tx_packets", "roce_tx_bytes", "roce_queue_drops", "roce_ingress_drops")
    return (*_PORT, *roce, "cnp_tx_packets", "cnp_queue_drops", *pfc, "watchdog_events")


def parse(outputs: Outputs, classes: Classes) -> PortCounters:
    """Return the counters of every port. Raises BadInput for anything that is not this database."""
    database = json_object(outputs, "counters")
    if not _hash(database, _PORT_MAP):
        raise BadInput(
            f"no {_PORT_MAP}, which says whose counters these are",
            fix="dump it with them, and while orchagent runs: sonic-db-dump -n COUNTERS_DB -y -k 'COUNTERS*'",
        )
    ports = {
        port: _port(database, port, oid, classes)
        for port, oid in _hash(database, _PORT_MAP).items()
        if port.startswith("Eth")
    }
    if "ports" in outputs:  # an older release of the role did not read them
        states = json_object(outputs, "ports")
        for port, counters in ports.items():
            if (flaps := _hash(states, f"PORT_TABLE:{port}").get("flap_count")) is not None:
                counters["link_flaps"] = count(flaps, f"{port} flap_count")
    return ports


def _port(database: dict[str, Any], port: str, oid: object, classes: Classes) -> dict[str, int]:
    def take(names: dict[str, str], key: str, what: str) -> dict[str, int]:
        values = _hash(database, key)
        return {n: count(values[f], f"{what} {f}") for n, f in names.items() if f in values}

    def object_of(kind: str, number: int) -> str:
        return f"COUNTERS:{_hash(database, f'COUNTERS_{kind}_NAME_MAP').get(f'{port}:{number}')}"

    found: dict[str, int] = {}
    values = _hash(database, f"COUNTERS:{oid}")
    for name, fields in _PORT.items():
        keys = [f"SAI_PORT_STAT_{field}" for field in fields]
        if all(key in values for key in keys):
            found[name] = sum(count(values[key], f"{port} {key}") for key in keys)
    pauses = {
        f"pfc_{way.lower()}_prio{priority}": f"SAI_PORT_STAT_PFC_{priority}_{way}_PKTS"
        for priority in range(8)
        for way in ("RX", "TX")
    }
    found |= take(pauses, f"COUNTERS:{oid}", port)
    found |= take(_FEC, f"COUNTERS:{oid}", port)
    found |= take(_QUEUE, object_of("QUEUE", classes.queue), f"{port}:{classes.queue}")
    found |= take(_CNP_QUEUE, object_of("QUEUE", classes.cnp_queue), f"{port}:{classes.cnp_queue}")
    return found | take(_GROUP, object_of("PG", classes.priority), f"{port} group {classes.priority}")


def _hash(database: dict[str, Any], key: str) -> dict[str, Any]:
    entry = database.get(key)
    value = entry.get("value") if isinstance(entry, dict) else None
    return value if isinstance(value, dict) else {}


def end(found: Tree, port: str) -> Tree:
    """Return what a port's read-back says of the cable's end."""
    qos = found["PORT_QOS_MAP"].get(port, {})
    used = found["DSCP_TO_TC_MAP"].get(qos.get("dscp_to_tc_map"), {})
    row = found["PORT"].get(port, {})
    mtu, speed = row.get("mtu"), row.get("speed")
    return {
        "mtu_bytes": mtu and int(mtu),
        "speed_gbps": speed and int(speed) / 1000,  # CONFIG_DB has Mbit/s
        "fec": row.get("fec"),
        # By which LLDP calls it (lldpmgrd); its own name goes without saying.
        "aliases": (row["alias"],) if row.get("alias") else (),
        "pfc_priorities": numbers(qos.get("pfc_enable", "")),
        "dscp_map": {n: int(group) for some, group in used.items() for n in numbers(some)},
    }


# `show platform summary`, and the build of /etc/sonic/sonic_version.yml, such as 4.3.0-Enterprise_Standard.
MODEL, VERSION = r"(?m)^HwSKU: *(\S+)", r"(?m)^build_version: *['\"]?([^'\"\n]+)"


# FEC: where the link has it and the platform counts it. Symbols that FEC mended every 400G link has.
MAY_REPORT = ("link_flaps", "fec_uncorrectable")

SYSTEM = SwitchSystem(
    name="sonic",
    parse=parse,
    reported=reported,
    may_report=MAY_REPORT,
    tells=frozenset({MTU, PFC, DSCP, CABLING, SPEED, FEC}),
    end=end,
    neighbours=lldp.by_every_name,
    model=MODEL,
    version=VERSION,
    # pg_profile_lookup.ini of sonic-buildimage's 400G platforms; host variable roce_switch_cable_lengths_m
    # says what another platform's file has. Dynamic buffers take any length.
    cable_lengths_m=(5, 40, 300),
)
