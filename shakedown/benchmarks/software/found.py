"""What this run's config stage found of the software that a later job needs."""

from __future__ import annotations

import json
from pathlib import Path

from shakedown.plan.jobs import JobSpec
from shakedown.run.folder import RAW

JOB = "config.software"


def unusable_software(folder: Path, job: JobSpec) -> str:
    """Return why a job cannot run: which software on which node, and the fix; empty if nothing is known.

    Args:
        folder: the run's.
        job: what is to be run.
    """
    last = max((folder / RAW).glob(f"{JOB}.a*"), key=lambda place: place.stat().st_mtime, default=None)
    if last is None:
        return ""
    said = []
    for name in job.software:
        for node in job.nodes:
            try:
                document = json.loads((last / f"software.{node}.{name}.json").read_bytes())
                said.append(str(document["problem"]["message"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
    more = f"; and {len(said) - 3} more" if len(said) > 3 else ""
    return "; ".join(said[:3])[:1900] + more
