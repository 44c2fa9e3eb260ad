"""Soft-RoCE: the kernel's RDMA device in software on an Ethernet NIC without RDMA of its own."""

from __future__ import annotations

from typing import Any

from host_settings import dcb, link, rdma
from host_settings.desired import Nic
from host_settings.model import Item, NotApplicable, Run, Setting, Value
from host_settings.system import System


def read(system: System, nic: Nic) -> dict[str, Any]:
    """What is set now."""
    dev = nic.netdev
    return {
        "link": link.read(system, nic),
        "rdma": rdma.read(system, nic),
        "dcb": dcb.read(system, dev) if dcb.supported(system, dev) else None,
    }


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
        *_dcb_items(found["dcb"], nic),
        Setting("rdma.device", device, nic.rdma_device, name_device),
        *rdma.cm_settings(found["rdma"], nic),
        NotApplicable("dcqcn", "Soft-RoCE has no congestion control and ignores ECN marks"),
        NotApplicable("link.speed_gbps", "a virtual NIC has no rate"),
        *link.observations(found["link"], nic),
        *rdma.observations(found["rdma"], nic),
    ]


def _dcb_items(state: dict[str, Any] | None, nic: Nic) -> list[Item]:
    if state is None:
        return [NotApplicable("dcb", "the driver has no DCB: nothing is lossless here")]
    dev, roce = nic.netdev, nic.roce
    return [
        dcb.dcbx_setting(state, dev),
        dcb.dscp_map_setting(state, nic, dcb.delete_then_add(dev, "dscp-prio")),
        dcb.ets_setting(state, dev, dcb.classes_of_intent(nic)),
        dcb.pfc_setting(state, dev, [roce.priority] if roce.pfc else [], ""),
    ]
