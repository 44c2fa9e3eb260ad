"""The contract of a benchmark: its object, what a metrics function gets and yields, its place in the night.

Also how its tasks get the site's software."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError, model_validator

from shakedown.intent.acceptance import Section
from shakedown.intent.site import Fabric, Site
from shakedown.intent.software import Origin, ProgramName, SoftwareSource
from shakedown.onnode.software import apptainer_words, mounts, pyxis_options
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import Better, NicSpec, Params, PlainPath, Record, Stage
from shakedown.records.program import SOURCE, WORKLOADS, own_python
from shakedown.records.reading import BadInput
from shakedown.records.results import Measurement, OutputRecord, RunProblem
from shakedown.run.folder import Run
from shakedown.run.nic_counters import JobFolder

Program = PlainPath  # files that a job reads


class JobSettings(Record):
    """What a job was ordered to do, by this release or an earlier one."""

    # Keys that orders of earlier releases had, and that decide nothing.
    former: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_releases(cls, settings: Any) -> Any:  # noqa: ANN401  (as the file has it)
        if not isinstance(settings, dict):
            return settings
        return {key: value for key, value in settings.items() if key not in cls.former}


def _once(named: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(named)) < len(named):
        raise ValueError("names one twice; once is enough")
    return named


NoneTwice = AfterValidator(_once)


def steps(first: int, last: int, factor: int) -> tuple[int, ...]:
    """Return numbers from the first on, each by the factor larger, up to the last."""
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return tuple(found)


class TcpPath(Record):
    """A node's interface in a TCP network that a job uses."""

    rail: str  # the network, as `tcp_fabrics` names it
    netdev: str
    ipv4: str
    mtu_bytes: int  # of the interface and the way between the nodes


TcpPaths = dict[str, tuple[TcpPath, ...]]
_PATHS = TypeAdapter(TcpPaths)


def rails_of(jobs: Jobs, spec: JobSpec) -> dict[str, tuple[NicSpec | TcpPath, ...]]:
    """Return by node the NICs of the fabric, or, without one, the interfaces that a job's data go over."""
    paths: TcpPaths = {}
    with suppress(ValidationError):  # its benchmark refuses it
        paths = _PATHS.validate_python(spec.settings.get("paths", {}))
    nics = {node: jobs.nics.get(node) or paths.get(node) for node in spec.nodes}
    return {node: own for node, own in nics.items() if own}


def tcp_paths(site: Site, interfaces: Mapping[str, tuple[str, ...]]) -> TcpPaths:
    """Return the interfaces among these, by node, that are of TCP networks; none of a node by itself."""
    mtu = {fabric.name: fabric.mtu_bytes for fabric in site.tcp_fabrics}
    paths = {
        node: tuple(
            TcpPath(rail=nic.fabric, netdev=nic.netdev, ipv4=nic.ipv4, mtu_bytes=mtu[nic.fabric])
            for nic in site.tcp_nics.get(node, ())
            if nic.netdev in names
        )
        for node, names in interfaces.items()
    }
    return paths if len(paths) > 1 and all(paths.values()) else {}


def all_tcp_paths(site: Site, nodes: tuple[str, ...]) -> TcpPaths:
    """Return every TCP interface of these nodes, where the site has no other network between them."""
    if isinstance(site.fabric, Fabric):
        return {}
    return tcp_paths(site, {n: tuple(nic.netdev for nic in site.tcp_nics.get(n, ())) for n in nodes})


SettingsT_co = TypeVar("SettingsT_co", covariant=True)


class NoEvidence(BadInput):
    """The job ran well, and nothing was seen that could decide a cell: it is NOT-RUN, with this reason."""


class Read(NamedTuple):
    """One number that a tool's output gives, with everything that can be said of it."""

    metric: str
    value: float | None
    unit: str
    better: Better
    params: Params  # beyond those of the output
    detail: str = ""  # what the number stands for
    samples: tuple[float, ...] = ()  # repeats behind it
    problem: RunProblem | None = None  # why there is no number
    disturbed: str = ""  # what else was seen at work on what was measured


# What a metrics function yields is a `Read`, or its first fields as a plain tuple.
Value = (
    tuple[str, float | None, str, Better, Params]
    | tuple[str, float | None, str, Better, Params, str]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...]]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...], RunProblem | None]
    | tuple[str, float | None, str, Better, Params, str, tuple[float, ...], RunProblem | None, str]
)


class Moved(NamedTuple):
    """Payload that an output says went over a node's NICs, in bytes.

    `over`: a rail, or one NIC by its RDMA device or its interface; None: over any of the node's.
    """

    node: str
    over: str | None
    sent: float
    received: float


@dataclass(frozen=True)
class Output(Generic[SettingsT_co]):
    """One tool's own output and what was ordered of it."""

    text: str  # what the tool wrote
    record: OutputRecord  # the journal's line, which says what cells the output measures
    # The settings of the job, as the planner ordered them: from `jobs.json`, never from the copy among the
    # raw files, which the job could have changed.
    order: SettingsT_co
    folder: JobFolder  # what else the job left

    @property
    def file(self) -> Path:
        """Where the output lies, for messages."""
        return self.folder.path / self.record.file

    @property
    def node(self) -> str:
        """The first of the nodes that were measured."""
        return self.record.nodes[0]


# Raises BadInput for an output that cannot be read, or that is of something else than what was ordered;
# NoEvidence where it could be read and decides nothing.
Metrics = Callable[[Output[Any]], Iterator[Value]]


@dataclass(frozen=True)
class EveryNight:
    """Planned for all nodes of every night, and no slot of the rotation.

    `asked`: whether the site gives it anything to measure.
    """

    asked: Callable[[Site], bool] = lambda _site: True


@dataclass(frozen=True)
class NodeAlone:
    """A node is measured by itself: one slot, named by the section's key.

    `nodes`: which nodes have it.
    """

    nodes: Callable[[Site], tuple[str, ...]]


@dataclass(frozen=True)
class Pairs:
    """Nodes are measured in pairs, within small groups that differ from night to night.

    `slots`: seconds that a node spends on each slot, in groups of so many. `only`: of one slot, what the site
    then asks for, on which rails, and what the names of its jobs end in.
    """

    slots: Callable[[Site, int], Mapping[str, float]]
    only: Callable[[Site, str], tuple[Any, tuple[str, ...], str]]


@dataclass(frozen=True)
class NotAtNight:
    """Left out of the rotation, and why."""

    why: str


Night = EveryNight | NodeAlone | Pairs | NotAtNight


def nodes_with_gpus(site: Site) -> tuple[str, ...]:
    """Return the nodes that have GPUs."""
    return tuple(node for node in site.nics if site.gpus.get(node))


def all_nodes(site: Site) -> tuple[str, ...]:
    """Return all compute nodes."""
    return tuple(site.nics)


# Planning, the keys of a site's acceptance.yml, the ReFrame check, collecting, `shakedown parse` and the
# nightly rotation derive from these objects; the registry is the list of them.


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How one Slurm job starts its program."""

    words: tuple[str, ...]  # the command, each word quoted for a shell already
    # Words before `srun`: a program that starts it, keeps its output and notes what it measures.
    keep: tuple[str, ...] = ()
    gpus: int = 0  # what the job asks Slurm for on every node, `--gres=gpu:N`; 0: nothing
    step_gpus: int = 0  # the same for the step
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables
    source: tuple[str, ...] = ()  # files of settings that the script reads first
    optional_source: tuple[str, ...] = ()  # the same, where they are there
    options: tuple[str, ...] = ()  # further options of sbatch
    step_options: tuple[str, ...] = ()  # further options of srun


def module(name: str, *arguments: object, python: str = "") -> tuple[str, ...]:
    """Return the quoted words that run a module with an interpreter; this one unless another is named."""
    words = (python or sys.executable, "-m", name, *map(str, arguments))
    return tuple(shlex.quote(word) for word in words)


def own_module(name: str, *arguments: object) -> tuple[str, ...]:
    """Return the quoted words that run a module that needs nothing but this package."""
    return tuple(shlex.quote(str(word)) for word in (*own_python(), name, *arguments))


def by_module(
    name: str, gpus: Callable[[JobSpec], int] = lambda _job: 0
) -> Callable[[JobSpec, Path], Launch]:
    """Return the `launch` of jobs that are a module of ours, given the folder of their outputs.

    `gpus`: what a job and its step ask Slurm for on every node.
    """

    def launch(job: JobSpec, out: Path) -> Launch:
        many = gpus(job)
        return Launch(words=own_module(name, out), gpus=many, step_gpus=many)

    return launch


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """How jobs of one kind are ordered and started."""

    catches: str  # which faults the job is there to find, in a sentence
    # Turns a job's settings in `jobs.json` into what metrics receive. Raises ValueError or BadInput.
    order: Callable[[Mapping[str, Any]], Any]
    # The command of a job, and the folder in which it leaves its outputs.
    launch: Callable[[JobSpec, Path], Launch]
    by_srun: bool = True  # one task a node, started by srun; else the program starts its own steps
    mpi: str = "none"  # what `srun --mpi=` gets
    # Seconds that the other tasks get once the first has ended; 0: until the job's time limit.
    wait_s: int = 8
    also_good: int = 0  # a further exit status that counts as success; 0: none
    outlives_nodes: bool = False  # the program goes on without a node that died
    # What one node leaves does not depend on any other. If some nodes' tasks fail, and srun says which, the
    # others' outputs count.
    each_node: bool = False
    # Command to run after a bad status; it exits with 0 if the outputs are complete except for nodes that
    # died.
    completeness: Callable[[Path], tuple[str, ...]] | None = None
    uses: tuple[ProgramName, ...] = ()  # software that it runs, by the names of the site's `software` block
    # Which nodes died, given the job's folder and its nodes; None: nothing tells. Packets that their partners
    # lost to them are not counted as the partners' fault.
    lost_nodes: Callable[[Path, tuple[str, ...]], Collection[str] | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One kind of output that jobs of a benchmark leave."""

    metrics: Metrics  # which number of it is which metric
    # The field of a journal's record (`test`, `direction`) by which several records share one file, because
    # the file itself tells their results apart.
    told_by_file: str = ""
    # Which of a job's records count, where a later one may supersede an earlier; None: all.
    that_count: Callable[[Iterable[OutputRecord]], Iterable[OutputRecord]] | None = None
    # What must have gone over the NICs for an output that has been read; the NICs' counters must show it.
    # None: nothing is known. Raises BadInput.
    moved: Callable[[Output[Any]], Iterator[Moved]] | None = None
    moved_check: str = ""  # the check among its cells that they have to bear out; empty: all of its cells
    # Whether an output, given its text, holds something that no second one has (times of many sizes, process
    # ids, random numbers): two of the same bytes are then a copy. None: none does.
    own_bytes: Callable[[str], bool] | None = None
    # What an output that has been read calls the GPUs that it used, by model or by UUID (GPU-...). None: it
    # does not say.
    gpus: Callable[[Output[Any]], Iterable[str]] | None = None


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
    """One benchmark."""

    name: str  # its folder's name
    stage: Stage  # its rung of the ladder
    section: Section  # its key in a site's acceptance.yml. Two benchmarks may share one.
    # Adds cells and jobs to the draft, from what the site asks in the section: by node where the section is
    # of each node. Cells without a reference stand in `draft.missing`.
    plan: Callable[[PlanDraft, Any], None]
    night: Night  # its place in the nightly rotation, or why it has none
    jobs: Mapping[str, JobKind] = field(default_factory=dict)  # how its jobs are started, by `JobSpec.kind`
    tools: Mapping[str, Tool] = field(default_factory=dict)  # what its jobs leave, by the journal's `tool`
    parsers: tuple[Parser, ...] = ()  # what `shakedown parse` reads of it
    # Its tests as a person calls them, for sentences and tables of the verdict. A test that is not here is
    # called by its name, with blanks for underscores.
    words: Mapping[str, str] = field(default_factory=dict)
    # Unit and direction of what it measures, by test and metric, where no shipped profile has a reference for
    # it: a first run can then make one (`shakedown plan --learn`).
    measures: Mapping[tuple[str, str], tuple[str, Better]] = field(default_factory=dict)
    # Measurements that come from no job.
    gather: Callable[[Run], Iterator[Measurement]] | None = None


def of(job: JobSpec, *names: str) -> tuple[str, SoftwareSource | None]:
    """Return the first of these that the site says something of; else the first, and None."""
    found = next(((name, job.software[name]) for name in names if name in job.software), None)
    return found or (names[0], None)


def required(said: Container[str], *names: str, by: str) -> None:
    """Refuse a plan whose site names none of these interpreters of PyTorch; the first is the one to name.

    `by` begins the refusal: the key that asks for it, with its verb. Raises BadInput: naming both keys.
    """
    if not any(name in said for name in names):
        key = by.split(maxsplit=1)[0].rpartition(".")[2]
        raise BadInput(
            f"{by}, and the site says nowhere where it is",
            fix=f"say software.{names[0]}: {{from: ...}} (group_vars/all/software.yml), or leave {key} out",
        )


def within(
    source: SoftwareSource | None,
    name: str,
    words: tuple[str, ...],
    out: Path,
    *,
    gpus: bool,
    more: Iterable[str] = (),
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return quoted words that run `words` with a software, and the options of the srun before them."""
    if source is None:
        return words, ()
    place = source.from_
    if not isinstance(place, Origin) or place.container is None:
        by_path = place == "package" or source.interpreter == getattr(place, "path", None)
        if by_path and not source.libraries and not source.pythonpath:
            return words, ()  # what the system has, or an interpreter by path, needs nothing else
        return (*own_module("shakedown.onnode.software", out, name, "--"), *words), ()
    seen = [*mounts(out), *more, *source.pythonpath]
    if place.runtime == "pyxis":
        return words, tuple(map(shlex.quote, pyxis_options(place.container, seen)))
    return (*map(shlex.quote, apptainer_words(place.container, seen, gpus=gpus)), *words), ()


def workload(name: str, job: JobSpec, out: Path, *software: str, gpus: int) -> Launch:
    """Return how a module of workloads/ is started with the first of these that the site names."""
    key, source = of(job, *software)
    python = source.interpreter if source else "python3"
    words, options = within(source, key, module(name, out, python=python), out, gpus=gpus > 0)
    path = os.pathsep.join([str(SOURCE), str(WORKLOADS), *(source.pythonpath if source else ())])
    return Launch(words=words, gpus=gpus, variables={"PYTHONPATH": path}, step_options=options)
