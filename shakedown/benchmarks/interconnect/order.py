"""What the jobs of the interconnect benchmark are ordered to do."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from shakedown.benchmarks.base.options import without
from shakedown.benchmarks.interconnect.options import PlannedPath
from shakedown.records.base import Record


class _Order(Record):
    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401
        return without(settings, "python", "pythonpath")


class PathOrder(_Order):
    """Read the way to every GPU of a node; PyTorch, where there is one, keeps the links awake meanwhile."""

    gpus: int
    path: PlannedPath


class CopiesOrder(_Order):
    """Copy between host and GPUs: each alone and so many at once, with host memory near and far."""

    size_mib: int
    iterations: int
    samples: int
    gpus: int
    at_once: tuple[int, ...]
    pins: tuple[Literal["near", "far"], ...]
