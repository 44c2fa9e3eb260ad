"""What the job that looks at the GPUs of every node is ordered to do."""

from __future__ import annotations

from shakedown.benchmarks.gpu.options import GpuNode


class GpuNodeOrder(GpuNode):
    """The site's options, and how many GPUs each node has."""

    gpus: dict[str, int]
