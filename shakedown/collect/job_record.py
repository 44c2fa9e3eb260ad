"""Whether what Slurm said of a job, as its folder keeps it, lets its outputs count.

ReFrame's guard has said so when the job ended. A run is judged from its raw files, so it is asked again: the
record of another job, or one that was written over, is no evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.results import JobRecord, Problem
from shakedown.records.wording import those


def shared_jobs(records: Iterable[tuple[str, JobRecord]]) -> dict[str, tuple[str, ...]]:
    """Return, by Slurm's job id, the folders that say they are that job's, where they are several."""
    folders: dict[str, list[str]] = defaultdict(list)
    for folder, job in records:
        if job.job is not None:
            folders[job.job].append(folder)
    return {job: tuple(sorted(names)) for job, names in folders.items() if len(names) > 1}


def as_kept(
    folder: str, job: JobRecord, spec: JobSpec | None, shared: Mapping[str, tuple[str, ...]]
) -> JobRecord:
    """Return a job's record, with a problem if it says that all is well and contradicts itself or its order.

    Args:
        folder: the name of the job's folder.
        job: the record in it.
        spec: what was planned, if it was.
        shared: as `shared_jobs` of all of the run's folders has it.
    """
    if spec is None or job.problem is not None or job.state != "COMPLETED":
        return job
    what = _flaw(folder, job, spec, shared)
    return job if not what else job.model_copy(update={"problem": Problem(kind="other", message=what[:2000])})


def _flaw(folder: str, job: JobRecord, spec: JobSpec, shared: Mapping[str, tuple[str, ...]]) -> str:
    _, attempt = job_and_attempt(folder)
    if set(job.nodes) != set(spec.nodes):
        ran = those(sorted(job.nodes), "node") if job.nodes else "nodes that are not known"
        return f"the job ran on {ran}, planned were {those(sorted(spec.nodes), 'node')}"
    if job.exit_code != "0:0":
        # Slurm never tells the one without the other (`shakedown.slurm.client.parse_show_job`).
        code = "no exit code" if job.exit_code is None else f"exit code {job.exit_code}: which of the two?"
        return f"Slurm says COMPLETED and {code}"
    if job.attempt != attempt:
        return f"the folder {folder} holds the record of attempt {job.attempt}"
    if folders := shared.get(job.job or ""):
        return f"{those(folders, 'folder')} say that they are Slurm's job {job.job}: at most one is"
    if job.started is None or job.duration_s is None:
        return "when the job ran is not known, so that what another time left cannot be told from its outputs"
    return ""
