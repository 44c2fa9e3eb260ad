"""How far two PCI devices are from each other, by the bridges above them.

Standard library only: nodes use it. Distances are those of `nvidia-smi topo -m` and NCCL: PIX, PXB, PHB,
NODE, SYS, from near to far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum


class Distance(StrEnum):
    """How a path between two PCI devices runs (`nvidia-smi topo -m`), nearest first."""

    PIX = "PIX"  # at most one PCIe switch
    PXB = "PXB"  # several PCIe switches, not the host bridge
    PHB = "PHB"  # the PCIe host bridge
    NODE = "NODE"  # several host bridges of one NUMA node
    SYS = "SYS"  # from one NUMA node to another


NEAREST_FIRST = list(Distance)
NVIDIA, AMD = "0x10de", "0x1002"


def is_gpu(pci_class: str, vendor: str) -> bool:
    """Whether it is a display controller or accelerator of NVIDIA or AMD; a server's own VGA chip is none."""
    return pci_class.startswith(("0x03", "0x12")) and vendor in (NVIDIA, AMD)


def between(a: Sequence[str], b: Sequence[str], *, one_root: bool, one_numa_node: bool) -> Distance:
    """Return how the path between two devices runs.

    Args:
        a, b: the addresses of the bridges above each, from the root down.
        one_root: whether they hang on one host bridge.
        one_numa_node: whether they are on one NUMA node.
    """
    same = sum(1 for _ in common(a, b))
    if same:
        # A switch is an upstream port with downstream ports below it: two ports off the common path are
        # the two sides of one switch.
        off = len(a) + len(b) - 2 * same
        return Distance.PIX if off <= 2 else Distance.PXB
    if one_root:
        return Distance.PHB
    return Distance.NODE if one_numa_node else Distance.SYS


def common(a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    """Yield the bridges that are above both."""
    for x, y in zip(a, b, strict=False):
        if x != y:
            return
        yield x
