"""From raw outputs to measurements; the benchmarks know which number of which tool is which metric.

A job's folder `raw/<job>/` holds `job.json` (what Slurm said), `outputs*.jsonl` (which file measures which
cells) and the tools' own files. Everything here can be done again later, on a laptop, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shakedown.benchmarks.base.metrics import Output, Read, Value
from shakedown.benchmarks.registry import BENCHMARKS, JOB_KINDS, TOOLS
from shakedown.nics.counters import end_to_end
from shakedown.nos.readings import load_reading, readings
from shakedown.plan.jobs import Jobs, JobSpec, counter_tests, job_and_attempt
from shakedown.records.base import Better, Params, Stage
from shakedown.records.counters import CounterReading
from shakedown.records.errors import BadInput
from shakedown.records.plan import Plan
from shakedown.records.reading import read_bytes, read_record
from shakedown.records.refusals import refusal
from shakedown.records.results import JobRecord, Measurement, OutputRecord, Problem
from shakedown.records.untrusted import complete_lines
from shakedown.run.files import redact_folder
from shakedown.run.folder import COUNTERS, JOBS, PLAN, RESULTS, write_lines
from shakedown.run.job_folder import JobFolder
from shakedown.run.nic_counters import read_before_and_after


def collect(folder: Path) -> tuple[int, int]:
    """Write `results.jsonl` and `counters.jsonl` of a run from its raw files; return how many lines each.

    Raises BadInput as `gather` does.
    """
    redact_folder(folder)  # nothing is read, judged or kept before secrets are gone
    measurements, counters = gather(folder)
    write_lines(folder / RESULTS, measurements)
    write_lines(folder / COUNTERS, counters)
    return len(measurements), len(counters)


def gather(folder: Path) -> tuple[list[Measurement], list[CounterReading]]:
    """Return what a run's raw files say, in a fixed order.

    Raises:
        BadInput: plan, jobs or a job's own records cannot be read. A tool's output that cannot be read is
            no such error: its cell gets no value and the reason.
    """
    plan = read_record(folder / PLAN, Plan)
    jobs = read_record(folder / JOBS, Jobs)
    measurements: list[Measurement] = []
    counters: list[CounterReading] = []
    tests = counter_tests(jobs.jobs)
    specs = {spec.name: spec for spec in jobs.jobs}
    for job_folder in sorted(path.parent for path in (folder / "raw").glob("*/job.json")):
        job = read_record(job_folder / "job.json", JobRecord)
        if job.run != plan.run:
            raise BadInput(
                f"belongs to run {job.run!r}, not {plan.run!r}",
                fix="remove the folder: results of another run prove nothing here",
                file=job_folder / "job.json",
            )
        found = job_measurements(plan, specs, job_folder)
        measurements.extend(found)
        measurements.extend(_spoiled(plan, jobs, job, {m.cell for m in found}))
        counters.extend(node_counters(plan, jobs, job_folder, tests))
    counters.extend(_switch_counters(plan, folder))
    idle = _blames_the_idle(plan, counters, _busy_ends(measurements))
    counters = [reading for place, reading in enumerate(counters) if place not in idle]
    for benchmark in BENCHMARKS:
        if benchmark.gather is not None:
            measurements.extend(benchmark.gather(plan, folder))
    measurements.sort(key=lambda m: (m.cell, m.attempt, m.raw or ""))
    return measurements, counters


def job_measurements(plan: Plan, specs: Mapping[str, JobSpec], job_folder: Path) -> list[Measurement]:
    """Return every measurement that a job's folder holds; `specs` are the run's jobs by name.

    Raises:
        BadInput: `job.json` or a journal line cannot be read.
    """
    job = read_record(job_folder / "job.json", JobRecord)
    found: list[Measurement] = []
    ordered = _Ordered(specs, job_folder)
    for output in _that_count(journal(job_folder)):
        problem = output.problem or job.problem
        values: Iterable[Value] = ()
        if problem is None or output.problem is None:
            try:
                if output.tool not in TOOLS:
                    problem = Problem(kind="other", message=f"no reader for outputs of {output.tool}")
                else:
                    values = list(TOOLS[output.tool].metrics(ordered.output(output)))
            except (BadInput, OSError) as refused:
                problem = problem or Problem(kind="parse", message=_without(job_folder, refused))
        if not values:
            values = _planned_without_value(plan, output)
        for value in values:
            read = Read(*value)
            found.append(
                Measurement(
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
                    raw=f"raw/{job_folder.name}/{output.file}",
                    problem=problem,
                    detail=read.detail[:1000] or None,
                    samples=read.samples,
                )
            )
    return found


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


def _without(folder: Path, refused: Exception) -> str:
    """Say what was refused without naming where the run lies: the same run says the same anywhere."""
    return str(refused).replace(f"{folder}/", "")[:2000]


def journal(job_folder: Path) -> list[OutputRecord]:
    """Return the records of all journals of a job. Raises BadInput.

    A file that several records claim, although one file of that tool is of one cell, is a problem of each.
    """
    outputs = [output for path in sorted(job_folder.glob("outputs*.jsonl")) for output in _lines(path)]
    claims: dict[str, set[tuple[object, ...]]] = {}
    for output in outputs:
        claims.setdefault(output.file, set()).add(_claim(output))
    return [
        output
        if output.problem is not None or len(claims[output.file]) == 1
        else output.model_copy(update={"problem": _contested(output.file, len(claims[output.file]))})
        for output in outputs
    ]


def _lines(path: Path) -> Iterator[OutputRecord]:
    """Yield the records of one journal. Raises BadInput."""
    # A node that died while it wrote leaves half a line; the cell it was about stays without a value.
    for number, line in complete_lines(read_bytes(path)):
        try:
            yield OutputRecord.model_validate_json(line)
        except ValidationError as error:
            again = "run the job again: its journal is damaged"
            raise refusal(error, OutputRecord, file=path, line=number, fix=again) from None


def _claim(output: OutputRecord) -> tuple[object, ...]:
    """Return what a record takes its file for, without what the tool's file tells apart itself."""
    told = TOOLS[output.tool].told_by_file if output.tool in TOOLS else ""
    place = {"test": output.test, "direction": output.direction, "rail": output.rail, "nodes": output.nodes}
    kept = tuple(value for name, value in place.items() if name != told)
    return (output.tool, *kept, tuple(sorted(output.params.items())), output.attempt)


def _contested(file: str, claims: int) -> Problem:
    message = f"{file} is named by the records of {claims} cells or attempts: nobody can tell whose it is"
    return Problem(kind="parse", message=message)


def _planned_without_value(plan: Plan, output: OutputRecord) -> list[Value]:
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


def _spoiled(plan: Plan, jobs: Jobs, job: JobRecord, found: set[str]) -> Iterator[Measurement]:
    """Yield the planned cells that a job left without any output, with the reason why the job is no good."""
    spec = next((spec for spec in jobs.jobs if spec.name == job.test), None)
    if spec is None or job.problem is None:
        return
    for item in plan.items:
        if item.stage != spec.stage or item.metric.startswith("counter."):
            continue
        for cell, nodes, rail, direction in item.cells():
            if cell not in found and spec.measures(item.test, nodes, rail, item.params):
                yield Measurement(
                    run=plan.run,
                    stage=item.stage,
                    test=item.test,
                    metric=item.metric,
                    value=None,
                    unit=item.unit,
                    better=item.better,
                    nodes=nodes,
                    rail=rail,
                    direction=direction,
                    params=item.params,
                    job=job.job,
                    state=job.state,
                    attempt=job.attempt,
                    started=job.started,
                    problem=job.problem,
                )


# ---- counters ----


def node_counters(plan: Plan, jobs: Jobs, job_folder: Path, tests: Mapping[str, str]) -> list[CounterReading]:
    """Return the counters of every NIC over one job, from `counters.NODE.{before,after}.json`.

    `tests`: under which test they stand, by job (`counter_tests`).
    """
    job = read_record(job_folder / "job.json", JobRecord)
    spec = next((spec for spec in jobs.jobs if spec.name == job.test), None)
    if spec is None:
        return []
    test = tests[spec.name]
    lines: list[CounterReading] = []
    readings = {node: read_before_and_after(job_folder, node) for node in spec.nodes}
    anew = {
        (node, nic.rdma_device)
        for node, (before, after) in readings.items()
        for nic in jobs.nics.get(node, ())
        if before.began_anew(after, nic.rdma_device)
    }
    # Whoever was talking to a node that died has lost packets for it, and is not to be blamed.
    kind = JOB_KINDS.get(spec.kind)
    lost = kind is not None and kind.lost_nodes is not None and kind.lost_nodes(job_folder, spec.nodes)
    bereaved = bool(anew) or lost
    for node, (before, after) in readings.items():
        for nic in jobs.nics.get(node, ()):
            first, last = before.devices.get(nic.rdma_device), after.devices.get(nic.rdma_device)
            if first is None or last is None:
                continue  # planned and absent: the verdict says NOT-RUN
            began_anew = (node, nic.rdma_device) in anew
            for name in sorted(first.keys() | last.keys()):
                if bereaved and end_to_end(name) and not began_anew:
                    continue
                lines.append(
                    CounterReading(
                        run=plan.run,
                        stage=job.stage,
                        test=test,
                        kind="nic",
                        device=node,
                        port=nic.rdma_device,
                        rail=nic.rail,
                        counter=name,
                        before=first.get(name),
                        peer=f"{nic.leaf}/{nic.leaf_port}" if nic.leaf else None,
                        after=last.get(name),
                        began_anew=began_anew,
                        job=job.job,
                        raw=f"raw/{job_folder.name}/counters.{node}.after.json",
                    )
                )
    return lines


def _switch_counters(plan: Plan, folder: Path) -> Iterator[CounterReading]:
    """Yield every switch's counters over each stage, from `raw/switches.STAGE/SWITCH.{before,after}.json`."""
    for stage in Stage:
        for after in sorted((folder / "raw" / f"switches.{stage}").glob("*.after.json")):
            before = after.with_name(after.name.replace(".after.json", ".before.json"))
            if before.exists():
                yield from readings(
                    load_reading(before),
                    load_reading(after),
                    run=plan.run,
                    stage=stage,
                    test="switches",
                    raw=str(after.relative_to(folder)),
                )


def _busy_ends(measurements: Iterable[Measurement]) -> set[tuple[Stage, str, str]]:
    """Return every (stage, node, rail) over which something was measured."""
    return {
        (m.stage, node, rail)
        for m in measurements
        if m.value is not None and m.rail
        for node in m.nodes
        for rail in m.rail.split(">")
    }


def _blames_the_idle(
    plan: Plan, readings: list[CounterReading], busy: set[tuple[Stage, str, str]]
) -> set[int]:
    """Return the places of readings that must show traffic, at ends over which nothing was measured.

    A silent NIC or port whose partner is dead is no finding: such a reading is left out, its cell not run.
    """
    floors = {
        (item.stage, item.metric.removeprefix("counter."))
        for item in plan.items
        if item.metric.startswith("counter.") and item.better is Better.HIGHER
    }
    return {
        place
        for place, reading in enumerate(readings)
        if (reading.stage, reading.counter) in floors
        and (reading.stage, _node(reading), reading.rail or "") not in busy
    }


def _node(reading: CounterReading) -> str:
    """Return the node at which a counter counts: its own, or the one cabled to the switch port."""
    return reading.device if reading.kind == "nic" else (reading.peer or "").partition("/")[0]
