"""Collect a run from its raw files, or hold it against them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from shakedown.benchmarks.base.contract import rails_of
from shakedown.benchmarks.registry import BENCHMARKS
from shakedown.collect.counters import NOT_READ, confirmed, counted, read_nodes, uncounted
from shakedown.collect.outputs import Gpus, Told, told_by, without_place
from shakedown.collect.surroundings import beside_others
from shakedown.collect.switches import SWITCHES, implied, set_back, switch_counters, without_the_idle
from shakedown.collect.twice import gpus_of, own_digests, without_copies, without_one_for_two
from shakedown.evidence.job_folder import Lost, as_kept, journal, lost_files, shared_jobs, told_by_tasks
from shakedown.evidence.window import clocks_ahead, paths_flaws, stage_windows
from shakedown.plan.flow_paths import PATHS, FlowPath, known_paths, lines_of_paths
from shakedown.plan.jobs import Jobs, JobSpec, counter_tests, job_and_attempt
from shakedown.records.base import Stage
from shakedown.records.plan import Plan
from shakedown.records.reading import BadInput, one_reading, open_plain, read_evidence
from shakedown.records.results import CounterReading, JobRecord, Measurement, RunProblem
from shakedown.records.wording import count, ended, printable
from shakedown.records.writing import write_aside
from shakedown.run.folder import (
    COLLECTED,
    COUNTERS,
    LONGEST_LINE,
    RAW,
    REFUSED,
    RESULTS,
    Run,
    lines_of,
    redact_folder,
    refuse_sealed,
    run_files,
    set_aside,
    write_lines,
)


def uncollected(run: Run) -> tuple[str, str, int] | None:
    """Return which of results and counters is not what the raw files give, how, and in how many lines.

    Raises BadInput as `gather` does.
    """
    for name, lines in _files(*gather(run)):
        path = run.folder / name
        differing, first = _held_against(path, lines) if path.exists() else _compared((), lines)
        if differing:
            return name, first, differing
    return None


def hold_against_raw(run: Run) -> str:
    """Hold a run's results against its raw files; return a notice where either is missing.

    Raises:
        BadInput: they differ, or the raw files cannot be read.
    """
    left = count(len(run.job_records), "job")
    if not (run.folder / RESULTS).exists():
        if not run.job_records:
            return ""  # nothing was collected, so nothing can pass
        why = _not_collectable(run)
        return f"the raw files of {left} {why or f'were not collected: run shakedown collect {run.folder}'}"
    if not (run.has_jobs and run.job_records):
        return f"{RESULTS} was judged as it stands: this run has no jobs' raw files to recompute it from"
    if found := uncollected(run):
        name, how, lines = found
        raise BadInput(
            f"differs from the raw files in {count(lines, 'line')}, first: {how}",
            fix=f"run shakedown collect {run.folder}",
            file=run.folder / name,
        )
    return ""


def _not_collectable(run: Run) -> str:
    """Say why `collect` would refuse a run; empty if it would not."""
    try:
        for _ in run_files(run.folder, []):
            pass
        _paths(run)
        gather(run)
    except BadInput as refused:
        return f"cannot be collected: {refused}"
    return ""


def _files(
    measurements: list[Measurement], counters: list[CounterReading]
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield results and counters as their files are to hold them."""
    yield RESULTS, lines_of(measurements)
    yield COUNTERS, lines_of(counters)


def _held_against(path: Path, lines: Iterable[bytes]) -> tuple[int, str]:
    """Return in how many lines a file is not as recomputed, and how in the first. Raises BadInput: no file.

    A line of each is held at a time: that file of a large run is larger than any document may be.
    """
    with open_plain(path) as file:
        return _compared(iter(lambda: file.readline(LONGEST_LINE + 1), b""), lines)


def _compared(recorded: Iterable[bytes], expected: Iterable[bytes]) -> tuple[int, str]:
    differing, first, old, new = 0, "", 0, 0
    for a, b in zip_longest(recorded, expected):
        old, new = old + (a is not None), new + (b is not None)
        differing += a != b
        if a != b and not first and a is not None and b is not None:
            # Lines of JSON are long and differ somewhere: show that place.
            at = max(0, next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0) - 40)
            at = at if at > 40 else 0
            was, now = (x[at:].strip().decode(errors="replace")[:120] for x in (a, b))
            first = f"line {old} says {was}, recomputed {now}"
    return differing, first or f"{old} lines, recomputed {new}"


def difference(recorded: bytes, expected: bytes) -> str:
    """Name the first line in which a recorded file differs from the recomputed one."""
    return "" if recorded == expected else _compared(recorded.splitlines(), expected.splitlines())[1]


# A job's folder `raw/<job>/` holds `job.json` (what Slurm said), `outputs*.jsonl` (which file measures which
# cells) and the tools' own files. Everything here can be done again later, on a laptop, with the same result.


def collect(folder: Path, flaws: list[BadInput] | None = None) -> tuple[int, int]:
    """Write `results.jsonl` and `counters.jsonl` of a run from its raw files; return how many lines each.

    Where that fails, what an earlier call made of the run is set aside: it may say PASS of other raw files.

    Args:
        folder: the run's.
        flaws: gets what below `raw/` is no file of a run (a link, a core file): it is not read, so that it
            costs the cells that it should measure and no others.

    Raises BadInput as `gather` does, and for a sealed run.
    """
    refuse_sealed(folder, "collect")
    try:
        # Nothing is read, judged or kept before secrets are gone.
        redact_folder(folder, [] if flaws is None else flaws)
        run = Run(folder, simulated=True)
        measurements, counters = gather(run)
        write_lines(folder / RESULTS, measurements)
        write_lines(folder / COUNTERS, counters)
        if paths := list(_paths(run)):
            write_aside(folder / PATHS, lines_of_paths(paths))
        for name in COLLECTED:  # what a call that failed set aside
            (folder / f"{name}.old").unlink(missing_ok=True)
    except BaseException:
        set_aside(folder, COLLECTED)
        raise
    return len(measurements), len(counters)


def _paths(run: Run) -> Iterable[FlowPath]:
    """Return what `paths.jsonl` is to hold, as far as links leave flows one way; the site's own stays.

    Raises BadInput: the jobs or the site's own record cannot be read.
    """
    jobs, own = run.planned_jobs, run.own_paths
    told = own is not None and not paths_flaws(own, run.ran, run.plan)
    return own if own is not None and told else known_paths(run.plan, jobs)


def gather(run: Run) -> tuple[list[Measurement], list[CounterReading]]:
    """Return what a run's raw files say, in a fixed order, and nowhere where its folder lies.

    Raises:
        BadInput: the jobs cannot be read, `raw` is a link, or a job is of another run. Any other file
            that cannot be read is no such error: its cells get no value and the reason.
    """
    with one_reading() as changed:
        measurements, counters = _gathered(run)
    raw, told = run.place / RAW, str(run.place)
    unsteady = {path.parent.name: path.name for path in sorted(changed) if path.parent.parent == raw}

    def without(text: str) -> str:
        return text.replace(f"{told}/", "").replace(told, "the run's folder")

    for number, m in enumerate(measurements):
        texts = {"detail": m.detail, "disturbed": m.disturbed}
        new: dict[str, object] = {
            name: without(text) for name, text in texts.items() if text and told in text
        }
        if m.problem is not None and told in m.problem.message:
            new["problem"] = m.problem.model_copy(update={"message": without(m.problem.message)})
        if m.raw and (file := unsteady.get(m.raw.split("/")[1])):
            message = f"{file} was changed while the run was read: what this job's files say is unknown"
            new["problem"] = RunProblem(kind="other", message=message)
        if new:
            measurements[number] = m.model_copy(update=new)
    counters = [
        c.model_copy(update={"unread": without(c.unread)}) if c.unread and told in c.unread else c
        for c in counters
    ]
    return measurements, counters


def most_records(plan: Plan) -> int:
    """Return how many records a job's journals may have: many times what a plan's cells explain."""
    return 1000 + 16 * sum(len(item) for item in plan.items)


@dataclass(frozen=True)
class _Known:
    """What each job's folder is read with: what was planned, and what the run's other files say of it."""

    plan: Plan
    jobs: Jobs
    specs: Mapping[str, JobSpec]
    tests: Mapping[str, str]  # `counter_tests`
    shared: Mapping[str, tuple[str, ...]]  # `shared_jobs`
    clocks: Mapping[str, float]  # `clocks_ahead`
    gpus: Gpus
    most: int  # records of a job's journals


def _gathered(run: Run) -> tuple[list[Measurement], list[CounterReading]]:
    folder, plan, jobs = run.place, run.plan, run.planned_jobs
    measurements: list[Measurement] = []
    counters: list[CounterReading] = []
    said: list[tuple[Stage, Told]] = []
    digests: list[tuple[str, str]] = []
    specs, most = {spec.name: spec for spec in jobs.jobs}, most_records(plan)
    if (folder / RAW).is_symlink():
        raise BadInput("is a link", fix="copy the folder here", file=folder / RAW)
    # One that is damaged and no planned job's has no cell that it could measure.
    records = [(name, job) for name in run.job_records if (job := _job(run, specs, name)) is not None]
    shared = shared_jobs(records)
    tests, clocks, gpus = counter_tests(jobs.jobs), clocks_ahead(run.snapshot), gpus_of(folder, jobs)
    known = _Known(plan, jobs, specs, tests, shared, clocks, gpus, most)
    for name, record in records:
        if record.run != plan.run:
            raise BadInput(
                f"belongs to run {record.run!r}, not {plan.run!r}",
                fix="remove the folder: results of another run prove nothing here",
                file=folder / RAW / name / "job.json",
            )
        found = _of_job(known, folder / RAW / name, record)
        measurements += found.measurements
        counters += found.counters
        digests += found.digests
        said += [(record.stage, one) for one in found.told]
    ran = [record for _, record in records]
    measurements.extend(_never_begun(folder, known, {job.test for job in ran}))
    of_switches, unread = switch_counters(plan, folder, stage_windows(ran), jobs.nics)
    counters.extend(set_back(of_switches, implied(said)))
    counters = without_the_idle(plan, counters, measurements)
    for stage, switch, flaw in unread:
        measurements.extend(uncounted(plan, stage, SWITCHES, switch, flaw))
    measurements.extend(m for one in BENCHMARKS if one.gather is not None for m in one.gather(run))
    measurements = without_copies(measurements, digests)
    measurements = without_one_for_two(folder, measurements, jobs)
    measurements.sort(key=lambda m: (m.cell, m.attempt, m.raw or ""))
    return measurements, counters


@dataclass(frozen=True)
class _OfJob:
    """What a job's folder says: cells with and without values, NICs' counters, and each output by itself."""

    measurements: list[Measurement]
    counters: list[CounterReading]
    told: list[Told]
    digests: list[tuple[str, str]]


def _of_job(known: _Known, folder: Path, record: JobRecord) -> _OfJob:
    """Read one job's folder, once, and say what it is evidence of."""
    plan, jobs, spec = known.plan, known.jobs, known.specs.get(record.test)
    measurements: list[Measurement] = []
    counters: list[CounterReading] = []
    flaws: list[BadInput] = []
    job, failed, alone = told_by_tasks(folder, as_kept(folder.name, record, spec, known.shared), spec)
    linked = folder.is_symlink()  # what lies elsewhere is not this run's: nothing of it is read
    outputs = [] if linked else journal(folder, flaws, known.most)
    told = told_by(
        plan,
        known.specs,
        folder,
        job,
        outputs,
        clocks=known.clocks,
        failed=failed,
        alone=alone,
        gpus=known.gpus,
    )
    lost = Lost() if spec is None or linked else lost_files(folder, job, jobs, spec, outputs, alone=alone)
    silent: dict[str, RunProblem] = {}
    if spec is not None and not linked:
        test = known.tests[spec.name]
        readings, unread = read_nodes(folder, job, spec.nodes, known.clocks, jobs.nics)
        unread = {**unread, **lost.counters}
        readings = {node: NOT_READ if node in unread else both for node, both in readings.items()}
        rails = rails_of(jobs, spec)
        told = beside_others(confirmed(told, readings, unread, jobs.nics, rails), readings, rails)
        counters = counted(plan, jobs, folder, job, spec, test, readings)
        for node, problem in unread.items():
            why_not = failed.get(node, problem)
            cells = list(uncounted(plan, job.stage, test, node, why_not, job=job))
            measurements += cells
            if not cells:
                silent[node] = why_not
    told = [one.of(lost.held(m, silent) for m in one.measurements) for one in told]
    measurements += (found := [measurement for one in told for measurement in one.measurements])
    why = job.problem or next((_parse(folder, flaw) for flaw in flaws), None) or lost.any or _end(job)
    if spec is not None and why is not None:
        theirs = failed if alone else {}
        measurements += _spoiled(plan, spec, folder, job, why, {m.cell for m in found}, theirs)
    return _OfJob(measurements, counters, told, list(own_digests(folder, outputs)))


def _never_begun(folder: Path, known: _Known, begun: set[str]) -> Iterator[Measurement]:
    """Yield the cells of jobs that were never begun, where the playbook left word why."""
    if not os.path.lexists(folder / REFUSED):
        return
    try:
        said = printable(read_evidence(folder / REFUSED).decode("utf-8", "replace").strip())
    except (BadInput, OSError) as error:
        said = without_place(folder, error)
    why = RunProblem(kind="not-run", message=f"the run could not be made: {said or REFUSED}"[:2000])
    plan = known.plan
    for spec in (spec for spec in known.jobs.jobs if spec.name not in begun):
        never = JobRecord(
            run=plan.run, stage=spec.stage, test=spec.name, attempt=1, job=None, state="NOT-SUBMITTED"
        )
        yield from _spoiled(plan, spec, folder, never, why, set(), {})
        for node in spec.nodes:
            yield from uncounted(plan, spec.stage, known.tests[spec.name], node, why, job=never)


def _job(run: Run, specs: Mapping[str, JobSpec], folder: str) -> JobRecord | None:
    """Return what Slurm said of a job. Where that is damaged, a record of the planned job that says so.

    None if it is damaged and no planned job has this folder.
    """
    record = run.job_records[folder]
    if isinstance(record, JobRecord):
        return record
    name, attempt = job_and_attempt(folder)
    if name not in specs:
        return None
    return JobRecord(
        run=run.plan.run,
        stage=specs[name].stage,
        test=name,
        job=None,
        state="UNKNOWN",
        attempt=max(attempt, 1),
        problem=_parse(run.place / RAW / folder, record),
    )


def _end(job: JobRecord) -> RunProblem | None:
    """Return how a job ended of which nothing else says why cells lack, if it did not complete."""
    if job.state == "COMPLETED":
        return None
    return RunProblem(kind="not-run", message=ended(job.job, job.state))


def _parse(job_folder: Path, refused: Exception) -> RunProblem:
    return RunProblem(kind="parse", message=without_place(job_folder, refused))


def _spoiled(
    plan: Plan,
    spec: JobSpec,
    job_folder: Path,
    job: JobRecord,
    why: RunProblem,
    found: set[str],
    failed: Mapping[str, RunProblem],
) -> Iterator[Measurement]:
    """Yield the planned cells that a job left without any output, with the reason why the job is no good.

    `failed`: the reason of each node that failed alone. Where there is no output, a reader is shown the job's
    record, unless it lies elsewhere.
    """
    told = not job_folder.is_symlink() and (job_folder / "job.json").is_file()
    raw = f"{RAW}/{job_folder.name}/job.json" if told else None
    for item in plan.items:
        if item.stage != spec.stage or item.metric.startswith("counter."):
            continue
        for cell, nodes, rail, direction in item.cells():
            if cell not in found and spec.measures(item.test, nodes, rail, direction, item.params):
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
                    raw=raw,
                    problem=next((failed[node] for node in nodes if node in failed), why),
                )
