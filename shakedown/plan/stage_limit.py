"""How long a stage may take, from what its jobs may take."""

from __future__ import annotations

from shakedown.plan.jobs import Jobs
from shakedown.plan.side_by_side import course
from shakedown.records.base import Stage

# sbatch may need its 60 s (job_submit_timeout in reframe_tests/settings.py), a job's end 30 s.
_EACH_JOB_S = 90
# ReFrame's start, and the two minutes that nodes get to report to a controller that was away.
_ONCE_S = 240


def stage_limit_s(jobs: Jobs, stage: Stage, *, retries: int = 0) -> int:
    """Return the seconds that a stage may take: its jobs at their limits, side by side."""
    own = [job for job in jobs.jobs if job.stage is stage]
    longest_s = course(own, lambda job: job.time_limit_s + _EACH_JOB_S, jobs.max_jobs).wall_s
    return longest_s * (1 + retries) + _ONCE_S + jobs.waits.slurm_silent_s + jobs.waits.queue_s
