"""What this run's config stage found of the software that a later job needs."""

from __future__ import annotations

import json
from pathlib import Path

from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_evidence
from shakedown.run.folder import RAW

JOB = "config.software"


def last_attempt(folder: Path) -> Path | None:
    """Return the folder of the run's last attempt at this job, by its number; None: there was none.

    Not by its time, which a copy of the run changes. What no job.json stands beside was no job.
    """
    found = [
        place
        for place in (folder / RAW).glob(f"{JOB}.a*/job.json")
        if job_and_attempt(place.parent.name)[0] == JOB and not place.parent.is_symlink()
    ]
    return max((p.parent for p in found), key=lambda p: (job_and_attempt(p.name)[1], p.name), default=None)


def unusable_software(folder: Path, job: JobSpec) -> str:
    """Return why a job cannot run: which software on which node, and the fix; empty if nothing is known.

    Args:
        folder: the run's.
        job: what is to be run.
    """
    last = last_attempt(folder)
    if last is None:
        return ""
    said = []
    for name in job.software:
        for node in job.nodes:
            try:
                document = json.loads(read_evidence(last / f"software.{node}.{name}.json"))
                said.append(str(document["problem"]["message"]))
            except (BadInput, OSError, ValueError, KeyError, TypeError, RecursionError):
                continue
    more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
    return "; ".join(said[:3])[:1900] + more
