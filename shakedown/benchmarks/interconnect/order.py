"""What the jobs of the interconnect benchmark are ordered to do."""

from __future__ import annotations

from typing import Literal

from shakedown.benchmarks.base.options import Program
from shakedown.benchmarks.interconnect.options import PlannedPath
from shakedown.records.base import Record


class PathOrder(Record):
    """Read the way to every GPU of a node; `python` (PyTorch) keeps the links awake meanwhile."""

    python: Program | None
    pythonpath: tuple[Program, ...]
    gpus: int
    path: PlannedPath


class CopiesOrder(Record):
    """Copy between host and GPUs: each alone and so many at once, with host memory near and far."""

    python: Program
    pythonpath: tuple[Program, ...]
    size_mib: int
    iterations: int
    samples: int
    gpus: int
    at_once: tuple[int, ...]
    pins: tuple[Literal["near", "far"], ...]
