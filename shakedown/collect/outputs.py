"""What the outputs of one job say: each read by its tool's reader, for the cells that a journal names.

The benchmarks know which number of which tool is which metric.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from shakedown.benchmarks.base.contract import Moved, NoEvidence, Output, Read, Tool, Value
from shakedown.benchmarks.base.output import event_told
from shakedown.benchmarks.gpu.state import at_end
from shakedown.benchmarks.registry import JOB_KINDS, TOOLS
from shakedown.evidence.job_folder import journal
from shakedown.evidence.window import Window, job_window, longer_than
from shakedown.physics.host_links import is_of_model, same_gpu
from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.base import Params
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, read_record
from shakedown.records.results import JobRecord, Measurement, OutputRecord, RunProblem
from shakedown.records.wording import printable
from shakedown.run.nic_counters import JobFolder

# What a reader raises that did not foresee some damage. It costs the output's cells like any other damage: an
# error in one reader must not take the verdict on everything else along.
_READER_FELL_OVER = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Told:
    """What one output says: its measurements, and what must have gone over the NICs for them.

    `check`: the one among them that this stands for; empty: all.
    """

    measurements: tuple[Measurement, ...]
    moved: tuple[Moved, ...] = ()
    check: str = ""

    def of(self, measurements: Iterable[Measurement]) -> Told:
        """Return what the output says with these measurements for its own."""
        return replace(self, measurements=tuple(measurements))


def job_measurements(plan: Plan, specs: Mapping[str, JobSpec], job_folder: Path) -> list[Measurement]:
    """Return every measurement that a job's folder holds; `specs` are the run's jobs by name.

    Raises:
        BadInput: `job.json` or a journal line cannot be read.
    """
    job = read_record(job_folder / "job.json", JobRecord)
    told = told_by(plan, specs, job_folder, job, journal(job_folder))
    return [measurement for one in told for measurement in one.measurements]


def told_by(
    plan: Plan,
    specs: Mapping[str, JobSpec],
    job_folder: Path,
    job: JobRecord,
    outputs: Iterable[OutputRecord],
    *,
    clocks: Mapping[str, float] | None = None,
    failed: Mapping[str, RunProblem] | None = None,
    alone: bool = False,
    gpus: Gpus | None = None,
) -> list[Told]:
    """Return what each of a job's outputs says; one that cannot be read gives no values, and a reason.

    Args:
        plan: the run's.
        specs: its jobs by name.
        job_folder: where the job left its files.
        job: what Slurm said of it.
        outputs: the journal.
        clocks: how far each node's clock is ahead, in seconds, where it is known.
        failed: the problem of each node that failed, and
        alone: that each stands for itself and the job failed with them alone (`told_by_tasks`). The others'
            outputs then count as those of a job that ended well.
        gpus: which GPUs the nodes must have, and have by the snapshot.
    """
    ordered, window = _Ordered(specs, job_folder), job_window(job)
    found: list[Told] = []
    for output in _that_count(outputs):
        whose = _own_part(job, output, (failed or {}) if alone else {})
        problem = _led_by_slurm(why_lost(output.problem, failed or {}), whose.problem)
        values: Iterable[Value] = ()
        moved: tuple[Moved, ...] = ()
        ahead_s = [(clocks or {}).get(node, 0.0) for node in output.nodes]
        if stale := (
            window.misses(output.started, of=f"{output.file}, an output", ahead_s=ahead_s)
            or _impossible_time(output, job)
        ):
            problem = problem or RunProblem(kind="other", message=stale)
        elif output.tool not in TOOLS:
            problem = problem or RunProblem(kind="other", message=f"no reader for outputs of {output.tool}")
        elif problem is None or output.problem is None:
            try:
                tool, read = TOOLS[output.tool], ordered.output(output)
                values = list(tool.metrics(read))
                problem = problem or _bad_end(output, values) or _other_look(read, window, clocks or {})
                problem = problem or _other_gpu(tool, read, gpus or Gpus())
                moved = tuple(tool.moved(read)) if tool.moved and problem is None else ()
            except NoEvidence as nothing:
                problem = problem or RunProblem(kind="not-run", message=without_place(job_folder, nothing))
            except (BadInput, OSError) as refused:
                problem = problem or RunProblem(kind="parse", message=without_place(job_folder, refused))
            except _READER_FELL_OVER as error:
                said = printable(f"{output.file}: its reader fell over it, {type(error).__name__}: {error}")
                problem = problem or RunProblem(kind="parse", message=said[:2000])
                values, moved = (), ()
        if not values:
            values = planned_without_value(plan, output)
        measurements = tuple(_measurements(plan, whose, job_folder, output, values, problem))
        found.append(Told(measurements, moved, TOOLS[output.tool].moved_check if moved else ""))
    return found


_UUID = "GPU-"


@dataclass(frozen=True)
class Gpus:
    """Models that the references of nodes are for, and what the snapshot calls their GPUs, both by node."""

    wanted: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, Collection[str]] = field(default_factory=dict)
    uuids: Mapping[str, Collection[str]] = field(default_factory=dict)  # by the snapshot, too


def _other_look(read: Output[Any], window: Window, clocks: Mapping[str, float]) -> RunProblem | None:
    """Return that a look at the GPUs beside an output is of another node, or of another time than the job's.

    Raises BadInput: it cannot be read.
    """
    for node in read.record.nodes:
        for when in ("before", "after"):
            look, name = at_end(read.folder, node, when), f"gpus.{node}.{when}.json"
            if look and look.node != node:
                return RunProblem(
                    kind="other", message=f"{name} is of {look.node}: it says nothing of {node}"
                )
            taken = look.taken.isoformat() if look and look.taken else None
            if odd := window.misses(taken, of=f"{name}, a look", ahead_s=[clocks.get(node, 0.0)]):
                return RunProblem(kind="other", message=odd)
    return None


def _other_gpu(tool: Tool, read: Output[Any], gpus: Gpus) -> RunProblem | None:
    """Return that an output is of other GPUs than its references are for, or than another witness names.

    Raises BadInput: a look at the GPUs cannot be read.
    """
    nodes = read.record.nodes
    told_of = list(dict.fromkeys(tool.gpus(read))) if tool.gpus else []
    own = [name for name in told_of if not name.startswith(_UUID)]
    looks = {node: look for node in nodes if (look := at_end(read.folder, node))}
    of_looks = {node: {gpu.uuid for gpu in look.gpus} for node, look in looks.items()}
    shown = [{*gpus.uuids.get(node, ())} | of_looks.get(node, set()) for node in nodes]
    strange = next((one for one in told_of if one.startswith(_UUID) and not any(one in s for s in shown)), "")
    if strange and all(shown):  # where one node's are not known, it may be that one's
        message = f"{read.record.file} is of {strange}, which nobody saw on {', '.join(nodes)}"
        return RunProblem(kind="other", message=printable(message[:500]))
    looked = {node: list(dict.fromkeys(gpu.name for gpu in look.gpus)) for node, look in looks.items()}
    models = {gpus.wanted[node] for node in nodes if node in gpus.wanted}
    if models and (odd := next((name for name in own if _none_of(name, models)), "")):
        return _another(f"{read.record.file} is of {odd}", models)
    for node, names in looked.items() if models else ():
        if names and all(_none_of(name, models) for name in names):
            return _another(f"nvidia-smi shows {', '.join(names[:3])} on {node}", models)
    for who, told in (("nvidia-smi shows", looked), ("the snapshot has", gpus.seen)):
        names = [name for node in nodes for name in told.get(node, ())]
        odd = next((name for name in own if not any(same_gpu(name, other) for other in names)), "")
        if names and odd:
            message = f"{read.record.file} is of {odd}, {who} {', '.join(dict.fromkeys(names))}"[:500]
            return RunProblem(kind="other", message=printable(message))
    return None


def _none_of(name: str, models: Collection[str]) -> bool:
    return all(is_of_model(name, model) is False for model in models)


def _another(told: str, models: Collection[str]) -> RunProblem:
    message = f"another GPU: {told[:300]}, the references are for {', '.join(sorted(models))}"
    return RunProblem(kind="other-gpu", message=printable(message))


# What a node's driver says of a partner that does not answer any more.
_LOST = re.compile(r"(?P<node>[^\s:]+) lost: ")


def why_lost(problem: RunProblem | None, failed: Mapping[str, RunProblem]) -> RunProblem | None:
    """Return the problem of an output; where it is that another node was lost, with what that node said."""
    lost = _LOST.match(problem.message) if problem else None
    if problem is None or lost is None or lost["node"] not in failed:
        return problem
    message = f"{failed[lost['node']].message} ({problem.message})"[:2000]
    return problem.model_copy(update={"message": message})


def _led_by_slurm(own: RunProblem | None, of_job: RunProblem | None) -> RunProblem | None:
    """Return why an output does not count: what ended its job comes before its tool's last words."""
    if own is None or of_job is None or of_job.kind != "killed":
        return own or of_job
    return own.model_copy(update={"message": f"{of_job.message}; {own.message}"[:2000]})


def _impossible_time(output: OutputRecord, job: JobRecord) -> str:
    """Return why an output cannot have taken as long as its record says; empty if it can."""
    if output.duration_s == 0 and output.exit_code == 0:  # nothing is started in half a millisecond
        return f"{output.file} took no time at all by its record"
    if not longer_than(job, output.duration_s):
        return ""
    return f"{output.file} took {output.duration_s:.6g} s by its record, its whole job {job.duration_s:.6g} s"


def _bad_end(output: OutputRecord, values: Iterable[Value]) -> RunProblem | None:
    """Return why an output does not count whose program ended badly, though its record has no problem.

    Programs that found wrong elements exit with a failure too: these are a result.
    """
    if output.exit_code == 0 or any(r.metric == "wrong" and r.value for r in (Read(*v) for v in values)):
        return None
    ended = "did not end on its own" if output.exit_code is None else f"ended with status {output.exit_code}"
    return RunProblem(kind="other", message=f"the program that wrote {output.file} {ended}")


def _own_part(job: JobRecord, output: OutputRecord, failed: Mapping[str, RunProblem]) -> JobRecord:
    """Return the record of the part of a job that an output is of: of its nodes', where each is alone."""
    if not failed:
        return job
    mine = next((failed[node] for node in output.nodes if node in failed), None)
    if mine is not None:
        return job.model_copy(update={"problem": mine})
    return job.model_copy(update={"problem": None, "state": "COMPLETED"})


def _measurements(
    plan: Plan,
    job: JobRecord,
    job_folder: Path,
    output: OutputRecord,
    values: Iterable[Value],
    problem: RunProblem | None,
) -> Iterator[Measurement]:
    # What a link leads to is no file of the run. It was not read, and nothing refers to it.
    elsewhere = problem is not None and (job_folder / output.file).is_symlink()
    event = event_told(job_folder / output.file)
    for value in values:
        read = Read(*value)
        yield Measurement(
            run=plan.run,
            stage=job.stage,
            test=output.test,
            metric=read.metric,
            value=read.value,
            unit=read.unit,
            better=read.better,
            nodes=output.nodes,
            rail=output.rail,
            direction=output.direction,
            params={**output.params, **read.params},
            job=job.job,
            state=job.state,
            attempt=max(output.attempt, job.attempt),
            started=output.started,
            duration_s=output.duration_s,
            raw=None if elsewhere else f"raw/{job_folder.name}/{output.file}",
            problem=problem or read.problem,
            detail=read.detail[:1000] or None,
            disturbed=(read.disturbed or event)[:500] or None,
            samples=read.samples,
        )


class _Ordered:
    """What a job was ordered to do, and its outputs with it."""

    def __init__(self, specs: Mapping[str, JobSpec], folder: Path) -> None:
        self._folder = JobFolder(folder)
        self._spec = specs.get(job_and_attempt(folder.name)[0])

    @cached_property
    def _order(self) -> Any:  # noqa: ANN401  (each kind of job has settings of its own)
        if self._spec is None:
            raise BadInput("no such job was planned", fix="see jobs.json", file=self._folder.path)
        kind = JOB_KINDS.get(self._spec.kind)
        try:
            return kind.order(self._spec.settings) if kind else None
        except ValueError as error:
            raise BadInput(
                f"the settings of job {self._spec.name} are not those of {self._spec.kind}: {error}"[:500],
                fix="restore the run's own jobs.json",
            ) from None

    def output(self, record: OutputRecord) -> Output[Any]:
        """Return one output. Raises BadInput."""
        return Output(self._folder.text(record.file), record, self._order, self._folder)


def _that_count(outputs: Iterable[OutputRecord]) -> Iterator[OutputRecord]:
    """Yield the records of a job without those that a better one of the same tool has superseded."""
    choosing: dict[str, list[OutputRecord]] = {}
    for output in outputs:
        if output.tool in TOOLS and TOOLS[output.tool].that_count is not None:
            choosing.setdefault(output.tool, []).append(output)
        else:
            yield output
    for tool, records in choosing.items():
        that_count = TOOLS[tool].that_count
        assert that_count is not None
        yield from that_count(records)


def without_place(folder: Path, refused: Exception) -> str:
    """Say what was refused without naming where the run lies: the same run says the same anywhere."""
    return str(refused).replace(f"{folder}/", "")[:2000]


def planned_without_value(plan: Plan, output: OutputRecord) -> list[Value]:
    """Return the cells that an output should have given, without values."""

    def rest(params: Params) -> Params:
        return {key: value for key, value in params.items() if key not in output.params}

    return [
        (item.metric, None, item.unit, item.better, rest(item.params))
        for item in plan.items
        if item.test == output.test
        and output.nodes in item.nodes
        and output.rail in item.rails
        and output.direction in item.directions
        and not item.metric.startswith("counter.")
        and all(item.params.get(key) == value for key, value in output.params.items())
    ]
