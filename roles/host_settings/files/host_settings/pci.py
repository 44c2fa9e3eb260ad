"""PCI functions: their registers through setpci, their links and numbers through sysfs."""

from __future__ import annotations

import re

from host_settings.system import System, ToolError

BDF = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
# PCI Express Base Specification, Device Control Register: bits 14-12 Max_Read_Request_Size, 7-5
# Max_Payload_Size (128 bytes shifted), 4 Enable Relaxed Ordering. Access Control Services: control at 6.
DEVICE_CONTROL = "CAP_EXP+8.w"
ACS_CONTROL = "ECAP_ACS+0x6.w"
READ_REQUEST_MASK, RELAXED_ORDERING = 0x7000, 0x0010


def address_of(system: System, netdev: str) -> str | None:
    """The PCI function of a NIC; for a virtio NIC that of its transport."""
    real = system.path(f"/sys/class/net/{netdev}/device").resolve()
    parts = [part for part in real.parts if BDF.match(part)]
    return parts[-1] if parts else None


def register(system: System, bdf: str, name: str) -> int | None:
    """A register's value; None if the function has no such capability."""
    done = system.run("setpci", "-s", bdf, name)
    if done.status == 0 and re.fullmatch(r"[0-9a-f]+", done.out.strip()):
        return int(done.out, 16)
    if "apability" in done.err:  # "Capability ... not found"
        return None
    raise ToolError(f"setpci -s {bdf} {name}: {done.complaint}")


def max_read_request(control: int) -> int:
    """Bytes of Max_Read_Request_Size in Device Control."""
    return int(128 << (control >> 12 & 7))


def read_request_bits(size: int) -> int:
    """Device Control bits for a Max_Read_Request_Size in bytes."""
    return (size // 128).bit_length() - 1 << 12


def max_payload(control: int) -> int:
    """Bytes of Max_Payload_Size in Device Control."""
    return int(128 << (control >> 5 & 7))


def is_virtual(system: System) -> bool:
    """Whether this is a virtual machine, whose bridges are not the machine's."""
    return " hypervisor" in (system.read("/proc/cpuinfo") or "")


def link(system: System, bdf: str) -> tuple[str, str] | None:
    """The PCIe link as it runs and as it could, such as `x16 32.0 GT/s`; None without a PCIe link."""
    folder = f"/sys/bus/pci/devices/{bdf}"
    words = []
    for which in ("current", "max"):
        speed, width = (
            system.read(f"{folder}/{which}_link_speed"),
            system.read(f"{folder}/{which}_link_width"),
        )
        if not speed or not width or "GT/s" not in speed:
            return None
        words.append(f"x{width} {speed.partition(' PCIe')[0]}")
    return words[0], words[1]
