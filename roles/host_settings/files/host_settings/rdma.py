"""The RDMA device on a NIC: its name, MTU, GID, and the default ToS of connections made by RDMA-CM."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from host_settings.desired import Nic
from host_settings.model import Action, ConfigfsWrite, Item, Run, Setting, Value
from host_settings.system import System

_CM = "/sys/kernel/config/rdma_cm"
_PORT = "1"
_ROCE_V2 = "RoCE v2"
# An IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2), as sysfs prints it.
_MAPPED = re.compile(r"(?:0000:){5}ffff:([0-9a-f]{4}):([0-9a-f]{4})")


def read(system: System, nic: Nic) -> dict[str, Any]:
    """The state of the NIC's RDMA device; `device` is None if it has none."""
    device = device_of(system, nic.netdev)
    state: dict[str, Any] = {
        "device": device,
        "active_mtu": None,
        "gid_type": None,
        "other_gids": [],
        "cm": {},
    }
    if device is not None:
        state["active_mtu"] = _active_mtu(system, device)
        state["gid_type"] = _gid_type(system, device, nic.gid)
        state["other_gids"] = _other_addresses(system, device, nic.gid)
        with system.configfs_item(f"{_CM}/{device}"):
            for attribute in ("default_roce_tos", "default_roce_mode"):
                state["cm"][attribute] = system.read(f"{_CM}/{device}/ports/{_PORT}/{attribute}")
    state["cm_loaded"] = system.exists(_CM)
    return state


def device_of(system: System, netdev: str) -> str | None:
    """The name of the RDMA device on a netdev."""
    for link in system.run_json("rdma", "-j", "link", "show"):
        if link.get("netdev") == netdev:
            return str(link.get("ifname"))
    return None


def _active_mtu(system: System, device: str) -> int | None:
    # sysfs has no such attribute; ibv_devinfo asks the device.
    done = system.run("ibv_devinfo", "-d", device)
    match = re.search(r"^\s*active_mtu:\s+(\d+)", done.out, re.M)
    return int(match.group(1)) if match else None


def _gid_type(system: System, device: str, gid: str) -> str | None:
    """The types of the table entries that hold the GID; RoCE v2 if it is among them."""
    port = f"/sys/class/infiniband/{device}/ports/{_PORT}"
    types = []
    for index in sorted((name for name in system.names(f"{port}/gids") if name.isdigit()), key=int):
        if system.read(f"{port}/gids/{index}") == gid:
            types.append(system.read(f"{port}/gid_attrs/types/{index}"))
            if types[-1] == _ROCE_V2:
                return _ROCE_V2
    return types[0] if types else None


def _other_addresses(system: System, device: str, gid: str) -> list[str]:
    """IPv4 addresses in the GID table beside the NIC's own."""
    folder = f"/sys/class/infiniband/{device}/ports/{_PORT}/gids"
    found = set()
    for index in system.names(folder):
        entry = system.read(f"{folder}/{index}") or ""
        if entry != gid and (mapped := _MAPPED.fullmatch(entry)):
            found.add(str(ipaddress.IPv4Address(bytes.fromhex(mapped[1] + mapped[2]))))
    return sorted(found)


def cm_settings(found: dict[str, Any], nic: Nic) -> list[Item]:
    """Default ToS and GID type of RDMA-CM (kernel 4.11 and newer; lost with the device)."""
    folder = f"{_CM}/{nic.rdma_device}"
    load = () if found["cm_loaded"] else (Run(("modprobe", "rdma_cm")),)

    def write(attribute: str, value: Value) -> tuple[Action, ...]:
        if value is None:  # there was no device to hold a value
            return ()
        return (*load, ConfigfsWrite(folder, ((f"ports/{_PORT}/{attribute}", str(value)),)))

    tos = found["cm"].get("default_roce_tos")
    return [
        Setting(
            "rdma_cm.default_roce_mode",
            found["cm"].get("default_roce_mode"),
            _ROCE_V2,
            lambda v: write("default_roce_mode", v),
        ),
        Setting(
            "rdma_cm.default_roce_tos",
            int(tos) if tos is not None and tos.isdigit() else None,
            nic.roce.tos,
            lambda v: write("default_roce_tos", v),
        ),
    ]


def observations(found: dict[str, Any], nic: Nic) -> list[Item]:
    """What follows from link and addresses."""
    return [
        Setting("mtu.rdma_bytes", found["active_mtu"], nic.rdma_mtu),
        Setting("gid.type", found["gid_type"], _ROCE_V2),
        # What is there for an address that nobody planned can be chosen by index all the same.
        Setting("gid.others", found["other_gids"], []),
    ]
