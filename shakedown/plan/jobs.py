"""What the planner asks of Slurm: one `JobSpec` per job, kept beside the plan in `jobs.json`.

The plan says which cells must exist; a job spec says which job measures them and with what settings.
ReFrame's tests turn job specs into jobs and add nothing of their own, so that the plan stays the one
place that decides what is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import Field, model_validator

from shakedown.intent.acceptance import Waits
from shakedown.intent.software import Sources
from shakedown.records.base import Document, Name, NicSpec, Params, Record, Stage

_WAYS_OF_PERFTEST = ("qps", "connection", "sweep")


class JobSpec(Record):
    """One Slurm job.

    `tests` are the names of the plan's tests that it measures. `settings` belongs to the kind: the mesh
    driver's spec for `mesh`, expected values for `settings`, the benchmark's options for the others.
    """

    name: Name
    kind: Name  # the registry of benchmarks knows how it is started
    stage: Stage
    tests: tuple[Name, ...] = Field(min_length=1)
    nodes: tuple[Name, ...] = Field(min_length=1)
    time_limit_s: int = Field(gt=0)
    # How long it takes if all goes well, from durations and measured overheads; None: nothing is known.
    expected_s: int | None = Field(default=None, ge=0)
    expected_from: str = ""  # where the overheads in it were measured
    settings: dict[str, Any] = Field(default_factory=dict)
    # Which cells of its tests are this job's, where several jobs share a test: those with these parameters,
    # and, if `whole`, those on all of its nodes together.
    params: Params = Field(default_factory=dict)
    whole: bool = False
    # Where the programs that it runs come from, as far as the site says it.
    software: Sources = Field(default_factory=dict)

    def measures(
        self, test: str, nodes: tuple[str, ...], rail: str | None, direction: str | None, params: Params
    ) -> bool:
        """Whether a planned cell of this job's stage is this job's to measure."""
        mine = set(nodes) == set(self.nodes) if self.whole else set(nodes) <= set(self.nodes)
        same = all(params.get(k) == v for k, v in self.params.items())
        # A job of perftest connects in one way, and moves one size or all: what it leaves out it does not do.
        same = same and all(params.get(k) == self.params.get(k) for k in _WAYS_OF_PERFTEST)
        # A job of the night has some rails only, both ways at once are a job beside that of one way, and two
        # sweeps of NCCL share the checks of their transport.
        asked = (("rails", rail), ("directions", direction), ("operations", params.get("operation")))
        here = all(one is None or one in self.settings.get(key, (one,)) for key, one in asked)
        return test in self.tests and mine and same and here


def job_and_attempt(folder: str) -> tuple[str, int]:
    """Return the job and the attempt that a folder of `raw/`, NAME.aN, is named by; 0 if named otherwise."""
    name, _, number = folder.rpartition(".a")
    return name, int(number) if number.isdecimal() else 0


def counter_tests(jobs: Iterable[JobSpec]) -> dict[str, str]:
    """Return, by job, the test under which the NICs' counters over that job stand.

    It is the job's first test. Where several jobs share that test it is the job itself: otherwise two
    readings of one NIC would stand in one place, and the job that lost packets could not be found.
    """
    jobs = list(jobs)
    sharing = Counter((job.stage, job.tests[0]) for job in jobs)
    return {
        job.name: job.tests[0]
        if sharing[job.stage, job.tests[0]] == 1
        else job.name.removeprefix(f"{job.stage.value}.")
        for job in jobs
    }


class SwitchLink(Record):
    """One cable between a leaf and a spine."""

    leaf: Name
    leaf_port: Name
    spine: Name
    spine_port: Name
    plane: Name | None = None


class Jobs(Document):
    """All jobs of a run, in the order of the ladder (`jobs.json`)."""

    run: Name
    jobs: tuple[JobSpec, ...]
    nics: dict[Name, tuple[NicSpec, ...]]  # by node
    links: tuple[SwitchLink, ...] = ()  # between switches, where the site describes them
    waits: Waits = Waits()
    # Options of sbatch that every job gets, and what the site's prolog or epilog takes (SlurmBlock).
    submit: tuple[str, ...] = ()
    prolog_s: int = Field(default=0, ge=0)
    max_jobs: int = Field(default=1, ge=1)  # jobs of a stage at a time
    # The model of GPU that a node's references are for (acceptance.scope.gpu), and nodes that share one GPU.
    gpus: dict[Name, Name] = Field(default_factory=dict)
    shared_gpus: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Jobs:
        if name := twice_named(self.jobs):
            raise ValueError(f"several jobs are named {name}, and would write into one folder")
        return self


def twice_named(jobs: Iterable[JobSpec]) -> str:
    """Return a name that several jobs have; empty: none is."""
    return next((name for name, count in Counter(job.name for job in jobs).items() if count > 1), "")


def with_prolog(jobs: Iterable[JobSpec], prolog_s: int) -> list[JobSpec]:
    """Return the jobs with the time that the site's prolog or epilog takes: Slurm counts it as the job's."""
    return [job.model_copy(update={"time_limit_s": job.time_limit_s + prolog_s}) for job in jobs]
