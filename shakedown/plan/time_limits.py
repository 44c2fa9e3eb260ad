"""How long jobs and stages take, and may take."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shakedown.intent.slurm_block import JobTime, minutes
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import Stage
from shakedown.records.plan import Expectation, StageTime
from shakedown.records.reading import BadInput

# The order follows from the plan alone. Jobs are submitted in it, and each waits in Slurm for those before it
# that share a node with it (reframe_tests/guard.py).


@dataclass(frozen=True)
class Course:
    """How jobs follow each other: seconds until the last has ended, and most of them at a time."""

    wall_s: int
    at_once: int


def in_order(jobs: Iterable[JobSpec]) -> tuple[JobSpec, ...]:
    """Return the jobs of a stage in the order in which they are submitted.

    Each goes into the first group of which no job has one of its nodes (first fit, in the plan's order), so
    that a chain of neighbours (n1 n2, n2 n3, n3 n4, ...) takes two turns and not one for each pair.
    """
    groups: list[list[JobSpec]] = []
    used: dict[str, set[int]] = defaultdict(set)
    for job in jobs:
        busy = set().union(*(used[node] for node in job.nodes))
        first = next(number for number in range(len(busy) + 1) if number not in busy)
        if first == len(groups):
            groups.append([])
        groups[first].append(job)
        for node in job.nodes:
            used[node].add(first)
    return tuple(job for group in groups for job in group)


def course(
    jobs: Iterable[JobSpec],  # in any order; `in_order` puts them right
    seconds: Callable[[JobSpec], int],  # how long each takes
    max_jobs: int,  # how many are submitted at a time, those that wait for their nodes included
) -> Course:
    """Return how the jobs of one stage follow each other."""
    free: dict[str, int] = defaultdict(int)
    under_way: list[int] = []  # when each submitted job ends
    intervals: list[tuple[int, int]] = []
    now = 0
    for job in in_order(jobs):
        if len(under_way) == max_jobs:
            now = max(now, heapq.heappop(under_way))
        start = max(now, *(free[node] for node in job.nodes))
        end = start + seconds(job)
        heapq.heappush(under_way, end)
        intervals.append((start, end))
        free.update(dict.fromkeys(job.nodes, end))
    return Course(max((end for _, end in intervals), default=0), _most(intervals))


def _most(intervals: Sequence[tuple[int, int]]) -> int:
    """Return how many intervals overlap at most; one that ends makes room first."""
    most = count = 0
    for _, step in sorted([(start, 1) for start, _ in intervals] + [(end, -1) for _, end in intervals]):
        count += step
        most = max(most, count)
    return most


# sbatch may need its 60 s (job_submit_timeout in reframe_tests/settings.py), a job's end 30 s.
_EACH_JOB_S = 90
_ONCE_S = 240  # ReFrame's start, and the two minutes that nodes get to report to a controller that was away


def stage_limit_s(jobs: Jobs, stage: Stage, *, retries: int = 0) -> int:
    """Return the seconds that a stage may take: its jobs at their limits, side by side."""
    own = [job for job in jobs.jobs if job.stage is stage]
    longest_s = course(own, lambda job: job.time_limit_s + _EACH_JOB_S, jobs.max_jobs).wall_s
    return longest_s * (1 + retries) + _ONCE_S + jobs.waits.slurm_silent_s + jobs.waits.queue_s


# A job that is longer than its partition allows is refused by Slurm when it is submitted (EnforcePartLimits),
# or waits for ever, hours into a run. So the plan is refused instead.


def refuse_longer(jobs: Iterable[JobSpec], allowed: JobTime | None) -> None:
    """Refuse jobs that their partition would refuse; `allowed` None: nothing is known of a limit.

    Raises BadInput: naming the longest job, its time limit and the partition's.
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
