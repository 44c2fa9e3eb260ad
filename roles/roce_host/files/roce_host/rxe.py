"""Soft-RoCE: the kernel's RDMA device in software on an Ethernet NIC without RDMA of its own."""

from __future__ import annotations

from typing import Any

from roce_host import link, rdma
from roce_host.desired import Nic
from roce_host.model import Item, NotApplicable, Run, Setting, Value
from roce_host.system import System


def read(system: System, nic: Nic) -> dict[str, Any]:
    """What is set now."""
    return {"link": link.read(system, nic.netdev), "rdma": rdma.read(system, nic)}


def items(found: dict[str, Any], nic: Nic) -> list[Item]:
    """What should be, beside what is, in the order of changes."""
    device = found["rdma"]["device"]

    def name_device(name: Value) -> tuple[Run, ...]:
        if name is None:
            return (Run(("rdma", "link", "delete", str(device))),)
        if device is None:
            return (Run(("rdma", "link", "add", str(name), "type", "rxe", "netdev", nic.netdev)),)
        return (Run(("rdma", "dev", "set", str(device), "name", str(name))),)

    return [
        *link.settings(found["link"], nic),
        Setting("rdma.device", device, nic.rdma_device, name_device),
        *rdma.cm_settings(found["rdma"], nic),
        NotApplicable("dcqcn", "Soft-RoCE has no congestion control and ignores ECN marks"),
        NotApplicable("link.speed_gbps", "a virtual NIC has no rate"),
        *link.observations(found["link"], nic),
        *rdma.observations(found["rdma"], nic),
    ]
