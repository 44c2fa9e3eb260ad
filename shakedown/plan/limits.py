"""Time limits of jobs against what their partition allows.

Slurm refuses such a job when it is submitted (EnforcePartLimits) or lets it wait for ever, hours into a run.
So the plan is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from shakedown.intent.job_time import JobTime, minutes
from shakedown.plan.jobs import JobSpec
from shakedown.records.errors import BadInput


def refuse_longer(jobs: Iterable[JobSpec], allowed: JobTime | None) -> None:
    """Refuse jobs that their partition would refuse; `allowed` None: nothing is known of a limit.

    Raises:
        BadInput: naming the longest job, its time limit and the partition's.
    """
    if allowed is None or allowed.seconds is None:
        return
    longer = [job for job in jobs if minutes(job.time_limit_s) > minutes(allowed.seconds)]
    if not longer:
        return
    worst = max(longer, key=lambda job: job.time_limit_s)
    more = f", and {len(longer) - 1} more jobs are too long" if len(longer) > 1 else ""
    raise BadInput(
        f"job {worst.name} may take {worst.time_limit_s:,} s, but {allowed.said_by} allows "
        f"{allowed.seconds:,} s{more}",
        fix=allowed.fix,
    )


# What a job gets that asks for no time, where the playbooks make Slurm (role slurm, DefaultTime): a partition
# must allow that much.
DEFAULT_S = 600


def longest_s(jobs: Iterable[JobSpec]) -> int:
    """Return what a partition must allow its jobs, in seconds: the longest, and its own default."""
    return max(DEFAULT_S, *(job.time_limit_s for job in jobs), 0)
