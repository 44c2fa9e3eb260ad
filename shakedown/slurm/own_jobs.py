"""The jobs that a run has in Slurm, told from all others by their working directory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from shakedown.records.errors import BadInput
from shakedown.slurm.client import Slurm

_EVERY_S = 2.0
_GONE_S = 180.0  # KillWait is 30 s where nobody changed it; an epilog may follow


def own_jobs(run: Path, slurm: Slurm, *, ended_too: bool = False) -> list[str]:
    """Return our user's jobs whose working directory lies below the run's folder.

    `ended_too`: also those that have ended and whose nodes are still being cleaned up.

    Raises:
        BadInput: Slurm does not answer (NoAnswer), or refuses.
    """
    states = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED" + (",COMPLETING" if ended_too else "")
    said = slurm.ask("squeue", "--noheader", "--me", f"--states={states}", "--format=%i|%Z")
    places = {run.absolute(), run.resolve()}
    found = []
    for line in said.splitlines():
        job, _, directory = line.strip().partition("|")
        path = Path(directory)
        if re.fullmatch(r"[0-9]+", job) and ".." not in path.parts and places & {path, *path.parents}:
            found.append(job)
    return found


def names_of(jobs: Iterable[str], slurm: Slurm) -> dict[str, str]:
    """Return the jobs by the name that each has in Slurm. Raises BadInput as `own_jobs` does."""
    said = slurm.ask("squeue", "--noheader", "--me", "--format=%i|%j")
    by_id = dict(line.strip().partition("|")[::2] for line in said.splitlines())
    return {by_id[job]: job for job in jobs if job in by_id}


def cancel_own(run: Path, slurm: Slurm) -> dict[str, str]:
    """Cancel what the run has in Slurm, wait until it is gone, and return the jobs by their names.

    Raises:
        BadInput: Slurm does not answer (NoAnswer), or jobs do not end.
    """
    jobs = own_jobs(run, slurm)
    if not jobs:
        return {}
    named = names_of(jobs, slurm)
    slurm.ask("scancel", *jobs)
    deadline = time.monotonic() + _GONE_S
    while left := own_jobs(run, slurm, ended_too=True):
        if time.monotonic() > deadline:
            raise BadInput(f"jobs {', '.join(left)} do not end", fix="look at them with scontrol show job")
        time.sleep(_EVERY_S)
    return named
