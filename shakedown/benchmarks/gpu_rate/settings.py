"""What acceptance asks of every GPU's own speed, and what one of its jobs is ordered to do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shakedown.records.base import Record

Work = Literal["bf16", "fp8", "copy"]


class GpuRate(Record):
    """Matrix products and memory copies on every GPU, all GPUs of a node at once."""

    # bf16 and fp8: products of square matrices; copy: from a GPU's memory into the same GPU's memory.
    work: tuple[Work, ...] = Field(default=("bf16", "copy"), min_length=1)
    # Windows of one second that count, of each kind of work.
    seconds: int = Field(default=30, ge=10, le=3600)
    # Seconds of the same work before the first window, until clocks and temperature have settled.
    warmup_s: int = Field(default=5, ge=0, le=600)
    # Side of the square matrices, in elements.
    matrix: int = Field(default=8192, ge=1024, le=65536, multiple_of=1024)
    # Bytes that one copy reads; it writes as many. Many times the cache.
    copy_bytes: int = Field(default=4 << 30, ge=1 << 26, multiple_of=4096)
    # By how much a GPU may lie behind the others of its node, a fraction of their median; needs six GPUs.
    behind: float = Field(default=0.02, gt=0, lt=1)

    @property
    def timeout_s(self) -> int:
        """Seconds until a node's run is ended: its windows, and a minute for PyTorch to start."""
        return 60 + len(self.work) * 2 * (self.seconds + self.warmup_s)


class GpuRateSettings(GpuRate):
    """The site's options, and how many GPUs each node has."""

    gpus: dict[str, int]
