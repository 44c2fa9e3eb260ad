"""What acceptance asks of the GPUs of every node."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shakedown.records.base import Record
from shakedown.records.shapes import shape

Bandwidth = Literal[
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "host_to_device_bidirectional_memcpy_ce",
    "device_to_device_memcpy_read_ce",
    "device_to_device_memcpy_write_ce",
    "device_to_device_bidirectional_memcpy_write_ce",
]

_LINK = shape(r"^(NV\d+|PIX|PXB|PHB|NODE|SYS)$", "a connection as nvidia-smi topo -m has it", "NV18")


class GpuState(Record):
    """What every GPU of a node must show. None: not checked, because the platform does not report it."""

    pcie_generation: int | None = Field(default=None, ge=1)  # under load; an idle link may be slower
    pcie_width: int | None = Field(default=None, ge=1)
    nvlinks: int | None = Field(default=None, ge=0)  # active ones of each GPU
    nvlink_gb_per_s: float | None = Field(default=None, gt=0)  # of each link, as `nvidia-smi nvlink -s` says
    topology: Annotated[str, _LINK] | None = None  # between GPUs
    numa: tuple[int, ...] | None = None  # NUMA node of GPU 0, 1, ...
    ecc: bool = True
    xid: bool = True  # the kernel log can be read and must hold no Xid of the driver


class GpuNode(Record):
    """The node stage: each GPU's own state, and nvbandwidth."""

    state: GpuState = GpuState()
    nvbandwidth: tuple[Bandwidth, ...] = ()
    # Run everything once unjudged. For virtual machines whose memory is given to them only when it is first
    # touched: copies through such memory are up to a quarter slower, once.
    warmup: bool = False
    timeout_s: int = Field(default=120, gt=0)

    @model_validator(mode="after")
    def _a_link_is_seen_under_load(self) -> Self:
        if (self.state.pcie_generation or self.state.pcie_width) and not self.nvbandwidth:
            raise ValueError(
                "state.pcie_generation and state.pcie_width are read under the load of nvbandwidth, which is "
                "not asked for: name one of its tests, such as host_to_device_memcpy_ce"
            )
        return self
