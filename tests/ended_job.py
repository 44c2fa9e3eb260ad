"""What a job that ended well leaves beside its outputs, for tests that write a job's folder of their own."""

from __future__ import annotations

import json
from pathlib import Path

from shakedown.evidence.contents import given
from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.reading import read_record

# What Slurm says of it. Outputs carry the time of their fixture, or of the machine that runs the test: all
# lie within.
ENDED = {"state": "COMPLETED", "exit_code": "0:0", "started": "2020-01-01T00:00:00Z", "duration_s": 1e9}


def leave_the_rest(run: Path) -> None:
    """Write what every job leaves into the folders of a run's jobs; beside its order, what is not there."""
    specs = {spec.name: spec for spec in read_record(run / "jobs.json", Jobs).jobs}
    for record in run.glob("raw/*/job.json"):
        folder, job = record.parent, json.loads(record.read_text())
        spec = specs[job_and_attempt(folder.name)[0]]
        files = {"nodes.txt": "".join(f"{node}\n" for node in job["nodes"]), **given(spec)}
        for node in spec.nodes:
            for when in ("before", "after"):
                files[f"counters.{node}.{when}.json"] = json.dumps(
                    {"schema": 1, "node": node, "when": when, "devices": []}
                )
        for name, text in files.items():
            if name in ("spec.json", "software.json") or not (folder / name).exists():
                (folder / name).write_text(text)
