"""The mesh specification: what the planner hands to the driver inside a Slurm job, as one JSON file.

Standard library only: the driver reads it on compute nodes, where every import costs start-up time. Each
field says itself what it may be (`Annotated`), and by its default that it may be left out.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from shakedown.benchmarks.perftest.mesh.wire import (
    Place,
    each,
    each_once,
    entries,
    flag,
    items,
    load,
    must,
    of,
    one_of,
    or_null,
    plain_name,
    seconds,
    some_of,
    whole,
)
from shakedown.physics.ethernet import RDMA_MTUS_BYTES
from shakedown.records.reading import BadInput
from shakedown.records.wording import LONGEST_FILE_NAME, natural_key

SPEC_SCHEMA = 1
# What perftest's tests move, and who starts it: a write or send client is the data's source; a read client
# pulls, so it is the data's sink (linux-rdma/perftest, README, "Benchmarks").
BANDWIDTH_TESTS = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
LATENCY_TESTS = ("ib_write_lat", "ib_read_lat", "ib_send_lat")
TESTS = BANDWIDTH_TESTS + LATENCY_TESTS
# What is judged of them, by the end of a test's name.
METRICS = {"bw": ("bandwidth",), "lat": ("latency_typical", "latency_p99")}
# Both nodes send at once (perftest -b); the client is the first node's, a read client the second's.
BOTH = "both"
DIRECTIONS = ("forward", "reverse", BOTH)
# A note about a lost node is named by test, pair, rail, direction, size, queue pairs, rails at once, attempt
# and the node that wrote it (store.py); what is neither a node's nor a rail's name in it takes
# up to so many bytes, with a few to spare: `ib_write_lat.,..forward.2147483648.q1024.all.a99.` and
# `.note.2.txt`.
REST_OF_NAME_BYTES = 64
AT_ONCE = ("one", "all")
# perftest -a of a reliable connection: 2, 4, ... 2^23 bytes (perftest_parameters.c, MAX_SIZE).
SWEEP = tuple(1 << n for n in range(1, 24))
# Values of the parameters `connection` and `sweep` of cells that are not measured the plain way.
RDMA_CM, ALL_SIZES = "rdma-cm", "all-sizes"
# Buffers of both ends: host memory, and that of the GPU nearest to each end's NIC or farthest from it.
MEMORIES = ("host", "near", "far")

_RAIL = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,30})(?:>([A-Za-z0-9][A-Za-z0-9_.-]{0,30}))?\Z")


# What some fields may be; postponed annotations hold no lambda that reads this module's names.
_schema = must(
    lambda x: x == SPEC_SCHEMA and x is not True, f"write schema {SPEC_SCHEMA}, or use the matching release"
)
_rails = each_once(
    lambda x: isinstance(x, str) and _RAIL.match(x) is not None,
    "give each rail once, as rail0, or as rail0>rail1 across rails",
)
_sizes = each_once(
    lambda x: type(x) is int and x in SWEEP, "give sizes that perftest -a runs, each once: 2, 4, ... 8388608"
)
_worst = must(lambda x: type(x) in (int, float) and 0 < x < math.inf, "use a number of Gb/s or us above 0")


def _ipv4(place: Place, value: object) -> str:
    try:
        return str(ipaddress.IPv4Address(value if isinstance(value, str) else ""))
    except ipaddress.AddressValueError:
        place.refuse(value, "give the rail's IPv4 address without prefix length")


@dataclass(frozen=True)
class Nic:
    """One NIC of a node on a rail."""

    rdma_device: Annotated[str, plain_name]
    netdev: Annotated[str, plain_name]
    ipv4: Annotated[str, _ipv4]


@dataclass(frozen=True)
class Node:
    """Where a node's driver is reached, and its NIC on each rail that it has."""

    rails: Annotated[Mapping[str, Nic], entries(of(Nic))]
    # A name or an IP of the management network; null: the node's own name.
    address: Annotated[str, or_null(plain_name)] = ""
    name: str = ""


def _nodes(place: Place, value: object) -> dict[str, Node]:
    found: dict[str, Node] = entries(of(Node))(place, value)
    if len(found) < 2:
        raise BadInput(
            "nodes: a mesh of one node has no pairs", fix="give at least two nodes", file=place.file
        )
    return {
        key: replace(found[key], name=key, address=found[key].address or key)
        for key in sorted(found, key=natural_key)
    }


def _pair(place: Place, value: object) -> tuple[str, str]:
    ends = items(place, value)
    names = [end for end in ends if isinstance(end, str)]
    if len(ends) != 2 or len(set(names)) != 2:
        place.refuse(value, "give two different names of nodes")
    first, second = sorted(names, key=natural_key)
    return first, second


@dataclass(frozen=True)
class Operation:
    """One perftest run: a test, a message size, and how long."""

    test: Annotated[str, one_of(*TESTS)]
    size_bytes: Annotated[int, whole(1, 1 << 31)]
    # How long: whole seconds, or iterations. Perftest itself wants at least 5 of them (linux-rdma/perftest,
    # perftest_parameters.h, MIN_ITER).
    duration_s: Annotated[int | None, or_null(whole(1, 86400))] = None
    iterations: Annotated[int | None, or_null(whole(5, 10**8))] = None
    qps: Annotated[int, whole(1, 1024)] = 1
    # The buffer that whoever starts the driver has words for (gpudirect/job.py); empty: perftest's own, and
    # no word of it.
    memory: Annotated[str, one_of("", *MEMORIES)] = ""
    rdma_cm: Annotated[bool, flag] = False  # connected by RDMA-CM, perftest -R
    # Those of perftest -a, which runs all, that are somebody's cells; empty: no sweep.
    sizes: Annotated[tuple[int, ...], or_null(_sizes)] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells one operation's cells from another's."""
        return (self.test, self.size_bytes, self.qps)

    @property
    def is_latency(self) -> bool:
        """Whether the result is a latency, not a bandwidth."""
        return self.test in LATENCY_TESTS


def _operation(place: Place, value: object) -> Operation:
    found = load(Operation, value, place)
    if (found.duration_s is None) == (found.iterations is None):
        place.refuse(value, "give exactly one of duration_s and iterations")
    if found.sizes and found.iterations is None:
        place.at("sizes").refuse(found.duration_s, "perftest -a runs iterations, not seconds")
    if found.is_latency and found.qps != 1:
        place.at("qps").refuse(found.qps, "latency is measured on one queue pair")
    return found


def _group_numbers(place: Place, value: object) -> dict[str, int]:
    groups = each(items)(place, value)
    return {str(node): number for number, group in enumerate(groups) for node in group}


@dataclass(frozen=True)
class Limit:
    """The worst value of one metric that needs no second measurement: Gb/s at least, or us at most."""

    test: Annotated[str, one_of(*TESTS)]
    size_bytes: Annotated[int, whole(1, 1 << 31)]
    rails_at_once: Annotated[str, one_of(*AT_ONCE)]
    rails: Annotated[tuple[object, ...], items]
    metric: Annotated[str, plain_name]
    limit: Annotated[float, _worst]
    qps: Annotated[int, whole(1, 1024)] = 1
    # Groups of nodes, where it holds for pairs between two of them only: the number of each node's group.
    across: Annotated[Mapping[str, int], or_null(_group_numbers)] = field(default_factory=dict)

    def holds_for(self, pair: tuple[str, str]) -> bool:
        """Whether it is the limit of this pair."""
        if not self.across:
            return True
        groups = [self.across.get(node) for node in pair]
        return None not in groups and groups[0] != groups[1]


def _limit(place: Place, value: object) -> Limit:
    found = load(Limit, value, place)
    metrics = METRICS["lat" if found.test in LATENCY_TESTS else "bw"]
    return replace(found, metric=one_of(*metrics)(place.at("metric"), found.metric))


@dataclass(frozen=True)
class RemeasureRule:
    """When a cell is measured again, at the end."""

    again: Annotated[int, whole(1, 1 << 20)]  # samples more that a doubtful cell needs
    at_most: Annotated[int, whole(1, 1 << 20)]  # times
    most_per_nic: Annotated[int, whole(1, 1 << 20)]  # cells of a NIC and direction
    within_s: Annotated[float, seconds]  # in all
    limits: Annotated[tuple[Limit, ...], each(_limit)]

    def limits_of(
        self, operation: tuple[str, int, int], rails_at_once: str, rail: str, pair: tuple[str, str]
    ) -> dict[str, float]:
        """Return metric -> limit of a cell; empty: it is never measured again."""
        return {
            x.metric: x.limit
            for x in self.limits
            if (x.test, x.size_bytes, x.qps) == operation
            and x.rails_at_once == rails_at_once
            and rail in x.rails
            and x.holds_for(pair)
        }


@dataclass(frozen=True)
class Spec:
    """A validated mesh specification."""

    schema: Annotated[int, _schema]
    mode: Annotated[str, one_of("full", "pairs")]  # full: every pair once, in circle-method rounds
    nodes: Annotated[Mapping[str, Node], _nodes]
    # `rail0` or, from one rail to another, `rail0>rail1`: the data leaves on the first and arrives on the
    # second, so it crosses the spine.
    rails: Annotated[tuple[str, ...], _rails]
    operations: Annotated[tuple[Operation, ...], each(_operation)]
    # Data from the pair's first node to its second, and back. Both: of bandwidth only, the result is the sum.
    directions: Annotated[tuple[str, ...], some_of(DIRECTIONS)]
    tclass: Annotated[int, whole(0, 255)]  # DSCP x 4 + ECN (RFC 2474, RFC 3168): 106 is DSCP 26 with ECT(0)
    mtu: Annotated[int, whole(256, 4096)]  # the path MTU of RDMA in bytes
    pairs: Annotated[tuple[tuple[str, str], ...] | None, or_null(each(_pair))] = None  # each once
    rails_at_once: Annotated[tuple[str, ...], some_of(AT_ONCE)] = ("one",)  # rail after rail, and all of them
    # The GID of every device; null: the RoCE v2 GID of the rail's IPv4 address, from sysfs.
    gid_index: Annotated[int | None, or_null(whole(0, 255))] = None
    # Exponent of the queue pairs' retry timer, 4.096 us x 2^n (InfiniBand Architecture, 9.7.6.1.3); null is
    # perftest's 14, 67 ms, too short for emulated hosts.
    qp_timeout: Annotated[int | None, or_null(whole(1, 31))] = None
    timeout_s: Annotated[float, seconds] = 60.0  # a measurement that takes longer is killed
    start_timeout_s: Annotated[float, seconds] = 30.0  # so is a perftest server that does not listen by then
    # A node whose driver has not come up by then is dropped, and one that has not answered for so long.
    join_timeout_s: Annotated[float, seconds] = 120.0
    lost_after_s: Annotated[float, seconds] = 15.0
    # TCP ports of perftest, so many from the first one on, used in turn; and that of the drivers.
    base_port: Annotated[int, whole(1024, 65535)] = 18600
    port_span: Annotated[int, whole(1, 32768)] = 512
    control_port: Annotated[int, whole(1024, 65535)] = 18599
    remeasure: Annotated[RemeasureRule | None, or_null(of(RemeasureRule))] = None


def rail_ends(rail: str) -> tuple[str, str]:
    """Return (source rail, sink rail): of `rail0>rail1` rail0 and rail1, of `rail0` rail0 twice."""
    source, _, sink = rail.partition(">")
    return source, sink or source


def parse_spec(data: object, file: str | None = None) -> Spec:
    """Return the specification in `data` (parsed JSON).

    Raises:
        BadInput: naming the field, for anything that is missing, unknown, of the wrong type or contradictory.
    """
    top = Place("", file)
    spec = load(Spec, data, top)
    _check_names(top, spec)
    _check_whole(top, spec)
    return spec


def _check_names(top: Place, spec: Spec) -> None:
    """Refuse what names no node or rail of the specification, or names it twice."""
    if (spec.mode == "full") != (spec.pairs is None):
        raise BadInput("mode and pairs disagree", fix="pairs belong to mode 'pairs' only", file=top.file)
    pairs: set[tuple[str, str]] = set()
    for number, pair in enumerate(spec.pairs or ()):
        if not spec.nodes.keys() >= set(pair) or pair in pairs:
            fix = "list each pair once" if pair in pairs else "give two different names of nodes"
            top.at("pairs").item(number).refuse(list(pair), fix)
        pairs.add(pair)
    known = {rail for node in spec.nodes.values() for rail in node.rails}
    if unknown := [end for rail in spec.rails for end in rail_ends(rail) if end not in known]:
        top.at("rails").refuse(unknown[0], f"no node has that rail; there are {', '.join(sorted(known))}")
    keys = [(*operation.key, operation.memory) for operation in spec.operations]
    if twice := [number for number, key in enumerate(keys) if key in keys[:number]]:
        fix = "list each test, size, number of queue pairs and memory once"
        top.at("operations").item(twice[0]).refuse(keys[twice[0]], fix)


def _check_whole(top: Place, spec: Spec) -> None:
    """Refuse what only the fields together show."""
    if spec.mtu not in RDMA_MTUS_BYTES:
        top.at("mtu").refuse(spec.mtu, f"an RDMA MTU is one of {', '.join(map(str, RDMA_MTUS_BYTES))}")
    if BOTH in spec.directions:
        if any(operation.is_latency for operation in spec.operations):
            top.at("directions").refuse(BOTH, "latency has no bidirectional test; use forward and reverse")
        if crossing := [rail for rail in spec.rails if ">" in rail]:
            top.at("rails").refuse(crossing[0], "both directions are measured between NICs of one rail")
    last = spec.base_port + spec.port_span - 1
    if last > 65535 or spec.base_port <= spec.control_port <= last:
        top.at("base_port").refuse(
            spec.base_port, "keep base_port + port_span <= 65536 and control_port outside"
        )
    if spec.port_span < len(spec.rails):
        top.at("port_span").refuse(spec.port_span, "give at least one port a rail")
    first, second = sorted(map(len, spec.nodes), reverse=True)[:2]
    name_bytes = 2 * first + second + max(map(len, spec.rails)) + REST_OF_NAME_BYTES
    if name_bytes > LONGEST_FILE_NAME:
        top.at("nodes").refuse(
            max(spec.nodes, key=len),
            f"shorten names: outputs would have names of up to {name_bytes} bytes, "
            f"file systems take {LONGEST_FILE_NAME}",
        )
    longest = max((op.duration_s or 0 for op in spec.operations), default=0)
    if not math.isfinite(spec.timeout_s) or spec.timeout_s <= longest:
        top.at("timeout_s").refuse(
            spec.timeout_s, f"allow more than the {longest} s that a measurement takes"
        )
    seen: dict[str, str] = {}
    for node in spec.nodes.values():
        for rail, nic in node.rails.items():
            if nic.ipv4 in seen:
                top.at(f"nodes.{node.name}.rails.{rail}.ipv4").refuse(
                    nic.ipv4, f"{seen[nic.ipv4]} has it too"
                )
            seen[nic.ipv4] = f"{node.name} {rail}"
