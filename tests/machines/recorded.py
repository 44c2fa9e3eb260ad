"""Recorded machines: a description of published facts becomes the files that the probes read.

Each YAML file beside this names its sources, and what of it nobody has published and was made. Counters have
the names of the kernel's sources (nics/counter_sets.yml); their values are 7 everywhere.
"""

import struct
from pathlib import Path
from typing import Any

import yaml

from shakedown.nics.counter_sets import RDMA

HERE = Path(__file__).parent
# Every machine with every driver stack that its file has.
CASES = [
    (file.stem, stack)
    for file in sorted(HERE.glob("*.yaml"))
    for stack in yaml.safe_load(file.read_text())["stacks"]
]
_RDMA_DRIVER = {"mlx5_core": "mlx5_ib", "bnxt_en": "bnxt_re"}
_CLASS_NIC, _CLASS_BRIDGE = "0x020000", "0x060400"
# Device Control: payload 256, read request 512, relaxed ordering on (PCI Express Base Specification).
DEVICE_CONTROL, ACS_ON = 0x2930, 0x001D


class Machine:
    """A recorded machine with one of its driver stacks."""

    def __init__(self, name: str, stack: str) -> None:
        self.data: dict[str, Any] = yaml.safe_load((HERE / f"{name}.yaml").read_text())
        self.stack: dict[str, Any] = self.data["stacks"][stack]
        self.gpus: list[dict[str, Any]] = self.data["gpus"]["at"]
        self.fabric: list[dict[str, Any]] = [self._nic(nic) for nic in self.data["nics"]["fabric"]]
        self.others: list[dict[str, Any]] = [self._nic(nic) for nic in self.data["nics"]["others"]]

    def _nic(self, nic: dict[str, Any]) -> dict[str, Any]:
        kind = self.data["nics"]
        return {"ids": kind["ids"], "driver": kind["driver"], **nic, "rdma": self.rdma(nic.get("rdma"), nic)}

    def rdma(self, name: str | None, nic: dict[str, Any] | None = None) -> str | None:
        """The RDMA device's name in this stack: rdma-core names it after its place, rocep24s0."""
        kind = self.data["nics"]
        nic = nic or next(n for n in (*kind["fabric"], *kind["others"]) if n.get("rdma") == name)
        if name is None or not self.stack.get("renamed"):
            return name
        bus, _, slot = bdf_of(nic["path"])[5:].partition(":")
        device, _, function = slot.partition(".")
        several = "f" in nic["netdev"].removeprefix("enp").partition("np")[0]
        return f"rocep{int(bus, 16)}s{int(device, 16)}" + (f"f{function}" if several else "")

    def plant(self, root: Path) -> None:
        """Write the machine's files below a root."""
        for gpu in self.gpus:
            vendor, device, kind = self.data["gpus"]["ids"]
            folder = self._function(root, gpu, kind, vendor, device, self.data["gpus"]["driver"])
            size = self.data["gpus"]["bar_gib"] << 30
            put(folder / "resource", f"0x1000000000 {0x1000000000 + size - 1:#x} 0x14220c")
        for nic in (*self.fabric, *self.others):
            self._plant_nic(root, nic)
        for node, cpus in self.data["numa"].items():
            put(root / f"sys/devices/system/node/node{node}/cpulist", cpus)
            put(root / f"sys/devices/system/node/node{node}/distance", "10 21")
        put(root / "proc/cpuinfo", "flags : fpu vme sse2")
        put(root / "proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt")
        put(root / "proc/sys/kernel/osrelease", self.stack["kernel"])
        for path, text in self.stack["tree"].items():
            put(root / path.lstrip("/"), text)

    def _plant_nic(self, root: Path, nic: dict[str, Any]) -> None:
        vendor, device = nic["ids"]
        folder = self._function(root, nic, _CLASS_NIC, vendor, device, nic["driver"])
        netdev, up = nic["netdev"], not nic.get("down")
        interface = folder / "net" / netdev
        for name, text in (("speed", f"{nic['gbps'] * 1000 if up else -1}"), ("mtu", "9000")):
            put(interface / name, text)
        put(interface / "operstate", "up" if up else "down")
        for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped"):
            put(interface / "statistics" / name, "7")
        link(interface / "device", folder)
        link(root / "sys/class/net" / netdev, interface)
        if nic["rdma"] is None:
            return
        rdma = folder / "infiniband" / nic["rdma"]
        put(rdma / "ports/1/link_layer", "Ethernet")
        put(rdma / "ports/1/state", "4: ACTIVE" if up else "1: DOWN")
        put(rdma / "ports/1/gid_attrs/ndevs/0", netdev)
        sets = next(one for one in RDMA if one.driver == _RDMA_DRIVER[nic["driver"]])
        for name in sets.always.union(*sets.together):
            put(rdma / "ports/1/hw_counters" / name, "7")
        link(rdma / "device", folder)
        link(root / "sys/class/infiniband" / nic["rdma"], rdma)

    def _function(
        self, root: Path, one: dict[str, Any], kind: str, vendor: str, device: str, driver: str
    ) -> Path:
        """Write a PCI function and the bridges above it."""
        steps = [f"0000:{step}" for step in one["path"].split("/")]
        folder = root / f"sys/devices/pci{steps[0][:7]}"
        for place, bdf in enumerate(steps):
            folder = folder / bdf
            last = place + 1 == len(steps)
            if not last and (folder / "class").exists():
                continue
            put(folder / "class", kind if last else _CLASS_BRIDGE)
            put(folder / "vendor", vendor if last else "0x1000")
            put(folder / "device", device if last else "0xc030")
            put(folder / "numa_node", str(one["numa"]))
            put(folder / "local_cpulist", self.data["numa"][one["numa"]])
            for which in ("current", "max"):
                put(folder / f"{which}_link_speed", "32.0 GT/s PCIe")
                put(folder / f"{which}_link_width", "16")
            # Root ports and the switches' downstream ports can redirect; bridges' config is a device's.
            (folder / "config").write_bytes(config_space(acs=not last))
            link(root / "sys/bus/pci/devices" / bdf, folder)
        place_of_driver = root / "sys/bus/pci/drivers" / driver
        place_of_driver.mkdir(parents=True, exist_ok=True)
        link(folder / "driver", place_of_driver)
        return folder

    def registers(self) -> dict[str, str]:
        """What setpci reads of GPUs, NICs and bridges."""
        found: dict[str, str] = {}
        for one in (*self.gpus, *self.fabric, *self.others):
            *bridges, bdf = (f"0000:{step}" for step in one["path"].split("/"))
            found[f"{bdf} CAP_EXP+8.w"] = f"{DEVICE_CONTROL:04x}"
            found |= {f"{bridge} ECAP_ACS+0x6.w": f"{ACS_ON:04x}" for bridge in bridges}
        return found

    def between(self) -> list[str]:
        """The bridges below the common one of each GPU and its nearest NIC."""
        paths = {nic["rdma"]: nic["path"].split("/")[:-1] for nic in self.fabric}
        found: set[str] = set()
        for gpu in self.gpus:
            mine, nearest = gpu["path"].split("/")[:-1], paths[self.rdma(gpu["nearest"])]
            shared = [a for a, b in zip(mine, nearest, strict=False) if a == b]
            if shared:
                found |= {*mine, *nearest} - set(shared)
        return sorted(f"0000:{step}" for step in found)


def bdf_of(path: str) -> str:
    """The address at the end of a path as `lspci -PP` prints it."""
    return f"0000:{path.rpartition('/')[2]}"


def config_space(*, acs: bool) -> bytes:
    """A configuration space with a PCI Express capability, and access control services if asked."""
    config = bytearray(0x200)
    config[0x34] = 0x60
    config[0x60] = 0x10
    struct.pack_into("<IH", config, 0x64, 1, DEVICE_CONTROL)
    if acs:
        struct.pack_into("<IHH", config, 0x100, 0x0001000D, 0x001F, ACS_ON)
    return bytes(config)


def put(file: Path, text: str) -> None:
    """Write one file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def link(name: Path, target: Path) -> None:
    """Make one symbolic link, which is there already where two devices share a bridge."""
    name.parent.mkdir(parents=True, exist_ok=True)
    if not name.is_symlink():
        name.symlink_to(target)
