"""Print how this host's GPUs and NICs hang on its PCI tree, NUMA nodes and CPUs, as one JSON document.

Everything comes from sysfs; `nvidia-smi`, where it exists, adds the GPUs' own numbers and names. Registers
of the PCI configuration space beyond the first 64 bytes are readable by root only and left out otherwise.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

_BDF = re.compile(r"^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_WANTED = ("0x02", "0x03", "0x12")  # PCI classes (pci_ids.h): network, display, processing accelerator
# PCI Express Base Specification: capability 0x10, extended capability 0x000d (ACS).
_CAP_EXPRESS, _EXT_ACS = 0x10, 0x000D


def text(path: Path) -> str:
    """A file's text; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def number(path: Path) -> int | None:
    """A file's number, or None."""
    try:
        return int(text(path), 0)
    except ValueError:
        return None


def speed_gt_s(value: str) -> float | None:
    """The number of `32.0 GT/s PCIe`."""
    match = re.match(r"([0-9.]+) GT/s", value)
    return float(match.group(1)) if match else None


def registers(config: bytes) -> dict[str, Any]:
    """What the configuration space says: payload sizes, relaxed ordering, access control services."""
    found: dict[str, Any] = {}
    position, seen = (config[0x34] if len(config) > 64 else 0), set()
    while position >= 0x40 and position not in seen and position + 12 <= len(config):
        seen.add(position)
        if config[position] == _CAP_EXPRESS:
            found["port_type"] = config[position + 2] >> 4
            capability = int.from_bytes(config[position + 4 : position + 8], "little")
            control = int.from_bytes(config[position + 8 : position + 10], "little")
            found["max_payload_supported_bytes"] = 128 << (capability & 7)
            found["max_payload_bytes"] = 128 << (control >> 5 & 7)
            found["max_read_request_bytes"] = 128 << (control >> 12 & 7)
            found["relaxed_ordering"] = bool(control & 0x10)
        position = config[position + 1] & 0xFC
    offset = 0x100
    while offset and offset + 8 <= len(config) and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _EXT_ACS:
            found["acs_control"] = int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset = header >> 20 & 0xFFC
    return found


def device(folder: Path) -> dict[str, Any]:
    """One PCI function."""
    real = folder.resolve()
    chain = [part for part in real.parts if _BDF.match(part)]
    root = next((part for part in real.parts if part.startswith("pci")), "")
    try:
        config = (folder / "config").read_bytes()
    except OSError:
        config = b""
    # The first six lines are the BARs. Which of them is the window on a GPU's memory (NVIDIA's "BAR1")
    # differs by generation; it is the largest.
    ranges = [line.split() for line in text(folder / "resource").splitlines()[:6]]
    sizes = [int(last, 16) - int(first, 16) + 1 for first, last, *_ in ranges if int(last, 16)]
    return {
        "bdf": folder.name,
        "class": text(folder / "class"),
        "vendor": text(folder / "vendor"),
        "device": text(folder / "device"),
        "driver": (folder / "driver").resolve().name if (folder / "driver").exists() else None,
        "root": root,
        "path": chain[:-1],
        "numa_node": number(folder / "numa_node"),
        "speed_gt_s": speed_gt_s(text(folder / "current_link_speed")),
        "max_speed_gt_s": speed_gt_s(text(folder / "max_link_speed")),
        "width": number(folder / "current_link_width"),
        "max_width": number(folder / "max_link_width"),
        "largest_bar_bytes": max(sizes, default=0),
        **registers(config),
    }


def pci(root: Path) -> list[dict[str, Any]]:
    """All GPUs and NICs with the bridges above them."""
    folder = root / "sys/bus/pci/devices"
    everything = {path.name: path for path in sorted(folder.iterdir())} if folder.is_dir() else {}
    wanted = [device(path) for path in everything.values() if text(path / "class").startswith(_WANTED)]
    above = sorted({bdf for entry in wanted for bdf in entry["path"]} & everything.keys())
    return [device(everything[bdf]) for bdf in above] + wanted


def names_on(root: Path, kind: str) -> dict[str, list[str]]:
    """Names of a class's members by the PCI function that they are on."""
    found: dict[str, list[str]] = {}
    folder = root / "sys/class" / kind
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        chain = [part for part in (entry / "device").resolve().parts if _BDF.match(part)]
        if chain and (entry / "device").exists():
            found.setdefault(chain[-1], []).append(entry.name)
    return found


def soft_rdma(root: Path) -> dict[str, list[str]]:
    """Soft-RoCE devices by the netdev that they are on."""
    found: dict[str, list[str]] = {}
    folder = root / "sys/class/infiniband"
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if netdev := text(entry / "parent"):
            found.setdefault(netdev, []).append(entry.name)
    return found


def numa(root: Path) -> list[dict[str, Any]]:
    """The NUMA nodes with their CPUs and distances."""
    folder = root / "sys/devices/system/node"
    nodes = sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    return [
        {
            "node": int(path.name[4:]),
            "cpus": text(path / "cpulist"),
            "distances": [int(word) for word in text(path / "distance").split()],
        }
        for path in nodes
    ]


def cores(root: Path) -> list[dict[str, Any]]:
    """Every core: its package, its number there, and its threads."""
    folder, found = root / "sys/devices/system/cpu", {}
    for path in folder.glob("cpu[0-9]*"):
        place = path / "topology"
        threads = text(place / "thread_siblings_list")
        if threads:
            core = {"package": number(place / "physical_package_id"), "core": number(place / "core_id")}
            found[threads] = {**core, "threads": threads}
    return sorted(found.values(), key=lambda entry: (entry["package"] or 0, entry["core"] or 0))


def gpus() -> list[dict[str, str]]:
    """What nvidia-smi says: index, PCI address, name."""
    query = ["nvidia-smi", "--query-gpu=index,pci.bus_id,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[field.strip() for field in line.split(",", 2)] for line in done.stdout.splitlines()]
    # nvidia-smi writes the domain with eight digits, sysfs with four.
    return [
        {"index": row[0], "bdf": re.sub(r"^0000(?=[0-9a-f]{4}:)", "", row[1].lower()), "name": row[2]}
        for row in rows
        if len(row) == 3
    ]


def document(root: Path) -> dict[str, Any]:
    """Everything, of the host whose files are below `root`."""
    netdevs, rdma, soft = names_on(root, "net"), names_on(root, "infiniband"), soft_rdma(root)
    devices = pci(root)
    for entry in devices:
        entry["netdevs"] = netdevs.get(entry["bdf"], [])
        entry["rdma"] = rdma.get(entry["bdf"], []) + [r for n in entry["netdevs"] for r in soft.get(n, [])]
    return {
        "schema": 1,
        "host": platform.node(),
        "virtual": " hypervisor" in text(root / "proc/cpuinfo"),
        "numa": numa(root),
        "cores": cores(root),
        "devices": devices,
        "gpus": gpus() if root == Path("/") else [],
    }


def main() -> int:
    """Print the document."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/")
    print(json.dumps(document(root)))
    return 0


if __name__ == "__main__":
    if globals().get("__package__"):  # not read from standard input, where nothing else of us is
        from shakedown.records.program import ended

        ended(main)
    sys.exit(main())
