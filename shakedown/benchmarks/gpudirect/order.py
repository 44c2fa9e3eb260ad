"""What a job is ordered to measure: the mesh's specification, and of which memory."""

from __future__ import annotations

from shakedown.benchmarks.gpudirect.options import Interface, Path
from shakedown.benchmarks.perftest.order import MeshOrder
from shakedown.records.base import Record


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


class GpuDirectOrder(MeshOrder):
    """The mesh's own order, and how GPU memory is reached."""

    memory: Memory
