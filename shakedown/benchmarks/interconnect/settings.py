"""What acceptance asks of the way between CPU and GPU, and the settings of its jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.base.contract import without
from shakedown.records.base import Name, Record

# What is asked of the way to every GPU.
WHAT = ("hops", "speed", "width", "sharing", "numa")


class PlannedPath(Record):
    """The way from the root port to every GPU of a node, as the plan has it."""

    name: Name = "none"  # as the system's documentation numbers it: none, path1, ..., path4
    # None: not known as a figure; then all GPUs of the node must cross as many, and one at least unless the
    # path is called none.
    switch_hops: int | None = Field(default=0, ge=0, le=8)
    generation: Literal[3, 4, 5, 6]
    width: Literal[4, 8, 16] = 16
    # GPUs behind the busiest link of the way; None: not known, so what was read is shown and not judged.
    shared_by: int | None = Field(default=1, ge=1)
    numa_nodes: tuple[int, ...] | None = None  # to which node each GPU's processes are pinned, by GPU number

    def judged(self) -> tuple[str, ...]:
        """Return what of every GPU's way is held against this plan."""
        return tuple(what for what in WHAT if what != "sharing" or self.shared_by is not None)


class Copies(Record):
    """Copies between host and GPU. Defaults are nvbandwidth's."""

    at_once: tuple[int, ...] = (1,)
    size_mib: int = Field(default=512, gt=0)
    iterations: int = Field(default=16, gt=0)
    samples: int = Field(default=3, gt=0)
    far_pin: bool = False  # once more with host memory on another NUMA node


class Interconnect(Record):
    """The node stage's part: path of every GPU, and copy rates."""

    path: PlannedPath
    copies: Copies | None = None  # by software.pytorch; without it the path is read with the GPUs at rest


class _JobSettings(Record):
    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "python", "pythonpath")


class PathSettings(_JobSettings):
    """Read the way to every GPU of a node; PyTorch, where there is one, keeps the links awake meanwhile."""

    gpus: int
    path: PlannedPath


class CopiesSettings(_JobSettings):
    """Copy between host and GPUs: each alone and so many at once, with host memory near and far."""

    size_mib: int
    iterations: int
    samples: int
    gpus: int
    at_once: tuple[int, ...]
    pins: tuple[Literal["near", "far"], ...]
