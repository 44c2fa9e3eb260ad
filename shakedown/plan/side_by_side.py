"""Which jobs run side by side: those that need different nodes, never two on one node.

The order follows from the plan alone. Jobs are submitted in it, and each waits in Slurm for those before it
that share a node with it (reframe_tests/guard.py).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shakedown.plan.jobs import JobSpec


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


def course(jobs: Iterable[JobSpec], seconds: Callable[[JobSpec], int], max_jobs: int) -> Course:
    """Return how the jobs of one stage follow each other.

    Args:
        jobs: in any order; `in_order` puts them right.
        seconds: how long each takes.
        max_jobs: how many are submitted at a time, those that wait for their nodes included.
    """
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
