"""What a reader yields, and where it may look for what was ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shakedown.core.jobs import Jobs, job_and_attempt
from shakedown.core.records import Better, OutputRecord, Params
from shakedown.errors import BadInput
from shakedown.runs import JOBS, read_record


class Read(NamedTuple):
    """One number that a reader found, with everything that can be said of it."""

    metric: str
    value: float | None
    unit: str
    better: Better
    params: Params  # beyond those of the output
    detail: str = ""  # what the number stands for
    samples: tuple[float, ...] = ()  # repeats behind it


# What a reader yields is a `Read`, or its first fields as a plain tuple.
Value = (
    tuple[str, float | None, str, Better, Params]
    | tuple[str, float | None, str, Better, Params, str]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...]]
)
# (the output's text, its journal record, its path) to values; raises BadInput for what cannot be read.
Reader = Callable[[str, OutputRecord, Path], Iterator[Value]]


def job_settings(file: Path) -> dict[str, Any]:
    """Return the settings with which the planner ordered the job that wrote a file.

    From `jobs.json`, not from the copy among the raw files, which the job could have changed.
    """
    jobs = read_record(file.parents[2] / JOBS, Jobs)
    name, _ = job_and_attempt(file.parent.name)
    for spec in jobs.jobs:
        if spec.name == name:
            return spec.settings
    raise BadInput("no such job was planned", fix="see jobs.json", file=file.parent)
