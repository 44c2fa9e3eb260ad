"""Which GPU of this node is nearest to each NIC, and which is farthest. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shakedown.benchmarks.gpudirect.names import FAR, NEAR
from shakedown.onnode.topology_probe import names_on, pci
from shakedown.topology.distance import AMD, NEAREST_FIRST, NVIDIA, between, is_gpu

_VENDORS = {"cuda": NVIDIA, "rocm": AMD}


@dataclass(frozen=True)
class Gpu:
    """A GPU as seen from one NIC.

    Attributes:
        index: its number in the order of PCI addresses, which CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA's own.
        bdf: its PCI address.
        distance: of nvidia-smi topo -m.
    """

    index: int
    bdf: str
    distance: str

    def told(self) -> dict[str, Any]:
        """Return it as the node notes it."""
        return asdict(self)


def gpus_of_nics(
    root: Path, rdma_devices: Mapping[str, str], interface: str
) -> tuple[dict[tuple[str, str], Gpu], dict[tuple[str, str], str]]:
    """Return the near and the far GPU of each NIC, by rail, and why there is none.

    Args:
        root: above sys/.
        rdma_devices: RDMA device by rail.
        interface: cuda or rocm.
    """
    devices = pci(root)
    by_device = {name: bdf for bdf, names in names_on(root, "infiniband").items() for name in names}
    functions = {entry["bdf"]: entry for entry in devices}
    gpus = sorted(
        (e for e in devices if is_gpu(e["class"], e["vendor"]) and e["vendor"] == _VENDORS[interface]),
        key=lambda entry: str(entry["bdf"]),
    )
    found: dict[tuple[str, str], Gpu] = {}
    lacking: dict[tuple[str, str], str] = {}
    for rail, device in rdma_devices.items():
        nic = functions.get(by_device.get(device, ""))
        if nic is None or not gpus:
            what = f"{device} is on no PCI device" if nic is None else f"no GPU that {interface} can use"
            lacking |= {(rail, which): what for which in (NEAR, FAR)}
            continue
        seen = _seen_from(nic, gpus)
        near, far = min(seen, key=_far), max(seen, key=_far)
        found[rail, NEAR] = near
        if far.distance == near.distance:
            lacking[rail, FAR] = f"no GPU is farther from {device} than the nearest ({near.distance})"
        else:
            found[rail, FAR] = far
    return found, lacking


def _far(gpu: Gpu) -> tuple[int, str]:
    return NEAREST_FIRST.index(next(d for d in NEAREST_FIRST if d == gpu.distance)), gpu.bdf


def _seen_from(nic: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> list[Gpu]:
    return [
        Gpu(
            index,
            gpu["bdf"],
            between(
                gpu["path"],
                nic["path"],
                one_root=bool(nic["root"]) and gpu["root"] == nic["root"],
                one_numa_node=nic["numa_node"] is not None and gpu["numa_node"] == nic["numa_node"],
            ).value,
        )
        for index, gpu in enumerate(gpus)
    ]
