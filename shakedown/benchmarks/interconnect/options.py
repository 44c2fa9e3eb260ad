"""What acceptance asks of the way between CPU and GPU."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.base.options import Program
from shakedown.records.base import Name, Record

# What is asked of the way to every GPU.
WHAT = ("hops", "speed", "width", "sharing", "numa")


class PlannedPath(Record):
    """The way from the root port to every GPU of a node, as the plan has it."""

    name: Name = "none"  # as the system's documentation numbers it: none, path1, ..., path4
    # None for these two: no value is planned, so the report shows what was read without judging it.
    switch_hops: int | None = Field(default=0, ge=0, le=8)
    generation: Literal[3, 4, 5, 6]
    width: Literal[4, 8, 16] = 16
    shared_by: int | None = Field(default=1, ge=1)  # GPUs behind the busiest link of the way
    numa_nodes: tuple[int, ...] | None = None  # to which node each GPU's processes are pinned, by GPU number

    def judged(self) -> tuple[str, ...]:
        """Return what of every GPU's way is held against this plan."""
        unknown = {"hops": self.switch_hops is None, "sharing": self.shared_by is None}
        return tuple(what for what in WHAT if not unknown.get(what))


class Copies(Record):
    """Copies between host and GPU. Defaults are nvbandwidth's."""

    at_once: tuple[int, ...] = (1,)
    size_mib: int = Field(default=512, gt=0)
    iterations: int = Field(default=16, gt=0)
    samples: int = Field(default=3, gt=0)
    far_pin: bool = False  # once more with host memory on another NUMA node


class Interconnect(Record):
    """The node stage's part: path of every GPU, and copy rates."""

    python: Program | None = None  # None: no PyTorch; the path is read with the GPUs at rest
    pythonpath: tuple[Program, ...] = ()
    path: PlannedPath
    copies: Copies | None = None

    @model_validator(mode="after")
    def _copies_need_pytorch(self) -> Interconnect:
        if self.copies and self.python is None:
            raise ValueError("copies need python, an interpreter with PyTorch")
        return self
