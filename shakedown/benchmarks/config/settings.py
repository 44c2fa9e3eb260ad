"""What acceptance asks of the config stage, what its job reads back, what each setting must be by the intent,
and what a read-back found, also of the host's end of a cable."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from shakedown.intent.site import Fabric
from shakedown.nos.crosscheck import End
from shakedown.records.base import Record


class TrafficClass(Record):
    """How much RoCE is sent between two nodes while its class is counted where it arrives."""

    # Seconds of traffic from each node to each of its two neighbours in the ring of all nodes.
    duration_s: int = Field(default=2, ge=1, le=60)
    size_bytes: int = Field(default=65536, gt=0)  # of one message, in bytes


class ConfigStage(Record):
    """What the NICs of this site can show in the config stage; real ones show everything."""

    dcb: bool = True
    link_speed: bool = True
    # Targets of roles/host_settings that concern the whole node.
    targets: tuple[Literal["environment", "gpudirect", "pinning"], ...] = ("environment",)
    # Whether the nodes have the reader of settings that site.yml installs. False where nothing may be
    # installed: every setting stays in the plan, not run, and the verdict does not wait for it.
    settings_reader: bool = True
    # How far a node's clock may be from the submit host's, in seconds. munge(7) refuses credentials at 300,
    # Kerberos tickets at 300; logs and counters of two nodes can be put in one order below a second.
    clock_offset_s: Annotated[float, Field(gt=0, le=300)] = 1.0
    # RoCE from node to node, counted by class where it arrives. None: this is not proved.
    traffic_class: TrafficClass | None = TrafficClass()


class ReadBackSettings(Record):
    """By node: its targets with the rail of each, and what each target must show, by setting."""

    targets: dict[str, dict[str, str | None]]
    expect: dict[str, dict[str, dict[str, Any]]]


# A node compares itself with what Ansible once wrote there; that alone would pass a node that still has last
# month's configuration. So the settings of the RoCE class are compared here with the plan's own intent, and
# the node's own judgement decides only about the rest.

ENVIRONMENT = "environment"
# What other machines say of a NIC's address, and what they say when one that is heard of here is not whose it
# should be.
DUPLICATES, NEIGHBOURS = "ipv4.duplicates", "ipv4.neighbours"
ROUTES = "ipv4.routes"  # how its own kernel sends to the rail's other addresses
OTHERS = "others"  # everything that a node compares and the intent does not name


class FoundSetting(Record):
    """One setting as the node reports it."""

    key: Annotated[str, Field(max_length=200)]
    found: Any
    wanted: Any
    ok: bool
    settable: bool

    model_config = ConfigDict(extra="ignore", frozen=True)


class Absent(Record):
    """A setting that a device does not have, and why."""

    key: Annotated[str, Field(max_length=200)]
    reason: Annotated[str, Field(max_length=500)]


class FoundRoute(Record):
    """How a node's kernel sends from a NIC to some addresses of its rail."""

    netdev: Annotated[str, Field(max_length=64)] | None  # None: it has no way
    gateway: Annotated[str, Field(max_length=64)] | None
    mtu_bytes: int | None  # of the route; None: the interface's
    own: bool  # the address is this node's own, on `netdev`
    source: Annotated[str, Field(max_length=64)] | None  # that it sends from, if no program says
    of: Annotated[int, Field(ge=1)]  # addresses that it sends to like this
    to: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(min_length=1, max_length=3)]


class TargetReport(Record):
    """A node's report on one NIC, or on a target of the whole node."""

    schema_: Literal[1] = Field(alias="schema")
    target: Annotated[str, Field(max_length=64)]
    node: Annotated[str, Field(max_length=128)] | None = None  # read-backs of old do not say it
    driver: Annotated[str, Field(max_length=64)]
    error: Annotated[str, Field(max_length=2000)] | None
    settings: tuple[FoundSetting, ...]
    not_applicable: tuple[Absent, ...]
    # The MAC that this node's kernel has for each address of the rail's other NICs; None: not read.
    neighbours: dict[str, Annotated[str, Field(max_length=32)]] | None = None
    routes: tuple[FoundRoute, ...] | None = None  # to the same; None: not read

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


Expectation = dict[str, Any]


def expected_of_nic(
    fabric: Fabric,  # the intent
    *,
    rdma_device: str,  # the inventory's name of the NIC's RDMA device
    ipv4: str,  # its address without prefix length
    dcb: bool,  # whether the NICs keep DCB settings (real ones do)
    link_speed: bool,  # whether the NICs have a rate (virtual ones have none)
) -> Expectation:
    """Return what a NIC must show, by setting."""
    roce = fabric.roce
    expected: Expectation = {
        "mtu.host_bytes": fabric.mtu_bytes.host,
        "mtu.rdma_bytes": fabric.mtu_bytes.rdma,
        "rdma.device": rdma_device,
        "rdma_cm.default_roce_mode": "RoCE v2",
        "rdma_cm.default_roce_tos": roce.tclass,
        "gid.type": "RoCE v2",
        "link.state": "up",
        "ipv4": ipv4,
        "ipv4.others": [],
        DUPLICATES: [],
        NEIGHBOURS: [],
        ROUTES: [],
        "gid.others": [],
    }
    if dcb:
        expected["dcbx.mode"] = "host ieee"
        expected["pfc.priorities"] = [roce.priority] if roce.pfc.enabled else []
        expected["dscp.map"] = {str(roce.dscp): roce.priority, str(roce.cnp.dscp): roce.cnp.priority}
    if link_speed:
        expected["link.speed_gbps"] = float(fabric.link_speed_gbps)
    return expected


def expected_of_environment(fabric: Fabric) -> Expectation:
    """Return what programs on a node must read."""
    return {"env.NCCL_IB_TC": str(fabric.roce.tclass)}


def _dscp_map(found: object, expected: Mapping[str, int]) -> bool:
    """Whether a map such as `0-25:0 26:3 27-63:0` has our entries, and no other DSCP on our priorities."""
    try:
        mapping = _mapping(found)
    except ValueError:
        return False
    return {str(dscp): to for dscp, to in mapping.items() if to in expected.values()} == dict(expected)


def _mapping(found: object) -> dict[int, int]:
    """Read `0-25:0 26:3 27-63:0`. Raises ValueError."""
    mapping: dict[int, int] = {}
    for part in str(found).split():
        dscps, _, priority = part.partition(":")
        first, _, last = dscps.partition("-")
        if not (first.isdigit() and (last or first).isdigit() and priority.isdigit()):
            raise ValueError(f"{part!r} maps no DSCP")
        mapping |= dict.fromkeys(range(int(first), min(int(last or first), 63) + 1), int(priority))
    return mapping


def _address(found: object, expected: str) -> bool:
    return str(found).partition("/")[0] == expected


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"dscp.map": _dscp_map, "ipv4": _address}


def judge(report: TargetReport, expected: Expectation) -> Iterator[tuple[str, int | None, str]]:
    """Yield (setting, how many are wrong, found and wanted) for every expected setting and for the rest.

    None instead of a number: the node lacks the rights to tell. What neighbours and routes say is not judged
    here: it takes the other nodes' reports.
    """
    found = {setting.key: setting for setting in report.settings}
    absent = {entry.key: entry.reason for entry in report.not_applicable}
    for key, wanted in expected.items():
        if key in (NEIGHBOURS, ROUTES):
            continue
        if key == DUPLICATES and key in absent and not report.error:
            yield key, None, absent[key]
        elif report.error:
            yield key, 1, f"not read: {report.error}"
        elif key not in found:
            why = f" ({absent[key]})" if key in absent else ""
            yield key, 1, f"{key}: found nothing{why}, wanted {_json(wanted)}"
        else:
            same = _COMPARE.get(key, lambda a, b: bool(a == b))(found[key].found, wanted)
            yield key, 0 if same else 1, f"{key}: found {_json(found[key].found)}, wanted {_json(wanted)}"
    rest = [s for s in report.settings if s.key not in expected and not s.ok]
    words = "; ".join(f"{s.key}: found {_json(s.found)}, wanted {_json(s.wanted)}" for s in rest[:3])
    yield OTHERS, len(rest) + (1 if report.error else 0), report.error or words


def _json(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else text[:157] + "..."


def host_end(report: TargetReport) -> End:
    """Return what a host's NIC says of itself. A setting that it lacks is None. Raises ValueError."""
    found = {setting.key: setting.found for setting in report.settings}
    fields: dict[str, Any] = {
        "mtu_bytes": found.get("mtu.host_bytes"),
        "speed_gbps": found.get("link.speed_gbps"),
        "fec": found.get("link.fec"),
    }
    if "pfc.priorities" in found:
        fields["pfc_priorities"] = frozenset(found["pfc.priorities"])
    if "dscp.map" in found:
        fields["dscp_map"] = _mapping(found["dscp.map"])
    return End(**fields)
