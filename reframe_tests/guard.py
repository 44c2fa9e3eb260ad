"""The guard that every check carries: a job that did not complete, or a value that is missing, is not OK.

ReFrame by itself calls a test OK whose job was cancelled, timed out or lost its node after printing a number,
and only warns about a metric that it cannot read. The guard closes both holes, writes what Slurm said of the
job beside the job's outputs, and takes every metric and reference from the run's plan, so that ReFrame's
verdict and Shakedown's come from the same numbers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import secrets
import shlex
from pathlib import Path

import reframe as rfm
import reframe.core.runtime as rt
import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, run_before, sanity_function
from reframe.core.exceptions import PerformanceError, SanityError, SkipTestError

from shakedown.benchmarks.base.contract import JobKind
from shakedown.benchmarks.registry import JOB_KINDS
from shakedown.benchmarks.software.output import unusable_software
from shakedown.collect.outputs import job_measurements
from shakedown.evidence.job_folder import NODES, given, note_contents
from shakedown.evidence.signatures import Order
from shakedown.onnode.journal import NONCE
from shakedown.onnode.noted import ORDER as ORDERED
from shakedown.onnode.standing import SILENT_FILE, SILENT_S, WITH_SLURM
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.plan.time_limits import in_order
from shakedown.records.base import Better, Stage, to_json
from shakedown.records.plan import Plan
from shakedown.records.program import own_python
from shakedown.records.reading import LARGEST_DOCUMENT, BadInput
from shakedown.records.results import JobRecord, RunProblem
from shakedown.run import chain, service
from shakedown.run.folder import JOBS, ORDER, PLAN, RAW
from shakedown.run.ownership import SECRET
from shakedown.run.share import Share
from shakedown.slurm.client import Slurm
from shakedown.slurm.ending import Patience, Pending, flaw, how_it_ended, not_submitted
from shakedown.slurm.under_way import Turns

# How srun leaves the other tasks alone when a node dies or a task ends badly.
OUTLIVE = ("--no-kill", "--kill-on-bad-exit=0")
PENDING = Pending()  # of this ReFrame, whose jobs it alone cancels
TURNS = Turns()  # of this ReFrame's jobs on each node
UNPLANNED = "unplanned"  # lets `reframe --list` show the checks where there is no run yet


def run_folder() -> Path | None:
    """Return the folder of the run that is being made, from SHAKEDOWN_RUN."""
    folder = os.environ.get("SHAKEDOWN_RUN")
    return Path(folder) if folder else None


@functools.cache
def _jobs(folder: Path) -> Jobs:
    return Jobs.model_validate_json(Share(folder).read(folder / JOBS, LARGEST_DOCUMENT))


@functools.cache
def jobs_of(folder: Path) -> dict[str, JobSpec]:
    """Return a run's jobs by name, in the plan's order. They are settled before ReFrame begins."""
    return {job.name: job for job in _jobs(folder).jobs}


@functools.cache
def patience_of(folder: Path) -> Patience:
    """Return the one patience with Slurm that all jobs of this ReFrame share."""
    jobs = _jobs(folder)
    return Patience(jobs.waits.slurm_silent_s, epilog_s=jobs.prolog_s)


@functools.cache
def plan_of(folder: Path) -> Plan:
    """Return a run's plan, which is settled before ReFrame begins as well."""
    return Plan.model_validate_json(Share(folder).read(folder / PLAN, LARGEST_DOCUMENT))


@functools.cache
def order_of(folder: Path) -> dict[str, str]:
    """Return what jobs are told of the run's order: its digest and its nonce; nothing without an order."""
    try:
        content = Share(folder).read(folder / ORDER)
    except FileNotFoundError:
        return {}
    digest = hashlib.sha256(content).hexdigest()
    return {ORDERED: digest, NONCE: Order.model_validate_json(content).nonce}


def planned_jobs() -> list[str]:
    """Return the names of the run's jobs in the order in which they are submitted, stage by stage."""
    folder = run_folder()
    if folder is None:
        return [UNPLANNED]
    jobs = jobs_of(folder).values()
    return [job.name for stage in Stage for job in in_order(job for job in jobs if job.stage is stage)]


class Guard(rfm.RegressionTestPlugin):
    """What the check declares before and after a job. The benchmark's `JobKind` says how the job is run.

    Catches: a job that was cancelled, timed out, failed, was preempted, requeued or lost a node; a metric
    that is missing or not finite; a job that ran on other nodes than planned.
    """

    @run_after("init")
    def take_job_spec(self) -> None:
        self.valid_systems = ["*"]
        self.valid_prog_environs = ["site"]
        self.require_reference = True
        if run_folder() is None or self.planned == UNPLANNED:
            return
        spec = self.spec
        self.descr = f"{', '.join(spec.tests)} on {len(spec.nodes)} nodes. Catches: {self.kind.catches}"
        self.tags = {spec.stage.value, spec.kind}
        self.num_tasks = len(spec.nodes)
        self.num_tasks_per_node = 1
        self.time_limit = f"{spec.time_limit_s}s"

    @property
    def spec(self) -> JobSpec:
        """The planned job. No attribute: ReFrame copies a test's attributes and cannot copy it."""
        folder = run_folder()
        if folder is None:
            raise BadInput("no run", fix="set SHAKEDOWN_RUN to a folder made by `shakedown plan --output`")
        return jobs_of(folder)[self.planned]

    @property
    def kind(self) -> JobKind:
        """How the job is run, as its benchmark says."""
        return JOB_KINDS[self.spec.kind]

    @run_before("run")
    def prepare(self) -> None:
        folder, kind = run_folder(), self.kind
        assert folder is not None
        self.attempt = 1 + max(0, rt.runtime().current_run)
        self.out = folder / "raw" / f"{self.spec.name}.a{self.attempt}"
        share = Share(folder)
        share.make_folder(self.out)
        spec = self.spec
        for name, text in given(_jobs(folder), spec).items():
            share.write(self.out / name, text.encode())
        # What the job's programs know each other by, for its user alone to read.
        share.write(self.out / SECRET, secrets.token_hex(32).encode(), 0o600)
        reserved = any(option.startswith("--reservation") for option in self.current_partition.access)
        unusable = ""
        if not self.is_dry_run():
            unusable = patience_of(folder).unusable(self.spec.nodes, reserved=reserved)
        flawed = not_submitted(unusable)
        if not unusable and not kind.each_node and not kind.outlives_nodes and not self.is_dry_run():
            # One node without it would end the job of all; who each measures by itself says so itself.
            unusable = unusable_software(folder, spec)
            flawed = RunProblem(kind="not-run", message=unusable) if unusable else None
        self.record(JobRecord(state="NOT-SUBMITTED", job=None, problem=flawed, **self.about()))
        if unusable:
            raise SkipTestError(unusable)
        if not self.is_dry_run():
            job = self.job
            PENDING.watch(lambda: job.jobid, self.spec.nodes, reserved=reserved)
            self.job.options += TURNS.after(self.spec.name, self.spec.nodes, lambda: job.jobid)
        # Where settings.py had to name the folder of shakedown, a job's interpreter needs it too.
        if "PYTHONPATH" in os.environ:
            self.env_vars["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.job.options += [
            # The plan's own name, for people who read squeue: ReFrame's is the one check's and a hash.
            f"--job-name={self.spec.name}",
            f"--nodelist={','.join(self.spec.nodes)}",
            f"--nodes={len(self.spec.nodes)}",
            # A second start would mix its output with the first one's.
            "--no-requeue",
            *(["--no-kill"] if kind.outlives_nodes else []),
        ]
        # No step may read our input, wait for ever for one lost task, or see half the node's cores.
        self.job.launcher.options += [
            f"--mpi={kind.mpi}",
            f"--wait={kind.wait_s}",
            "--cpu-bind=none",
            "--input=none",
            *(OUTLIVE if kind.outlives_nodes else ()),
        ]
        out, with_slurm = shlex.quote(str(self.out)), shlex.join(WITH_SLURM)
        srun = "srun --ntasks-per-node=1 --input=none --mpi=none"
        step = last_step = f"{with_slurm} {srun}"
        if kind.outlives_nodes:
            # Slurm takes a dead node out of the job; a step of the first size would wait for it in vain. It
            # also forgets to give back what the first step held (22.05: "unable to update job's core use
            # information due to job resizing"), so this one must not ask for it.
            last_step = (
                f'left=$({with_slurm} squeue --noheader --jobs="$SLURM_JOB_ID" --format=%N); '
                'count=$(scontrol show hostnames "$left" | wc -l); '
                f'{with_slurm} timeout 300 {srun} --nodes="$count" --ntasks="$count" --nodelist="$left" '
                f"--overlap --wait=60 {' '.join(OUTLIVE)}"
            )
        python = shlex.join(own_python())
        self.prerun_cmds = [
            f'scontrol show hostnames "$SLURM_JOB_NODELIST" > {out}/{NODES}',
            *self.prerun_cmds,
            f"{step} {python} shakedown.onnode.counters before {out}",
        ]
        order = order_of(folder)
        self.env_vars.update(order)
        self.env_vars[SILENT_S] = str(_jobs(folder).waits.slurm_silent_s)
        self.env_vars[SILENT_FILE] = str(self.out / "slurm.silent")
        complete = kind.completeness(self.out) if kind.completeness else ()
        # The script's status is its last command's; it must be the benchmark's.
        self.postrun_cmds = [
            "status=$?",
            *([f"[ $status -ne {kind.also_good} ] || status=0"] if kind.also_good else []),
            *([f"[ $status -eq 0 ] || ! {' '.join(complete)} || status=0"] if complete else []),
            *self.postrun_cmds,
            f"{last_step} {python} shakedown.onnode.counters after {out}",
            # Last of all: what a node has signed does not change any more.
            *([f"{last_step} {python} shakedown.evidence.attest {out}"] if order else []),
            "exit $status",
        ]

    @run_after("run")
    def ask_slurm(self) -> None:
        """Record how the job ended; all but a clean end on the planned nodes is refused."""
        if self.is_dry_run():
            return
        # A test that raises while it waits keeps its place among max_jobs, and ReFrame never ends: what is
        # wrong is raised in the sanity phase.
        try:
            flawed = self._record_end()
        except Exception as error:
            self.unusable = f"how the job ended could not be recorded: {error}"
        else:
            self.unusable = flawed.message if flawed else ""
        TURNS.ended(self.spec.name)

    def _record_end(self) -> RunProblem | None:
        spec, folder = self.spec, run_folder()
        assert folder is not None
        patience = patience_of(folder)
        share = Share(folder)
        share.remove(self.out / SECRET)
        state, flawed = how_it_ended(str(self.job.jobid), patience, limit_s=spec.time_limit_s)
        for name in (self.job.stdout, self.job.stderr, self.job.script_filename):
            with contextlib.suppress(OSError):
                share.copy(Path(self.stagedir) / name, self.out / name)
        nodes: tuple[str, ...] = ()
        with contextlib.suppress(OSError):
            nodes = tuple(share.read(self.out / NODES).decode("ascii", "replace").split())
        flawed = flawed or flaw(state, spec.nodes, nodes, PENDING.cancelled)
        self.record(
            JobRecord(
                state=state.state,
                job=state.job,
                exit_code=state.exit_code or None,
                nodes=nodes,
                started=state.started,
                duration_s=state.duration_s,
                problem=flawed,
                files=note_contents(self.out),
                **self.about(),
            )
        )
        if order := order_of(folder):
            self._chain(folder, order[ORDERED], state.job)
        return flawed

    def _chain(self, folder: Path, order: str, job: str) -> None:
        """Add the job to the run's chain, with Slurm's own record of it; where Slurm is silent, without."""
        account = ""
        with contextlib.suppress(BadInput):
            account = Slurm().ask("scontrol", "--oneliner", "show", "job", job)
        chain.add(folder / RAW, self.out.name, order, account, service.signer())

    def about(self) -> dict[str, object]:
        """Return the fields that a job record has from the plan alone."""
        spec = self.spec
        return {"run": self.plan().run, "stage": spec.stage, "test": spec.name, "attempt": self.attempt}

    def plan(self) -> Plan:
        """Return the run's plan."""
        folder = run_folder()
        assert folder is not None
        return plan_of(folder)

    def record(self, record: JobRecord) -> None:
        """Write job.json whole or not at all."""
        Share(self.out.parents[1]).write(self.out / "job.json", to_json(record))

    @sanity_function
    def job_is_usable(self) -> object:
        if self.unusable:
            raise SanityError(f"{self.unusable}; outputs: {self.out}")
        return sn.assert_true(any(self.out.glob("outputs*.jsonl")), msg=f"no outputs in {self.out}")

    @run_before("performance")
    def declare_metrics(self) -> None:
        """Declare every planned cell of this job with the plan's reference, and note those not measured."""
        self.missing: list[str] = []
        if self.is_dry_run():
            return
        plan, spec = self.plan(), self.spec
        measured = {m.cell: m.value for m in job_measurements(plan, {spec.name: spec}, self.out)}
        references = {}
        for item in plan.items:
            if item.stage != spec.stage or item.test not in spec.tests or "counter." in item.metric:
                continue
            reference = plan.references[item.reference]
            for cell, nodes, rail, direction in item.cells():
                if not spec.measures(item.test, nodes, rail, direction, item.params):
                    continue
                value = measured.get(cell)
                if value is None or not math.isfinite(value):
                    self.missing.append(cell)
                    continue
                tag = cell.split("/", 1)[1].replace("/", ".").replace("=", "-").replace(",", "+")
                self.perf_variables[tag] = sn.make_performance_function(sn.defer(value), reference.unit)
                base = abs(reference.value) or 1.0
                edge = (reference.gate - reference.value) / base
                bounds = (edge, None) if reference.better is Better.HIGHER else (None, edge)
                references[tag] = (reference.value, *bounds, reference.unit)
        self.reference = {f"{self.current_system.name}:{self.current_partition.name}": references}

    @run_after("performance", always_last=True)
    def every_metric_is_there(self) -> None:
        if not self.is_dry_run() and (self.missing or not self.perf_variables):
            some = ", ".join(self.missing[:3]) or "no metric at all"
            raise PerformanceError(f"{len(self.missing)} planned values are missing: {some}")
