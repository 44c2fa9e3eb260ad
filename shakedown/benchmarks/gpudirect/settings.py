"""What acceptance asks of GPUDirect by perftest, and a job's settings: the mesh's, and which memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.records.base import Record

Operation = Literal["write", "read", "send"]
Gpu = Literal["near", "far"]
# CUDA's options are --use_cuda and --use_cuda_dmabuf, ROCm's --use_rocm and --use_rocm_dmabuf.
Interface = Literal["cuda", "rocm"]
# How the NIC reaches the GPU's memory: by dma-buf, or by a peer-memory module (nvidia_peermem,
# ib_peer_mem, amdgpu's own).
Path = Literal["dma-buf", "peer-mem"]


class GpuDirect(Record):
    """perftest from GPU memory to GPU memory over every NIC, and from host memory beside it."""

    # What perftest runs: ib_write_bw, ib_read_bw, ib_send_bw.
    operations: tuple[Operation, ...] = Field(default=("write", "read", "send"), min_length=1)
    # Of which GPU the memory is: the nearest to the NIC, and one of the farthest.
    gpus: tuple[Gpu, ...] = Field(default=("near", "far"), min_length=1)
    # perftest must be built with it.
    interface: Interface = "cuda"
    # What is ordered of perftest, and proved by what it prints.
    path: Path = "dma-buf"
    # Of one message, in bytes.
    size_bytes: int = Field(default=1048576, ge=65536, le=1 << 30)
    # Seconds of each measurement; perftest counts the middle of it.
    duration_s: int = Field(default=4, ge=2, le=600)
    # Also both ways at once (perftest -b); the value is the sum of both.
    bidirectional: bool = False

    @field_validator("operations", "gpus")
    @classmethod
    def _each_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(named)) < len(named):
            raise ValueError("names one twice; once is enough")
        return named


class Memory(Record):
    """How perftest reaches GPU memory.

    Attributes:
        interface: what allocates it.
        path: how NICs reach it.
        gpus: how many the job has on each node.
    """

    interface: Interface
    path: Path
    gpus: int


class GpuDirectSettings(MeshSettings):
    """The mesh's own order, and how GPU memory is reached."""

    memory: Memory
