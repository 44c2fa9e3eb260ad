"""Programs of other environments, run by the interpreter of the site's own PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

from shakedown.benchmarks.base.contract import Launch, module
from shakedown.benchmarks.base.software import of, within
from shakedown.plan.jobs import JobSpec
from shakedown.records.places import SOURCE, WORKLOADS


def workload(name: str, job: JobSpec, out: Path, *software: str, gpus: int) -> Launch:
    """Return how a module of workloads/ is started with the first of these that the site names."""
    key, source = of(job, *software)
    python = source.interpreter if source else "python3"
    words, options = within(source, key, module(name, out, python=python), out, gpus=gpus > 0)
    path = os.pathsep.join([str(SOURCE), str(WORKLOADS), *(source.pythonpath if source else ())])
    return Launch(words=words, gpus=gpus, variables={"PYTHONPATH": path}, step_options=options)
