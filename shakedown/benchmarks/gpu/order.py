"""What the job that looks at the GPUs of every node is ordered to do."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from shakedown.benchmarks.base.options import without
from shakedown.benchmarks.gpu.options import GpuNode


class GpuNodeOrder(GpuNode):
    """The site's options, and how many GPUs each node has."""

    gpus: dict[str, int]

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "program")
