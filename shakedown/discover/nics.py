"""Which NICs of a node belong to the compute fabric, and which switch port each is cabled to."""

import csv
import io
import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeVar

from shakedown.discover.ask import PORT_PATTERN, NicAnswer, NodeAnswer
from shakedown.intent.rules import is_lag
from shakedown.nos.lldp import neighbours
from shakedown.records.reading import BadInput, read_plain
from shakedown.records.wording import natural_key
from shakedown.topology.distance import Distance
from shakedown.topology.host_map import GDR_LIMIT, HostDevice, distance

# Pure. A NIC is of the fabric if nothing speaks against it; what does is said beside it in the site's folder.

_ORDER = list(Distance)
_T = TypeVar("_T")


class Role(StrEnum):
    """What a NIC is for."""

    COMPUTE = "compute"
    OTHER = "other"  # storage, management: neither configured nor measured


class NicWithRole(NamedTuple):
    """A NIC with its role."""

    nic: NicAnswer  # the NIC
    role: Role  # what it is taken for
    why: str  # one sentence for a person
    sure: bool  # False: a guess, to be marked


def judge_nics(nodes: Mapping[str, NodeAnswer]) -> dict[str, list[NicWithRole]]:
    """Return every node's NICs that have an RDMA device, or an address, with their roles."""
    speed = fabric_gbps(nodes)
    found = {name: _of_node(node, speed) for name, node in nodes.items()}
    usual = usual_nics(found)
    return {name: _as_fellows(own, usual) for name, own in found.items()}


class UsualNic(NamedTuple):
    """A NIC of the fabric as most nodes have it; None where they do not agree."""

    rdma: str | None
    network: ipaddress.IPv4Network | None
    speed_mbps: int | None
    mtu_bytes: int | None


def usual_nics(judged: Mapping[str, list[NicWithRole]]) -> dict[str, UsualNic]:
    """Return the NICs of the fabric that most nodes have, by interface; of two nodes there is no most."""
    by_name: dict[str, list[NicAnswer]] = {}
    for own in judged.values():
        for one in own:
            if one.role is Role.COMPUTE:
                by_name.setdefault(one.nic.netdev, []).append(one.nic)
    least = len(judged) // 2 + 1
    return {
        netdev: UsualNic(
            _agreed((nic.rdma[0] for nic in nics), least),
            _agreed((ipaddress.IPv4Interface(nic.ipv4[0]).network for nic in nics), least),
            _agreed((nic.speed_mbps for nic in nics), least),
            _agreed((nic.mtu_bytes for nic in nics), least),
        )
        for netdev, nics in by_name.items()
        if len(nics) >= least and len(judged) > 2
    }


def _agreed(values: Iterable[_T], least: int) -> _T | None:
    """Return the value that at least so many have."""
    value, many = Counter(values).most_common(1)[0]
    return value if many >= least else None


def is_fellow(own: Iterable[NicWithRole], usual: Mapping[str, UsualNic]) -> bool:
    """Whether a node is of the kind that most are: it has at least half of their fabric's NICs."""
    return 2 * len({one.nic.netdev for one in own} & usual.keys()) >= len(usual)


def _as_fellows(own: list[NicWithRole], usual: Mapping[str, UsualNic]) -> list[NicWithRole]:
    """Return a node's NICs, with those of the fabric that most nodes have: also what is broken or gone here.

    What was lost on the day of discovery is planned, so that it fails, and is no part of what is wanted.
    """
    planned = {one.nic.netdev for one in own if one.role is Role.COMPUTE}
    lost = [netdev for netdev in usual if netdev not in planned]
    if not usual or not lost or not is_fellow(own, usual):
        return own
    numbers = {
        int(address.ip) - int(address.network.network_address)
        for one in own
        if one.nic.netdev in usual and one.nic.ipv4
        for address in [ipaddress.IPv4Interface(one.nic.ipv4[0])]
    }
    made = {one.nic.netdev: one for one in own}
    for netdev in lost:
        there = made.get(netdev)
        nic = _restored(netdev, there.nic if there else None, usual[netdev], numbers)
        if nic is not None:
            why = there.why if there else "it is not there"
            made[netdev] = NicWithRole(nic, Role.COMPUTE, why, False)
    # In the order of the names that most nodes have, so that rails keep theirs.
    return sorted(made.values(), key=lambda one: natural_key(one.nic.netdev))


def _restored(netdev: str, nic: NicAnswer | None, usual: UsualNic, numbers: set[int]) -> NicAnswer | None:
    """Return a NIC with what most nodes have where this one has nothing; None: its address is not known.

    `numbers`: this node's place in the networks of its other NICs. One alone tells its place in all of them.
    """
    ipv4 = nic.ipv4 if nic else ()
    if not ipv4:
        if usual.network is None or len(numbers) != 1 or not 0 < min(numbers) < usual.network.num_addresses:
            return None
        ipv4 = (f"{usual.network[min(numbers)]}/{usual.network.prefixlen}",)
    rdma = nic.rdma if nic and nic.rdma else (usual.rdma,) if usual.rdma else ()
    if not rdma:
        return None
    if nic is None:
        nic = NicAnswer(netdev=netdev, up=False, speed_mbps=usual.speed_mbps, mtu_bytes=usual.mtu_bytes)
    return nic.model_copy(update={"ipv4": ipv4, "rdma": rdma})


def fabric_gbps(nodes: Mapping[str, NodeAnswer]) -> int | None:
    """Return the rate of the fastest RDMA NICs of most nodes, in Gb/s; None: none tells its rate."""
    fastest = [
        max(rates)
        for node in nodes.values()
        if (rates := [nic.gbps for nic in node.nics if nic.gbps and not _cannot(nic, node)])
    ]
    return Counter(sorted(fastest, reverse=True)).most_common(1)[0][0] if fastest else None


def _cannot(nic: NicAnswer, node: NodeAnswer) -> str:
    """Return why a NIC cannot be of the fabric, or nothing."""
    if not nic.rdma:
        return "it has no RDMA device"
    ports = [one.netdev for one in node.nics if one.master == nic.netdev]
    lag = is_lag(nic.netdev, nic.rdma[0]) or len(ports) > 1
    of = nic.master or ", ".join(ports) or nic.netdev
    reasons = (
        (nic.virtual_function, "it is a virtual function"),
        # "Unknown" is EFA's.
        (nic.link_layer not in ("", "Ethernet"), f"its port speaks {nic.link_layer}"),
        (lag, f"a RoCE LAG ({of}), not measured: give each of its ports an address and a rail"),
        (bool(nic.master), f"it is part of {nic.master}"),
        (nic.netdev in node.default_interfaces, "the default route leads over it"),
    )
    return next((why for holds, why in reasons if holds), "")


def _of_node(node: NodeAnswer, speed: int | None) -> list[NicWithRole]:
    able = [nic for nic in node.nics if not _cannot(nic, node)]
    # How near the nearest GPU is to each.
    near = {nic.netdev: nearest for nic in able if (nearest := _nearest_gpu(node, nic)) is not None}
    slow = {nic.netdev for nic in able if speed and nic.gbps and nic.gbps < speed}
    beside_gpus = {
        name
        for name, far in near.items()
        if name not in slow and _ORDER.index(far) <= _ORDER.index(GDR_LIMIT)
    }
    judged = []
    for nic in node.nics:
        if not nic.rdma and not nic.ipv4:
            continue
        why = _cannot(nic, node)
        if why:
            judged.append(NicWithRole(nic, Role.OTHER, why, True))
        elif nic.netdev in slow:
            said = f"{nic.gbps} Gb/s, the fabric's NICs have {speed}"
            judged.append(NicWithRole(nic, Role.OTHER, said, True))
        elif beside_gpus and nic.netdev in near and nic.netdev not in beside_gpus:
            far = near[nic.netdev]
            said = f"its nearest GPU is {far} away, {len(beside_gpus)} others share a PCIe switch with theirs"
            judged.append(NicWithRole(nic, Role.OTHER, said, False))
        elif not nic.ipv4:
            judged.append(NicWithRole(nic, Role.OTHER, _without_address(nic), False))
        else:
            judged.append(NicWithRole(nic, Role.COMPUTE, _for(nic, near), True))
    return judged


def _without_address(nic: NicAnswer) -> str:
    return (
        "it has no IPv4 address, and rails of IPv6 alone are not measured"
        if nic.up
        else "it has no IPv4 address and no link"
    )


def _for(nic: NicAnswer, near: Mapping[str, Distance]) -> str:
    rate = f"{nic.gbps} Gb/s" if nic.gbps else "no rate told"
    gpu = f", its nearest GPU is {near[nic.netdev]} away" if nic.netdev in near else ""
    return f"RDMA, {rate}{gpu}"


def _nearest_gpu(node: NodeAnswer, nic: NicAnswer) -> Distance | None:
    device = pci_device(node, nic)
    gpus = node.topology.gpu_devices()
    if device is None or not gpus:
        return None
    return min((distance(node.topology, device, gpu) for gpu in gpus), key=_ORDER.index)


def pci_device(node: NodeAnswer, nic: NicAnswer) -> HostDevice | None:
    """Return the PCI function that a NIC is on, or None."""
    return next((one for one in node.topology.devices if nic.netdev in one.netdevs), None)


COLUMNS = ("node", "netdev", "leaf", "leaf_port")
_SWITCH = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")


class NicCable(NamedTuple):
    """The far end of a NIC's cable."""

    leaf: str
    port: str


Cabling = dict[tuple[str, str], NicCable]  # by node and netdev


def read_table(file: Path) -> Cabling:
    """Return the cabling in a CSV file with the columns node, netdev, leaf, leaf_port.

    Raises BadInput: naming the line of a column that is missing, a name that is none, a NIC or port twice.
    """
    fix = f"begin with the line {','.join(COLUMNS)}"
    raw = read_plain(file, "give a CSV file")
    if raw is None:
        raise BadInput("no such file", fix="give a CSV file", file=file)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text", fix="save it as CSV", file=file) from None
    found: Cabling = {}
    ends: dict[NicCable, int] = {}
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [word.strip() for word in next(reader, [])]
        if missing := [name for name in COLUMNS if name not in header]:
            raise BadInput(f"no column {', '.join(missing)}", fix=fix, file=file, line=1)
        for row in reader:
            if not any(word.strip() for word in row):
                continue
            line = reader.line_num
            if len(row) != len(header):
                raise BadInput(f"{len(row)} values, {len(header)} columns", fix=fix, file=file, line=line)
            values = dict(zip(header, (word.strip() for word in row), strict=True))
            for name in ("node", "netdev", "leaf"):
                if not _SWITCH.match(values[name]):
                    raise BadInput(
                        f"{name} {values[name][:64]!r} is no name",
                        fix="use letters, digits and ._-",
                        file=file,
                        line=line,
                    )
            if not re.match(PORT_PATTERN, values["leaf_port"]):
                raise BadInput(
                    f"leaf_port {values['leaf_port'][:64]!r} is no port",
                    fix="write it as the switch does",
                    file=file,
                    line=line,
                )
            key, cable = (values["node"], values["netdev"]), NicCable(values["leaf"], values["leaf_port"])
            if key in found:
                raise BadInput(
                    f"{key[0]} {key[1]} is listed twice", fix="one NIC has one cable", file=file, line=line
                )
            if cable in ends:
                raise BadInput(
                    f"{cable.leaf} {cable.port} is listed twice, first on line {ends[cable]}",
                    fix="one port has one cable",
                    file=file,
                    line=line,
                )
            found[key], ends[cable] = cable, line
    except csv.Error as error:
        raise BadInput(f"is no CSV: {error}", fix=fix, file=file, line=reader.line_num) from None
    return found


def of_lldp(nodes: Mapping[str, NodeAnswer]) -> Cabling:
    """Return what LLDP tells: NICs with one neighbour whose names can be written down.

    A port with several neighbours says nothing of its cable: something between repeats the frames.
    """
    found: Cabling = {}
    for name, node in nodes.items():
        if not node.lldp.strip():
            continue
        try:
            heard = neighbours(node.lldp)
        except BadInput:
            continue  # lldpd answered with something else: as good as none
        for netdev, ends in heard.items():
            if len(set(ends)) == 1:
                leaf, port = ends[0][0].partition(".")[0], ends[0][1]
                if _SWITCH.match(leaf) and re.match(PORT_PATTERN, port):
                    found[name, netdev] = NicCable(leaf, port)
    return found
