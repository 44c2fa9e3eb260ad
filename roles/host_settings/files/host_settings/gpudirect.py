"""GPUDirect RDMA: how NICs reach GPU memory, and what PCI settings slow it down or prevent it.

Sources: NVIDIA GPUDirect RDMA documentation; Mellanox nic-configuration-operator (Max_Read_Request_Size 4096,
at run time only). How RDMA reaches GPU memory is gpu_memory's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host_settings import gpu_memory, pci
from host_settings.desired import NETDEV, BadDesired
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value
from host_settings.system import System


@dataclass(frozen=True)
class Gpudirect:
    """The wanted state."""

    nics: tuple[str, ...]
    acs_bridges: tuple[str, ...]  # between a GPU and its NIC
    max_read_request: int
    min_payload: int
    min_bar_mib: int
    peer_memory: str  # peer modules: auto (only where dma-buf is missing) or load


def parse(data: Mapping[str, Any]) -> Gpudirect:
    """The wanted state. Raises BadDesired, naming the key and the fix."""
    nics, bridges = data.get("nics"), data.get("acs_bridges")
    if not isinstance(nics, list) or not all(isinstance(n, str) and NETDEV.match(n) for n in nics):
        raise BadDesired(f"nics is {nics!r} -- list the names of fabric NICs")
    if not isinstance(bridges, list) or not all(isinstance(b, str) and pci.BDF.match(b) for b in bridges):
        raise BadDesired(f"acs_bridges is {bridges!r} -- list PCI addresses such as 0000:17:00.0")
    sizes = (128, 256, 512, 1024, 2048, 4096)
    for key in ("max_read_request", "min_payload"):
        if data.get(key) not in sizes:
            raise BadDesired(f"{key} is {data.get(key)!r} -- use one of {', '.join(map(str, sizes))}")
    bar = data.get("min_bar_mib")
    if isinstance(bar, bool) or not isinstance(bar, int) or bar < 1:
        raise BadDesired(f"min_bar_mib is {bar!r} -- use a whole number of MiB")
    return Gpudirect(
        tuple(nics),
        tuple(bridges),
        data["max_read_request"],
        data["min_payload"],
        bar,
        gpu_memory.parse(data),
    )


def read(system: System, wanted: Gpudirect) -> dict[str, Any]:
    """What is set now."""
    gpus = [
        bdf
        for bdf in system.names("/sys/bus/pci/devices")
        if (system.read(f"/sys/bus/pci/devices/{bdf}/class") or "").startswith(("0x03", "0x12"))
        and system.read(f"/sys/bus/pci/devices/{bdf}/vendor") in (gpu_memory.NVIDIA, gpu_memory.AMD)
    ]
    addresses = {netdev: pci.address_of(system, netdev) for netdev in wanted.nics}
    devices = {**{n: bdf for n, bdf in addresses.items() if bdf}, **{f"gpu.{bdf}": bdf for bdf in gpus}}
    virtual = pci.is_virtual(system)
    return {
        "virtual": virtual,
        "gpus": {bdf: _gpu(system, bdf) for bdf in gpus},
        "memory": gpu_memory.read(system, gpus, wanted.nics) if gpus else None,
        "control": {name: pci.register(system, bdf, pci.DEVICE_CONTROL) for name, bdf in devices.items()},
        "address": devices,
        "link": {name: pci.link(system, bdf) for name, bdf in devices.items()},
        "acs": {} if virtual else {b: pci.register(system, b, pci.ACS_CONTROL) for b in wanted.acs_bridges},
        "iommu": _iommu(system),
    }


def _gpu(system: System, bdf: str) -> int:
    """The size of the GPU's largest BAR in bytes: the window through which NICs see its memory."""
    lines = (system.read(f"/sys/bus/pci/devices/{bdf}/resource") or "").splitlines()[:6]
    ranges = [[int(field, 16) for field in line.split()[:2]] for line in lines]
    return max((last - first + 1 for first, last in ranges if last), default=0)


def _iommu(system: System) -> str:
    """off, pt (identity), or translated."""
    groups = system.names("/sys/kernel/iommu_groups")
    if not groups:
        return "off"
    options = (system.read("/proc/cmdline") or "").split()
    types = {system.read(f"/sys/kernel/iommu_groups/{g}/type") for g in groups}
    return "pt" if "iommu=pt" in options or types == {"identity"} else "translated"


def items(found: dict[str, Any], wanted: Gpudirect) -> list[Item]:
    """What should be, beside what is."""
    if not found["gpus"]:
        return [NotApplicable("gpudirect", "there is no GPU in this host")]
    list_: list[Item] = [*gpu_memory.items(found["memory"], wanted.peer_memory), *_acs_items(found, wanted)]
    for name, control in found["control"].items():
        list_ += _register_items(name, found["address"][name], control, found["virtual"], wanted)
        link = found["link"][name]
        # A GPU at rest lowers its link's speed; the width stays.
        part = 0 if name.startswith("gpu.") else None
        if link is not None:
            now, most = (words.split()[part] if part is not None else words for words in link)
            list_.append(Setting(f"pcie.link.{name}", now, most))
    for bdf, size in found["gpus"].items():
        least = wanted.min_bar_mib
        list_.append(Setting(f"gpu.bar_mib.{bdf}", size >> 20, max(size >> 20, least)))
    if found["virtual"]:
        list_.append(NotApplicable("iommu", "in a virtual machine it is the hypervisor's"))
    else:
        now = found["iommu"]
        list_.append(Setting("iommu", now, now if now != "translated" else "pt"))
    return list_


def _acs_items(found: Mapping[str, Any], wanted: Gpudirect) -> list[Item]:
    if found["virtual"]:
        return [NotApplicable("acs", "in a virtual machine the bridges keep guests apart: never off")]
    list_: list[Item] = []
    for bdf, control in found["acs"].items():
        if control is None:
            list_.append(NotApplicable(f"acs.{bdf}", "this bridge has none"))
        else:
            list_.append(Setting(f"acs.{bdf}", f"{control:04x}", "0000", _setpci(bdf, pci.ACS_CONTROL)))
    if not wanted.acs_bridges:
        list_.append(NotApplicable("acs", "no bridge lies between a GPU and its NIC"))
    return list_


def _setpci(bdf: str, register: str) -> Any:  # noqa: ANN401  (a Setting's actions)
    def write(value: Value) -> tuple[Action, ...]:
        return (Run(("setpci", "-s", bdf, f"{register}={value}")),)

    return write


def _register_items(name: str, bdf: str, control: int | None, virtual: bool, wanted: Gpudirect) -> list[Item]:
    if control is None:
        return [NotApplicable(f"pcie.{name}", "it is no PCI Express device")]
    payload = pci.max_payload(control)
    list_: list[Item] = [Setting(f"pcie.max_payload.{name}", payload, max(payload, wanted.min_payload))]
    if name.startswith("gpu."):
        return list_  # the rest is the GPU driver's
    if virtual:
        return [
            *list_,
            NotApplicable(f"pcie.max_read_request.{name}", "in a virtual machine it is the host's"),
        ]

    def request(value: Value) -> tuple[Action, ...]:
        bits = pci.read_request_bits(int(value))
        word = f"{pci.DEVICE_CONTROL}={bits:04x}:{pci.READ_REQUEST_MASK:04x}"
        return (Run(("setpci", "-s", bdf, word)),)

    def ordering(value: Value) -> tuple[Action, ...]:
        bits = pci.RELAXED_ORDERING if value else 0
        return (Run(("setpci", "-s", bdf, f"{pci.DEVICE_CONTROL}={bits:04x}:{pci.RELAXED_ORDERING:04x}")),)

    size, relaxed = pci.max_read_request(control), bool(control & pci.RELAXED_ORDERING)
    return [
        *list_,
        Setting(f"pcie.max_read_request.{name}", size, wanted.max_read_request, request),
        Setting(f"pcie.relaxed_ordering.{name}", relaxed, True, ordering),
    ]
