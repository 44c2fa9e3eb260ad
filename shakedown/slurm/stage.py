"""One stage on the submit host: ReFrame within the stage's time limit, and nothing of it left behind.

    python -m shakedown.slurm.stage HOME RUN STAGE --ticket TOKEN [--retries N] [--at-most S] -- REFRAME ...

ReFrame's exit status is no verdict: a test that fails is judged later, from its files. What did not come to
an end gets a reason in the run, so that the report says it.
"""

import argparse
import hashlib
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from shakedown.plan.jobs import Jobs, JobSpec, job_and_attempt
from shakedown.plan.time_limits import stage_limit_s
from shakedown.records.base import Stage, to_json
from shakedown.records.program import ended, plain_environment, status_of, users_wishes
from shakedown.records.reading import BadInput, read_record
from shakedown.records.results import JobRecord, RunProblem
from shakedown.run import chain, service
from shakedown.run.folder import JOBS, ORDER, RAW
from shakedown.run.lock import RunLock
from shakedown.run.share import Share
from shakedown.slurm.client import Slurm
from shakedown.slurm.under_way import cancel_own

_KILL_AFTER_S = 60  # ReFrame can swallow the first signal
_UNTOLD = "ReFrame did not see the end of this job: raw/reframe.{stage}.txt has what it printed"


def run_reframe(run: Path, stage: Stage, argv: list[str], limit_s: int) -> str:
    """Run ReFrame and return why it did not come to its end by itself; empty if it did."""
    began = time.monotonic()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with Share(run).open(run / RAW / f"reframe.{stage.value}.txt", flags) as printed:
        # By timeout(1): it outlives us, and ends ReFrame with all that it started.
        call = ["timeout", f"--kill-after={_KILL_AFTER_S}", str(limit_s), *argv]
        if left_out := users_wishes(os.environ):
            os.write(printed, f"shakedown: {left_out}\n".encode())
        status = subprocess.run(
            call,
            cwd=run,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            check=False,
            env=plain_environment(os.environ),
        ).returncode
    if time.monotonic() - began >= limit_s:
        return f"the {stage.value} stage was ended at its time limit of {limit_s} s"
    # 1: a test failed, which its files tell.
    return "" if status in (0, 1) else f"ReFrame ended with status {status} in the {stage.value} stage"


def unended(run: Path, jobs: Jobs, stage: Stage, why: str, cancelled: Mapping[str, str]) -> int:
    """Write down why jobs of the stage have not ended; return how many.

    `cancelled` are the jobs, by name, that were taken out of Slurm.
    """
    count = 0
    for spec in (spec for spec in jobs.jobs if spec.stage is stage):
        folders = [f for f in (run / RAW).glob(f"{spec.name}.a*") if job_and_attempt(f.name)[0] == spec.name]
        attempt = max((job_and_attempt(folder.name)[1] for folder in folders), default=1)
        folder = run / RAW / f"{spec.name}.a{attempt}"
        if _has_ended(folder):
            continue
        job = cancelled.get(spec.name)
        message = why or _UNTOLD.format(stage=stage.value)
        message = f"{message}; job {job} was cancelled" if job else message
        share = Share(run)
        share.make_folder(folder)
        share.write(folder / "job.json", to_json(_record(jobs, spec, attempt, job, message)))
        if job and (run / ORDER).is_file():
            ordered = hashlib.sha256(share.read(run / ORDER)).hexdigest()
            chain.add(run / RAW, folder.name, ordered, "", service.signer())
        count += 1
    return count


def _record(jobs: Jobs, spec: JobSpec, attempt: int, job: str | None, message: str) -> JobRecord:
    return JobRecord(
        run=jobs.run,
        stage=spec.stage,
        test=spec.name,
        attempt=attempt,
        job=job,
        state="CANCELLED" if job else "NOT-SUBMITTED",
        problem=RunProblem(kind="killed", message=message),
    )


def _has_ended(folder: Path) -> bool:
    try:
        record = read_record(folder / "job.json", JobRecord)
    except BadInput:
        return False
    return record.state != "NOT-SUBMITTED" or record.problem is not None


def main() -> int:
    """Run a stage; return the exit status: 0, or 2 where it was not run at all."""
    parser = argparse.ArgumentParser(prog="python -m shakedown.slurm.stage", description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("stage", type=Stage)
    parser.add_argument("--ticket", required=True)
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--at-most", type=int, help="seconds, where less than by the plan is wanted")
    parser.add_argument("reframe", nargs="+")
    options = parser.parse_args()
    return status_of(lambda: run_stage(options))


def run_stage(options: argparse.Namespace) -> None:
    """Run a stage as the arguments say. Raises BadInput where it was not run at all."""
    holder = RunLock(options.home).holder()
    if holder is None or holder.ticket != options.ticket:
        whose = f"run {holder.run} of {holder.user} on {holder.controller}" if holder else "no run"
        raise BadInput(
            f"this run does not hold the submit host any more, {whose} does",
            fix="somebody ended it; start it again",
        )
    jobs = read_record(options.run / JOBS, Jobs)
    limit_s = stage_limit_s(jobs, options.stage, retries=options.retries)
    os.umask(os.umask(0o077) | 0o022)  # sbatch hands it on: what jobs write is theirs alone to change
    why = run_reframe(options.run, options.stage, options.reframe, min(limit_s, options.at_most or limit_s))
    cancelled: dict[str, str] = {}
    try:
        cancelled = cancel_own(options.run, Slurm())
    except BadInput as error:
        print(f"jobs of this run may be left in Slurm: {error}")
    count = unended(options.run, jobs, options.stage, why, cancelled)
    if why or count:
        print(f"{why or 'ReFrame has ended'}; {count} jobs did not come to their end")


if __name__ == "__main__":
    ended(main)
