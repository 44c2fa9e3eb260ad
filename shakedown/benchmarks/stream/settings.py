"""What acceptance asks of STREAM, and the settings of one of its jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.base.contract import without
from shakedown.records.base import Record, shape

Kernel = Literal["copy", "scale", "add", "triad"]

_COMPILER = shape(r"^[A-Za-z0-9_./+-]+$", "a compiler's name or path", "gcc-13", max_length=400)


class Stream(Record):
    """Memory bandwidth of every NUMA node of every node."""

    # How many NUMA nodes each node has; one with more or fewer gives no value.
    numa_nodes: int = Field(ge=1, le=64)
    # What is judged. All four are always measured.
    kernels: tuple[Kernel, ...] = Field(default=("triad",), min_length=1)
    # Size of each of the three arrays, in MiB. STREAM's rule: at least four times the last-level cache.
    array_mib: int = Field(default=1024, ge=1)
    # How often each kernel runs; the best counts, as STREAM has it.
    times: int = Field(default=20, ge=2, le=1000)
    # The C compiler that builds our STREAM. software.stream names the site's own instead (McCalpin's, built
    # with the array size above).
    compiler: Annotated[str, _COMPILER] = "cc"
    # Seconds that one NUMA node may take.
    timeout_s: int = Field(default=300, gt=0)

    @property
    def elements(self) -> int:
        """Elements of each array: doubles of eight bytes."""
        return self.array_mib << 17


class StreamSettings(Stream):
    """The site's options."""

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "program")
