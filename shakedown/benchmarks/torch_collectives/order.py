"""What one job of the collectives through PyTorch is ordered to measure."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from shakedown.benchmarks.base.options import without
from shakedown.benchmarks.base.tcp import TcpPaths
from shakedown.benchmarks.torch_collectives.options import TorchCollectives
from shakedown.records.base import Params


class TorchOrder(TorchCollectives):
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
