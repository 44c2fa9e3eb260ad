"""Which memory perftest says that it used: of which GPU, and on which path.

Lines are those of perftest's sources, 4.5 to 26.x: cuda_memory.c and rocm_memory.c, before 24.01
perftest_resources.c (pp_init_gpu, pp_init_rocm).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LISTED = re.compile(r"CUDA device (\d{1,3}): PCIe address is ([0-9A-Fa-f]{2,4}):([0-9A-Fa-f]{2})\s*\Z")
_PICKED = re.compile(r"Picking device No\. (\d{1,3})\s*\Z")
_ROCM = re.compile(r"Using ROCm Device with ID: \d{1,3}, Name: .{0,200}, PCI Bus ID: 0x([0-9a-fA-F]{1,4}), ")
_BUFFER = re.compile(r"allocated (?:\d+ bytes of )?GPU buffer ")
_DMABUF = "using DMA-BUF for GPU buffer address at "


@dataclass(frozen=True)
class Used:
    """What one side of perftest printed of its memory.

    Attributes:
        gpu: whether its buffer is a GPU's.
        path: of a GPU's buffer, dma-buf or peer-mem: perftest registers the GPU's address itself where it
            names no dma-buf, which only a peer-memory module makes possible.
        address: of the GPU, as far as it was printed: `18:00`, ROCm's `18`; empty: not printed.
    """

    gpu: bool
    path: str
    address: str

    def is_of(self, bdf: str) -> bool:
        """Whether the GPU is the one with this PCI address."""
        bus_and_device = bdf.partition(":")[2].partition(".")[0]
        return bool(self.address) and bus_and_device.startswith(self.address)


def used(text: str) -> Used:
    """Return what an output says of its memory."""
    listed: dict[str, str] = {}
    picked = address = ""
    gpu = dmabuf = False
    for raw in text.splitlines():
        line = raw.strip()
        if found := _LISTED.match(line):
            listed[found[1]] = f"{found[2]}:{found[3]}".lower()
        elif found := _PICKED.match(line):
            picked = found[1]
        elif found := _ROCM.match(line):
            address = f"{int(found[1], 16):02x}"
        gpu = gpu or _BUFFER.match(line) is not None
        dmabuf = dmabuf or line.startswith(_DMABUF)
    return Used(gpu or dmabuf, "dma-buf" if dmabuf else "peer-mem", listed.get(picked, "") or address)
