"""Whether what Slurm said of a job, as its folder keeps it, lets its outputs count.

ReFrame's guard has said so when the job ended. A run is judged from its raw files, so it is asked again: the
record of another job, or one that was written over, is no evidence.
"""

from __future__ import annotations

from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.results import JobRecord, Problem
from shakedown.records.wording import those


def as_kept(folder: str, job: JobRecord, spec: JobSpec | None, *, timed: bool) -> JobRecord:
    """Return a job's record, with a problem if it says that all is well and contradicts itself or its order.

    Args:
        folder: the name of the job's folder.
        job: the record in it.
        spec: what was planned, if it was.
        timed: whether Slurm has told of this run's jobs when they ran.
    """
    if spec is None or job.problem is not None or job.state != "COMPLETED":
        return job
    what = _flaw(folder, job, spec, timed=timed)
    return job if not what else job.model_copy(update={"problem": Problem(kind="other", message=what[:2000])})


def _flaw(folder: str, job: JobRecord, spec: JobSpec, *, timed: bool) -> str:
    _, attempt = job_and_attempt(folder)
    if set(job.nodes) != set(spec.nodes):
        ran = those(sorted(job.nodes), "node") if job.nodes else "nodes that are not known"
        return f"the job ran on {ran}, planned were {those(sorted(spec.nodes), 'node')}"
    if job.exit_code not in (None, "0:0"):
        return f"Slurm says COMPLETED and exit code {job.exit_code}: which of the two?"
    if job.attempt != attempt:
        return f"the folder {folder} holds the record of attempt {job.attempt}"
    if timed and (job.started is None or job.duration_s is None):
        return "when the job ran is not known, so that what another time left cannot be told from its outputs"
    return ""
