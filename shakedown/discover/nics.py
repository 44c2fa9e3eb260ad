"""Which NICs of a node belong to the compute fabric, and which switch port each is cabled to."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from shakedown.discover.ask import PORT_PATTERN, NicAnswer, NodeAnswer
from shakedown.nos.lldp import neighbours
from shakedown.records.errors import BadInput
from shakedown.records.untrusted import read_plain
from shakedown.topology.distance import Distance
from shakedown.topology.host_map import GDR_LIMIT, HostDevice, distance

# Pure. A NIC is of the fabric if nothing speaks against it; what does is said beside it in the site's folder.

_ORDER = list(Distance)


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
    return {name: _of_node(node, speed) for name, node in nodes.items()}


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
    if nic.virtual_function:
        return "it is a virtual function"
    if nic.link_layer == "InfiniBand":
        return "its port speaks InfiniBand"
    if nic.master:
        return f"it is part of {nic.master}"
    if nic.netdev in node.default_interfaces:
        return "the default route leads over it"
    return ""


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
    return "it has no IPv4 address" + ("" if nic.up else " and no link")


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
