"""The contract of a benchmark: one object holds everything that the rest of Shakedown must know about it.

Planning, the keys of a site's acceptance.yml, the ReFrame check, collecting, `shakedown parse` and the
nightly rotation derive from these objects; the registry is the list of them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shakedown.benchmarks.base.metrics import Metrics, Moved, Output
from shakedown.benchmarks.base.night import Night
from shakedown.intent.acceptance import Section
from shakedown.intent.software import ProgramName
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Better, Stage
from shakedown.records.plan import Plan
from shakedown.records.results import Measurement, OutputRecord


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How one Slurm job starts its program.

    Attributes:
        words: the command, each word quoted for a shell already.
        keep: words before `srun`: a program that starts it, keeps its output and notes what it measures.
        gpus: what the job asks Slurm for on every node, `--gres=gpu:N`; 0: nothing.
        step_gpus: the same for the step.
        variables: environment variables.
        source: files of settings that the script reads first.
        optional_source: the same, where they are there.
        options: further options of sbatch.
        step_options: further options of srun.
    """

    words: tuple[str, ...]
    keep: tuple[str, ...] = ()
    gpus: int = 0
    step_gpus: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    source: tuple[str, ...] = ()
    optional_source: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    step_options: tuple[str, ...] = ()


def module(name: str, *arguments: object, python: str = "") -> tuple[str, ...]:
    """Return the quoted words that run a module with an interpreter; this one unless another is named."""
    words = (python or sys.executable, "-m", name, *map(str, arguments))
    return tuple(shlex.quote(word) for word in words)


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """How jobs of one kind are ordered and started.

    Attributes:
        catches: which faults the job is there to find, in a sentence.
        order: turns a job's settings in `jobs.json` into what metrics receive. Raises ValueError or BadInput.
        launch: the command of a job, and the folder in which it leaves its outputs.
        by_srun: one task a node, started by srun; else the program starts its own steps.
        mpi: what `srun --mpi=` gets.
        wait_s: seconds that the other tasks get once the first has ended; 0: until the job's time limit.
        also_good: a further exit status that counts as success; 0: none.
        outlives_nodes: the program goes on without a node that died.
        each_node: what one node leaves does not depend on any other. If some nodes' tasks fail, and srun says
            which, the others' outputs count.
        completeness: command to run after a bad status; it exits with 0 if the outputs are complete except
            for nodes that died.
        uses: software that it runs, by the names of the site's `software` block.
        lost_nodes: which nodes died, given the job's folder and its nodes; None: nothing tells. Packets that
            their partners lost to them are not counted as the partners' fault.
    """

    catches: str
    order: Callable[[Mapping[str, Any]], Any]
    launch: Callable[[JobSpec, Path], Launch]
    by_srun: bool = True
    mpi: str = "none"
    wait_s: int = 8
    also_good: int = 0
    outlives_nodes: bool = False
    each_node: bool = False
    completeness: Callable[[Path], tuple[str, ...]] | None = None
    uses: tuple[ProgramName, ...] = ()
    lost_nodes: Callable[[Path, tuple[str, ...]], Collection[str] | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One kind of output that jobs of a benchmark leave.

    Attributes:
        metrics: which number of it is which metric.
        told_by_file: the field of a journal's record (`test`, `direction`) by which several records share one
            file, because the file itself tells their results apart.
        that_count: which of a job's records count, where a later one may supersede an earlier; None: all.
        moved: what must have gone over the NICs for an output that has been read; the NICs' counters must
            show it. None: nothing is known. Raises BadInput.
        own_bytes: whether an output, given its text, holds something that no second one has (times of many
            sizes, process ids, random numbers): two of the same bytes are then a copy. None: none does.
    """

    metrics: Metrics
    told_by_file: str = ""
    that_count: Callable[[Iterable[OutputRecord]], Iterable[OutputRecord]] | None = None
    moved: Callable[[Output[Any]], Iterator[Moved]] | None = None
    own_bytes: Callable[[str], bool] | None = None


@dataclass(frozen=True, kw_only=True)
class Parser:
    """A parser that `shakedown parse` offers, named by module and function so that it loads when needed.

    `options`: options of the command, and the parameter of the function that each becomes.
    """

    tool: str
    module: str
    function: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: its folder's name.
        stage: its rung of the ladder.
        section: its key in a site's acceptance.yml. Two benchmarks may share one.
        plan: adds cells and jobs to the draft, from what the site asks in the section: by node where the
            section is of each node. Cells without a reference stand in `draft.missing`.
        night: its place in the nightly rotation, or why it has none.
        jobs: how its jobs are started, by `JobSpec.kind`.
        tools: what its jobs leave, by the journal's `tool`.
        parsers: what `shakedown parse` reads of it.
        words: its tests as a person calls them, for sentences and tables of the verdict. A test that is
            not here is called by its name, with blanks for underscores.
        measures: unit and direction of what it measures, by test and metric, where no shipped profile has a
            reference for it: a first run can then make one (`shakedown plan --learn`).
        gather: measurements that come from no job, read from the run's folder.
    """

    name: str
    stage: Stage
    section: Section
    plan: Callable[[Draft, Any], None]
    night: Night
    jobs: Mapping[str, JobKind] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    parsers: tuple[Parser, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[tuple[str, str], tuple[str, Better]] = field(default_factory=dict)
    gather: Callable[[Plan, Path], Iterator[Measurement]] | None = None
