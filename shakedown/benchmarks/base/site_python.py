"""Programs of other environments, run by an interpreter that the site names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from shakedown.benchmarks.base.contract import Launch, module
from shakedown.records.places import SOURCE, WORKLOADS


def workload(name: str, out: Path, python: str, pythonpath: Iterable[str], *, gpus: int) -> Launch:
    """Return how a module of workloads/ is started; the site's interpreter finds it where it lies."""
    path = os.pathsep.join([str(SOURCE), str(WORKLOADS), *pythonpath])
    return Launch(words=module(name, out, python=python), gpus=gpus, variables={"PYTHONPATH": path})
