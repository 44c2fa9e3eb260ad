"""How long a plan is expected to take and may take, stage by stage."""

from __future__ import annotations

from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.plan.side_by_side import course
from shakedown.records.base import Stage
from shakedown.records.expectation import Expectation, StageTime

# From one job's end to the next one's start on the same nodes: submission, polling, prologue.
BETWEEN_S = 5
_BETWEEN = (
    f"{BETWEEN_S} s between two jobs on one node: 2 to 14 s in an emulated lab, 0 to 5 s on a host with H200 "
    "(recorded runs lab_healthy, h200_int8, h200x4_nccl)"
)


def expected_s(job: JobSpec) -> int:
    """Return how long a job is expected to take, in seconds: its limit where nothing is known."""
    own = job.time_limit_s if job.expected_s is None else min(job.expected_s, job.time_limit_s)
    return own + BETWEEN_S


def limit_s(job: JobSpec) -> int:
    """Return how long a job may take, in seconds."""
    return job.time_limit_s + BETWEEN_S


def expectation(jobs: Jobs) -> Expectation:
    """Return wall times and node-hours of every stage that has jobs."""
    stages = []
    for stage in Stage:
        of_stage = [job for job in jobs.jobs if job.stage is stage]
        if not of_stage:
            continue
        likely = course(of_stage, expected_s, jobs.max_jobs)
        stages.append(
            StageTime(
                stage=stage,
                jobs=len(of_stage),
                at_once=likely.at_once,
                expected_s=likely.wall_s,
                limit_s=course(of_stage, limit_s, jobs.max_jobs).wall_s,
                expected_node_s=sum(expected_s(job) * len(job.nodes) for job in of_stage),
                limit_node_s=sum(limit_s(job) * len(job.nodes) for job in of_stage),
                unknown=sum(job.expected_s is None for job in of_stage),
            )
        )
    sources = dict.fromkeys(job.expected_from for job in jobs.jobs if job.expected_from)
    return Expectation(stages=tuple(stages), max_jobs=jobs.max_jobs, sources=(_BETWEEN, *sources))
