"""What a reader yields, and where it may look for what was ordered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.base import Better, Params
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_record
from shakedown.records.results import OutputRecord
from shakedown.run.folder import JOBS


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

    From `jobs.json`, not from the copy among the raw files, which the job could have changed. They are
    everybody's who asks: do not change them.

    Raises:
        BadInput: `jobs.json` cannot be read, or has no such job.
    """
    path = file.parents[2] / JOBS
    found = path.lstat() if os.path.lexists(path) else None
    # Read again only when it was changed: a mesh has an output for each pair, rail and direction.
    state = found and (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    name, _ = job_and_attempt(file.parent.name)
    settings = _settings_of_jobs(path, state).get(name)
    if settings is None:
        raise BadInput("no such job was planned", fix="see jobs.json", file=file.parent)
    return settings


@lru_cache(maxsize=1)
def _settings_of_jobs(path: Path, _state: tuple[int, ...] | None) -> dict[str, dict[str, Any]]:
    """Return the settings of every job in a file; `_state` tells one content of the file from another."""
    return {spec.name: spec.settings for spec in read_record(path, Jobs).jobs}
