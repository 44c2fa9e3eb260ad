"""The mesh specification: what the planner hands to the driver inside a Slurm job, as one JSON file.

Standard library only: the driver reads it on compute nodes, where every import costs start-up time.

==================  ====================================================================================
``schema``          1
``mode``            ``full``: every pair once, in circle-method rounds. ``pairs``: those of ``pairs``
``pairs``           null, or a list of node pairs, each once
``nodes``           node name -> ``address`` (where its driver is reached: a name or an IP of the management
                    network, null for the node's own name), ``rails``: rail -> ``rdma_device``, ``netdev`` and
                    ``ipv4`` of its NIC
``rails``           the rails to measure: ``rail0`` or, from one rail to another, ``rail0>rail1`` (the data
                    leaves on the first and arrives on the second, so it crosses the spine)
``operations``      what to run: ``test`` (ib_write_bw, ...), ``size_bytes``, ``duration_s`` (whole seconds)
                    or ``iterations``, ``qps`` (1), ``rdma_cm`` (false): connected by RDMA-CM, perftest -R,
                    ``sizes``: absent, or those of perftest -a, which runs all, that are somebody's cells,
                    and ``memory``: absent, or the buffer that whoever starts the driver has words for
                    (``host``, ``near``, ``far``: gpudirect/job.py)
``directions``      of ``forward`` (data from the pair's first node to its second), ``reverse``, and ``both``
                    (bandwidth only: both nodes send at once, perftest -b; the result is the sum)
``rails_at_once``   of ``one`` (rail after rail) and ``all`` (every rail concurrently)
``tclass``          the traffic class byte, DSCP x 4 + ECN (RFC 2474, RFC 3168): 106 is DSCP 26 with ECT(0)
``mtu``             RDMA path MTU in bytes: 256, 512, 1024, 2048 or 4096
``gid_index``       the GID of every device, or null: the RoCE v2 GID of the rail's IPv4 address, from sysfs
``qp_timeout``      exponent of the queue pairs' retry timer, 4.096 us x 2^n (InfiniBand
                    Architecture, 9.7.6.1.3); null is perftest's 14, 67 ms, too short for emulated hosts
``timeout_s``       a measurement that takes longer is killed
``start_timeout_s`` a perftest server that does not listen by then is killed
``join_timeout_s``  a node whose driver has not come up by then is dropped
``lost_after_s``    a node whose driver has not answered for so long is dropped
``base_port``       first TCP port of perftest; ``port_span`` ports from there are used in turn
``control_port``    TCP port of the drivers
``remeasure``       null, or when a cell is measured again at the end: ``again`` samples more that a doubtful
                    cell needs, ``at_most`` times, ``most_per_nic`` cells of a NIC and direction,
                    ``within_s`` seconds in all, and ``limits``:
                    of ``test``, ``size_bytes``, ``rails_at_once`` and ``rails`` the ``metric`` and its
                    ``limit`` (Gb/s at least, us at most); with ``across``, groups of nodes, it holds
                    for pairs between two of them only
==================  ====================================================================================
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shakedown.benchmarks.perftest.mesh.wire import FieldReader
from shakedown.physics.ethernet import RDMA_MTUS_BYTES
from shakedown.records.errors import BadInput
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


@dataclass(frozen=True)
class Nic:
    """One NIC of a node on a rail."""

    rdma_device: str
    netdev: str
    ipv4: str


@dataclass(frozen=True)
class Node:
    """Where a node's driver is reached, and its NIC on each rail that it has."""

    name: str
    address: str
    rails: Mapping[str, Nic]


@dataclass(frozen=True)
class Operation:
    """One perftest run: a test, a message size, and how long."""

    test: str
    size_bytes: int
    duration_s: int | None
    iterations: int | None
    qps: int = 1
    memory: str = ""  # of MEMORIES; empty: perftest's own, and no word of it
    rdma_cm: bool = False
    sizes: tuple[int, ...] = ()  # of a sweep

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells one operation's cells from another's."""
        return (self.test, self.size_bytes, self.qps)

    @property
    def is_latency(self) -> bool:
        """Whether the result is a latency, not a bandwidth."""
        return self.test in LATENCY_TESTS


@dataclass(frozen=True)
class Limit:
    """The worst value of one metric that needs no second measurement: Gb/s at least, or us at most."""

    operation: tuple[str, int, int]  # as Operation.key
    rails_at_once: str
    rails: tuple[str, ...]
    metric: str
    limit: float
    # Number of each node's group, where it holds between groups only; empty: for every pair.
    across: Mapping[str, int] = field(default_factory=dict)

    def holds_for(self, pair: tuple[str, str]) -> bool:
        """Whether it is the limit of this pair."""
        if not self.across:
            return True
        groups = [self.across.get(node) for node in pair]
        return None not in groups and groups[0] != groups[1]


@dataclass(frozen=True)
class RemeasureRule:
    """When a cell is measured again; the module's docstring explains every field."""

    again: int
    at_most: int
    most_per_nic: int
    within_s: float
    limits: tuple[Limit, ...]

    def limits_of(
        self, operation: tuple[str, int, int], rails_at_once: str, rail: str, pair: tuple[str, str]
    ) -> dict[str, float]:
        """Return metric -> limit of a cell; empty: it is never measured again."""
        return {
            x.metric: x.limit
            for x in self.limits
            if x.operation == operation
            and x.rails_at_once == rails_at_once
            and rail in x.rails
            and x.holds_for(pair)
        }


@dataclass(frozen=True)
class Spec:
    """A validated mesh specification; the module's docstring explains every field."""

    nodes: Mapping[str, Node]
    pairs: tuple[tuple[str, str], ...] | None
    rails: tuple[str, ...]
    operations: tuple[Operation, ...]
    directions: tuple[str, ...]
    rails_at_once: tuple[str, ...]
    tclass: int
    mtu: int
    gid_index: int | None
    qp_timeout: int | None
    timeout_s: float
    start_timeout_s: float
    join_timeout_s: float
    lost_after_s: float
    base_port: int
    port_span: int
    control_port: int
    remeasure: RemeasureRule | None = None


def rail_ends(rail: str) -> tuple[str, str]:
    """Return (source rail, sink rail): of `rail0>rail1` rail0 and rail1, of `rail0` rail0 twice."""
    source, _, sink = rail.partition(">")
    return source, sink or source


def parse_spec(data: object, file: str | None = None) -> Spec:
    """Return the specification in `data` (parsed JSON).

    Raises:
        BadInput: naming the field, for anything that is missing, unknown, of the wrong type or contradictory.
    """
    read = FieldReader(file)
    top = read.table(
        data,
        "the specification",
        required=("schema", "mode", "nodes", "rails", "operations", "directions", "tclass", "mtu"),
        optional={
            "pairs": None,
            "rails_at_once": ["one"],
            "gid_index": None,
            "qp_timeout": None,
            "timeout_s": 60,
            "start_timeout_s": 30,
            "join_timeout_s": 120,
            "lost_after_s": 15,
            "base_port": 18600,
            "port_span": 512,
            "control_port": 18599,
            "remeasure": None,
        },
    )
    if top["schema"] != SPEC_SCHEMA or isinstance(top["schema"], bool):
        read.refuse("schema", top["schema"], f"write schema {SPEC_SCHEMA}, or use the matching release")
    nodes = _nodes(read, top["nodes"])
    spec = Spec(
        nodes=nodes,
        pairs=_pairs(read, top["mode"], top["pairs"], nodes),
        rails=_rails(read, top["rails"], nodes),
        operations=_operations(read, top["operations"]),
        directions=read.choices(top["directions"], "directions", DIRECTIONS),
        rails_at_once=read.choices(top["rails_at_once"], "rails_at_once", AT_ONCE),
        tclass=read.integer(top["tclass"], "tclass", 0, 255),
        mtu=read.integer(top["mtu"], "mtu", 256, 4096),
        gid_index=None if top["gid_index"] is None else read.integer(top["gid_index"], "gid_index", 0, 255),
        qp_timeout=None
        if top["qp_timeout"] is None
        else read.integer(top["qp_timeout"], "qp_timeout", 1, 31),
        timeout_s=read.seconds(top["timeout_s"], "timeout_s"),
        start_timeout_s=read.seconds(top["start_timeout_s"], "start_timeout_s"),
        join_timeout_s=read.seconds(top["join_timeout_s"], "join_timeout_s"),
        lost_after_s=read.seconds(top["lost_after_s"], "lost_after_s"),
        base_port=read.integer(top["base_port"], "base_port", 1024, 65535),
        port_span=read.integer(top["port_span"], "port_span", 1, 32768),
        control_port=read.integer(top["control_port"], "control_port", 1024, 65535),
        remeasure=None if top["remeasure"] is None else _remeasure(read, top["remeasure"]),
    )
    _check_whole(read, spec)
    return spec


def _nodes(read: FieldReader, value: object) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for name, entry in read.mapping(value, "nodes").items():
        where = f"nodes.{name}"
        table = read.table(entry, where, required=("rails",), optional={"address": None})
        address = name if table["address"] is None else read.name(table["address"], f"{where}.address")
        rails = {
            rail: _nic(read, nic, f"{where}.rails.{rail}")
            for rail, nic in read.mapping(table["rails"], f"{where}.rails").items()
        }
        nodes[name] = Node(name, address, rails)
    if len(nodes) < 2:
        raise BadInput(
            "nodes: a mesh of one node has no pairs", fix="give at least two nodes", file=read.file
        )
    return {name: nodes[name] for name in sorted(nodes, key=natural_key)}


def _nic(read: FieldReader, value: object, where: str) -> Nic:
    table = read.table(value, where, required=("rdma_device", "netdev", "ipv4"), optional={})
    try:
        ipv4 = str(ipaddress.IPv4Address(table["ipv4"] if isinstance(table["ipv4"], str) else ""))
    except ipaddress.AddressValueError:
        read.refuse(f"{where}.ipv4", table["ipv4"], "give the rail's IPv4 address without prefix length")
    device = read.name(table["rdma_device"], f"{where}.rdma_device")
    return Nic(device, read.name(table["netdev"], f"{where}.netdev"), ipv4)


def _pairs(
    read: FieldReader, mode: object, value: object, nodes: Mapping[str, Node]
) -> tuple[tuple[str, str], ...] | None:
    if mode not in ("full", "pairs"):
        read.refuse("mode", mode, "use full or pairs")
    if (mode == "full") != (value is None):
        raise BadInput("mode and pairs disagree", fix="pairs belong to mode 'pairs' only", file=read.file)
    if value is None:
        return None
    pairs: list[tuple[str, str]] = []
    seen: set[tuple[str, str]] = set()
    for i, item in enumerate(read.items(value, "pairs")):
        ends = read.items(item, f"pairs[{i}]")
        names = [end for end in ends if isinstance(end, str) and end in nodes]
        if len(ends) != 2 or len(set(names)) != 2:
            read.refuse(f"pairs[{i}]", item, "give two different names of nodes")
        first, second = sorted(names, key=natural_key)
        if (first, second) in seen:
            read.refuse(f"pairs[{i}]", item, "list each pair once")
        seen.add((first, second))
        pairs.append((first, second))
    return tuple(pairs)


def _rails(read: FieldReader, value: object, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    known = {rail for node in nodes.values() for rail in node.rails}
    rails: list[str] = []
    for item in read.items(value, "rails"):
        if not isinstance(item, str) or not _RAIL.match(item) or item in rails:
            read.refuse("rails", item, "give each rail once, as rail0, or as rail0>rail1 across rails")
        rail = str(item)
        if unknown := [end for end in rail_ends(rail) if end not in known]:
            read.refuse("rails", unknown[0], f"no node has that rail; there are {', '.join(sorted(known))}")
        rails.append(rail)
    return tuple(rails)


def _operations(read: FieldReader, value: object) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    for i, item in enumerate(read.items(value, "operations")):
        where = f"operations[{i}]"
        table = read.table(
            item,
            where,
            required=("test", "size_bytes"),
            optional={
                "duration_s": None,
                "iterations": None,
                "qps": 1,
                "memory": "",
                "rdma_cm": False,
                "sizes": None,
            },
        )
        if table["test"] not in TESTS:
            read.refuse(f"{where}.test", table["test"], f"use one of {', '.join(TESTS)}")
        duration, iterations = table["duration_s"], table["iterations"]
        if (duration is None) == (iterations is None):
            read.refuse(where, item, "give exactly one of duration_s and iterations")
        operation = Operation(
            test=str(table["test"]),
            size_bytes=read.integer(table["size_bytes"], f"{where}.size_bytes", 1, 1 << 31),
            duration_s=None if duration is None else read.integer(duration, f"{where}.duration_s", 1, 86400),
            # perftest itself wants at least 5 (linux-rdma/perftest, perftest_parameters.h, MIN_ITER).
            iterations=None
            if iterations is None
            else read.integer(iterations, f"{where}.iterations", 5, 10**8),
            qps=read.integer(table["qps"], f"{where}.qps", 1, 1024),
            memory=read.choices([table["memory"]], f"{where}.memory", ("", *MEMORIES))[0],
            rdma_cm=table["rdma_cm"] is True,
            sizes=_sweep(read, table["sizes"], f"{where}.sizes"),
        )
        if not isinstance(table["rdma_cm"], bool):
            read.refuse(f"{where}.rdma_cm", table["rdma_cm"], "use true or false")
        if operation.sizes and operation.iterations is None:
            read.refuse(f"{where}.sizes", duration, "perftest -a runs iterations, not seconds")
        if operation.is_latency and operation.qps != 1:
            read.refuse(f"{where}.qps", operation.qps, "latency is measured on one queue pair")
        if any((o.key, o.memory) == (operation.key, operation.memory) for o in operations):
            read.refuse(where, item, "list each test, size, number of queue pairs and memory once")
        operations.append(operation)
    return tuple(operations)


def _sweep(read: FieldReader, value: object, where: str) -> tuple[int, ...]:
    sizes = tuple(read.integer(one, where, SWEEP[0], SWEEP[-1]) for one in _optional(read, value, where))
    if wrong := [size for size in sizes if size not in SWEEP or sizes.count(size) > 1]:
        read.refuse(where, wrong[0], "give sizes that perftest -a runs, each once: 2, 4, ... 8388608")
    return sizes


def _optional(read: FieldReader, value: object, where: str) -> list[object]:
    return [] if value is None else read.items(value, where)


def _remeasure(read: FieldReader, value: object) -> RemeasureRule:
    numbers = ("again", "at_most", "most_per_nic")
    table = read.table(value, "remeasure", required=(*numbers, "within_s", "limits"), optional={})
    limits: list[Limit] = []
    for i, item in enumerate(read.items(table["limits"], "remeasure.limits")):
        where = f"remeasure.limits[{i}]"
        names = ("test", "size_bytes", "rails_at_once", "rails", "metric", "limit")
        entry = read.table(item, where, required=names, optional={"qps": 1, "across": None})
        test, limit = entry["test"], entry["limit"]
        metrics = METRICS["lat" if test in LATENCY_TESTS else "bw"]
        if test not in TESTS:
            read.refuse(f"{where}.test", test, f"use one of {', '.join(TESTS)}")
        if entry["metric"] not in metrics:
            read.refuse(f"{where}.metric", entry["metric"], f"use one of {', '.join(metrics)}")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
            read.refuse(f"{where}.limit", limit, "use a number of Gb/s or us above 0")
        size = read.integer(entry["size_bytes"], f"{where}.size_bytes", 1, 1 << 31)
        qps = read.integer(entry["qps"], f"{where}.qps", 1, 1024)
        limits.append(
            Limit(
                operation=(str(test), size, qps),
                rails_at_once=read.choices([entry["rails_at_once"]], f"{where}.rails_at_once", AT_ONCE)[0],
                rails=tuple(str(rail) for rail in read.items(entry["rails"], f"{where}.rails")),
                metric=str(entry["metric"]),
                limit=float(limit),
                across={
                    str(node): number
                    for number, group in enumerate(_optional(read, entry["across"], f"{where}.across"))
                    for node in read.items(group, f"{where}.across[{number}]")
                },
            )
        )
    again, at_most, most = (read.integer(table[n], f"remeasure.{n}", 1, 1 << 20) for n in numbers)
    within_s = read.seconds(table["within_s"], "remeasure.within_s")
    return RemeasureRule(again, at_most, most, within_s, tuple(limits))


def _check_whole(read: FieldReader, spec: Spec) -> None:
    """Refuse what only the fields together show."""
    if spec.mtu not in RDMA_MTUS_BYTES:
        read.refuse("mtu", spec.mtu, f"an RDMA MTU is one of {', '.join(map(str, RDMA_MTUS_BYTES))}")
    if BOTH in spec.directions:
        if any(operation.is_latency for operation in spec.operations):
            read.refuse("directions", BOTH, "latency has no bidirectional test; use forward and reverse")
        if crossing := [rail for rail in spec.rails if ">" in rail]:
            read.refuse("rails", crossing[0], "both directions are measured between NICs of one rail")
    last = spec.base_port + spec.port_span - 1
    if last > 65535 or spec.base_port <= spec.control_port <= last:
        read.refuse(
            "base_port", spec.base_port, "keep base_port + port_span <= 65536 and control_port outside"
        )
    if spec.port_span < len(spec.rails):
        read.refuse("port_span", spec.port_span, "give at least one port a rail")
    first, second = sorted(map(len, spec.nodes), reverse=True)[:2]
    name_bytes = 2 * first + second + max(map(len, spec.rails)) + REST_OF_NAME_BYTES
    if name_bytes > LONGEST_FILE_NAME:
        read.refuse(
            "nodes",
            max(spec.nodes, key=len),
            f"shorten names: outputs would have names of up to {name_bytes} bytes, "
            f"file systems take {LONGEST_FILE_NAME}",
        )
    longest = max((op.duration_s or 0 for op in spec.operations), default=0)
    if not math.isfinite(spec.timeout_s) or spec.timeout_s <= longest:
        read.refuse("timeout_s", spec.timeout_s, f"allow more than the {longest} s that a measurement takes")
    seen: dict[str, str] = {}
    for node in spec.nodes.values():
        for rail, nic in node.rails.items():
            if nic.ipv4 in seen:
                read.refuse(f"nodes.{node.name}.rails.{rail}.ipv4", nic.ipv4, f"{seen[nic.ipv4]} has it too")
            seen[nic.ipv4] = f"{node.name} {rail}"
