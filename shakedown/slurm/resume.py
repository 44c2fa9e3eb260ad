"""A run that was broken off, made ready to go on: whole stages are kept, the broken-off one is cleared."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from shlex import quote

from shakedown.plan.jobs import Jobs, job_and_attempt
from shakedown.records.base import Stage
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_bytes, read_record
from shakedown.run.folder import JOBS, PLAN, RAW

# Outside raw/, which is evidence: one empty file for each whole stage, one when the outputs were fetched.
STAGES, FETCHED = "stages", "fetched"


def whole_stages(run: Path) -> list[Stage]:
    """Return the stages after which the switches were read."""
    return [stage for stage in Stage if (run / STAGES / f"{stage.value}.done").is_file()]


def make_ready(run: Path, digests: dict[str, str]) -> list[Stage]:
    """Clear what is not whole of a run that was broken off, and return the stages that are kept.

    Args:
        run: its folder on the submit host.
        digests: SHA-256 of the controller's `plan.json` and `jobs.json`.

    Raises:
        BadInput: there is nothing to go on with, or the plan is another one.
    """
    if not (run / STAGES).is_dir() or not (run / JOBS).is_file():
        raise BadInput(
            "holds no run that was broken off", fix="start it without run_under_way=resume", file=run
        )
    if (run / STAGES / FETCHED).exists():
        raise BadInput(
            "is complete, and its outputs were fetched",
            fix="judge it with shakedown verdict, or give another run_id",
            file=run,
        )
    for name in (PLAN, JOBS):
        if hashlib.sha256(read_bytes(run / name)).hexdigest() != digests[name]:
            raise BadInput(
                "is not the controller's, so this is another run",
                fix=f"give another run_id, or remove the one here with rm -r {quote(str(run))}",
                file=run / name,
            )
    whole = whole_stages(run)
    broken = {job.name: job.stage for job in read_record(run / JOBS, Jobs).jobs if job.stage not in whole}
    for folder in (run / RAW).iterdir():
        if job_and_attempt(folder.name)[0] in broken and folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
    for stage in set(broken.values()):
        (run / RAW / f"reframe.{stage.value}.txt").unlink(missing_ok=True)
    return whole
