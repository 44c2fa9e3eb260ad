"""What acceptance asks of the collectives through PyTorch, and the settings of one job."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from shakedown.benchmarks.base.contract import TcpPaths, without
from shakedown.benchmarks.nccl.settings import Variable
from shakedown.records.base import Params, Record

TorchOperation = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast"]


class TorchCollectives(Record):
    """The second opinion: the same collectives through PyTorch, which needs nothing but PyTorch."""

    backend: Literal["nccl", "gloo"] = "nccl"
    nodes: int | None = Field(default=None, ge=1)  # how many at once; None: all
    # Empty: only one large message against many, without a sweep of sizes.
    operations: tuple[TorchOperation, ...] = ("all_reduce",)
    min_bytes: int = Field(default=64, gt=0, multiple_of=64)
    max_bytes: int = Field(default=64, gt=0, multiple_of=64)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=20, gt=0)
    # One message of the first size against `many` of the second: what a framework's small buckets cost.
    large_bytes: int = Field(default=4_000_000_000, gt=0, multiple_of=64)
    many: int = Field(default=0, ge=0)  # 0: not compared
    # Nodes that compare them at once; none means as many as the sweep.
    many_nodes: int | None = Field(default=None, ge=1)
    variables: dict[Variable, str] = Field(default_factory=dict)
    timeout_s: int = Field(default=300, gt=0)

    @model_validator(mode="after")
    def _asks_for_something(self) -> TorchCollectives:
        if not self.operations and not self.many:
            raise ValueError("neither operations nor many: nothing to run")
        if self.many == 1:
            raise ValueError("many: 1 compares one large message with itself, give 2 or more")
        if self.operations and not {"min_bytes", "max_bytes"} <= self.model_fields_set:
            raise ValueError("operations need min_bytes and max_bytes")
        return self

    def sweep_sizes(self) -> tuple[int, ...]:
        """Return the sizes in bytes."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.factor)
        return tuple(sizes)


class TorchSettings(TorchCollectives):
    """The site's options, the sizes in bytes that they mean, ranks by node, and its cells' own parameters."""

    sizes: tuple[int, ...]
    ranks: dict[str, int]
    shared_gpus: tuple[str, ...] = ()
    # What is looked at before anything is measured over TCP, by node.
    paths: TcpPaths = Field(default_factory=dict)
    params: Params
    # As the plan has them: what a run is compared by is read even if a site could not ask for it today.
    variables: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "python")
