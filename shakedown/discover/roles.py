"""Which NICs of a node belong to the compute fabric and which to storage or management, and why.

Pure. A NIC is of the fabric if nothing speaks against it; what does is said beside it in the site's folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from shakedown.discover.answers import NicAnswer, NodeAnswer
from shakedown.topology.distance import Distance
from shakedown.topology.host_map import GDR_LIMIT, Device, distance

_ORDER = list(Distance)


class Role(StrEnum):
    """What a NIC is for."""

    COMPUTE = "compute"
    OTHER = "other"  # storage, management: neither configured nor measured


class Judged(NamedTuple):
    """A NIC with its role.

    Attributes:
        nic: the NIC.
        role: what it is taken for.
        why: one sentence for a person.
        sure: False: a guess, to be marked.
    """

    nic: NicAnswer
    role: Role
    why: str
    sure: bool


def judge_nics(nodes: Mapping[str, NodeAnswer]) -> dict[str, list[Judged]]:
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


def _of_node(node: NodeAnswer, speed: int | None) -> list[Judged]:
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
            judged.append(Judged(nic, Role.OTHER, why, True))
        elif nic.netdev in slow:
            said = f"{nic.gbps} Gb/s, the fabric's NICs have {speed}"
            judged.append(Judged(nic, Role.OTHER, said, True))
        elif beside_gpus and nic.netdev in near and nic.netdev not in beside_gpus:
            far = near[nic.netdev]
            said = f"its nearest GPU is {far} away, {len(beside_gpus)} others share a PCIe switch with theirs"
            judged.append(Judged(nic, Role.OTHER, said, False))
        elif not nic.ipv4:
            judged.append(Judged(nic, Role.OTHER, _without_address(nic), False))
        else:
            judged.append(Judged(nic, Role.COMPUTE, _for(nic, near), True))
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


def pci_device(node: NodeAnswer, nic: NicAnswer) -> Device | None:
    """Return the PCI function that a NIC is on, or None."""
    return next((one for one in node.topology.devices if nic.netdev in one.netdevs), None)
