"""`shakedown watch RUN`: what a run does now; `shakedown power RUN`: what its servers draw meanwhile."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shakedown.commands.arguments import command
from shakedown.records.reading import BadInput, ExitStatus, read_as
from shakedown.records.wording import count, printable
from shakedown.records.writing import write_aside

if TYPE_CHECKING:
    from rich.console import Group

    from shakedown.plan.jobs import JobSpec
    from shakedown.records.results import JobRecord
    from shakedown.slurm.client import Slurm

_ENDED = ("done", "failed")
_LISTED = 12  # jobs that are named; a mesh of many nodes has hundreds
_DEEPEST = 6  # folders below a run that are copied; jobs make two
_MOST_COPIED = 2 << 30  # bytes of what has ended, a file counted as a block at least
_BLOCK = 4096
_PAUSE = 10.0  # judgings of so long are left between two of them; the last job's end is judged at once
_SILENT_S = 600.0  # in a log, so long without a change is told
_ELAPSED = re.compile(r"(?:([0-9]{1,4})-)?(?:([0-9]{1,2}):)?([0-9]{1,2}):([0-9]{2})")  # squeue's %M
_PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Shakedown</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">RENEWAL
</head><body style="color:{foreground};background:{background}"><pre>{code}</pre></body></html>
"""


@dataclass(frozen=True)
class JobNow:
    """A planned job: not submitted, waiting (`why`: Slurm's reason), running, done, or failed (`why`)."""

    name: str
    stage: str
    nodes: int
    state: str = "not submitted"
    why: str = ""
    took_s: float = 0.0  # so far


@dataclass(frozen=True)
class Look:
    """A run at one moment."""

    run: str
    jobs: tuple[JobNow, ...]
    node_hours_used: float
    expected_left_s: int  # of wall time
    limit_left_s: int
    told: dict[str, str]  # what else there is, by what it is of: Slurm, nodes out, worst cell so far

    @property
    def over(self) -> bool:
        """Whether each job has ended."""
        return all(job.state in _ENDED for job in self.jobs)

    def sums(self) -> str:
        """Return the hours, in one line."""
        from shakedown.report.text import duration

        left = f"{duration(self.expected_left_s)} left as expected, {duration(self.limit_left_s)} at most"
        return f"{self.node_hours_used:.1f} node-hours used; {left}, without the time in the queue"

    def lines(self) -> dict[str, str]:
        """Return what a log tells when it changes."""
        jobs = {job.name: f"{job.state}{job.why and f' ({job.why})'}" for job in self.jobs}
        return {name: said for name, said in jobs.items() if said != "not submitted"} | self.told


class Watched:
    """A run's folder, read through `Share` alone: whoever writes there may put a link where a file is due.

    `copy` is an empty folder: what has ended is judged there. Raises BadInput: the folder holds no run.
    """

    def __init__(self, folder: Path, copy: Path, slurm: Slurm) -> None:
        from shakedown.plan.jobs import Jobs
        from shakedown.run.folder import JOBS, PLAN, RAW
        from shakedown.run.share import Share

        self._folder, self._copy, self._slurm = folder.resolve(), copy, slurm
        self._places = {folder.absolute(), self._folder}  # Slurm tells a job's folder as it was submitted
        self._share, self._raw = Share(self._folder), self._folder / RAW
        try:
            for name in (PLAN, JOBS):
                (copy / name).write_bytes(self._share.read(self._folder / name))
        except OSError as error:
            fix = "name the run's folder on the share: shared_stage_path/runs/RUN"
            raise BadInput(f"holds no run: {error.strerror or error}", fix=fix, file=folder) from None
        self.jobs = read_as(Jobs, (copy / JOBS).read_bytes(), file=folder / JOBS)
        self._copied: set[Path] = set()
        self._worst, self._new = "", True  # of what is copied, and whether more has been since
        self._room, self._judge_next = _MOST_COPIED, 0.0  # bytes; a moment of time.monotonic

    def look(self) -> Look:
        """Return what the run does now."""
        from shakedown.plan.time_limits import course
        from shakedown.records.base import Stage

        told: dict[str, str] = {}
        ended, queued = self._ended(told), self._queued(told)
        now = {spec.name: _now(spec, ended.get(spec.name), queued.get(spec.name)) for spec in self.jobs.jobs}
        rest = [spec for spec in self.jobs.jobs if now[spec.name].state not in _ENDED]
        if not ended and not queued:
            told["run"] = f"nothing has begun in {self._folder}; a run lies in shared_stage_path/runs/RUN"
        if ended:
            told["worst cell so far"] = self._worst_of(over=not rest)
        self._nodes_out(rest, told)

        def left_s(*, limit: bool) -> int:
            def of(spec: JobSpec) -> int:
                whole = spec.time_limit_s if limit or spec.expected_s is None else spec.expected_s
                return max(whole - int(now[spec.name].took_s), 0)

            stages = ([spec for spec in rest if spec.stage is stage] for stage in Stage)
            return sum(course(specs, of, self.jobs.max_jobs).wall_s for specs in stages)

        used = sum(job.took_s * job.nodes for job in now.values()) / 3600
        told = {name: printable(said)[:500] for name, said in told.items()}
        return Look(self.jobs.run, (*now.values(),), used, left_s(limit=False), left_s(limit=True), told)

    def _ended(self, told: dict[str, str]) -> dict[str, JobRecord]:
        """Return what is noted of each job's last attempt that has ended; its folder is copied once."""
        from shakedown.plan.jobs import job_and_attempt
        from shakedown.records.results import JobRecord

        found: dict[str, JobRecord] = {}
        try:
            names = self._share.names(self._raw)
        except FileNotFoundError:
            return {}  # no stage has begun
        except OSError as error:
            told["share"] = f"{self._raw.name} cannot be read: {error.strerror or error}"
            return {}
        for (job, _), name in sorted((job_and_attempt(name), name) for name in names):
            path = self._raw / name / "job.json"
            try:
                found[job] = read_as(JobRecord, self._share.read(path), file=path)
                if path not in self._copied:
                    self._take(self._raw / name)
                    self._copied.add(path)
                    self._new = True
            except (FileNotFoundError, NotADirectoryError):
                continue  # it runs; or it is of no job
            except (OSError, BadInput) as error:
                told["share"] = f"what ended is not all read: {error}"
        return found

    def _take(self, path: Path) -> None:
        """Copy a folder of the share, or a file; what is neither is left out."""
        if self._room <= 0:
            return
        target = self._copy / path.relative_to(self._folder)
        try:
            names = self._share.names(path)
        except NotADirectoryError:
            content = self._share.read(path)
            self._room -= max(len(content), _BLOCK)
            if self._room > 0:
                target.write_bytes(content)
            return
        if len(target.relative_to(self._copy).parts) > _DEEPEST:
            return
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            try:
                self._take(path / name)
            except OSError:  # a link, a pipe, too large: collecting the run says it
                continue

    def _worst_of(self, *, over: bool) -> str:
        """Return what fails worst of what has ended, judged anew at the end and as often as is cheap."""
        if self._room <= 0:
            return f"not judged here: what has ended is more than {_MOST_COPIED >> 30} GiB"
        began = time.monotonic()
        if self._new and (over or began >= self._judge_next):
            self._new = False
            try:
                from shakedown.collect.run import collect
                from shakedown.judge.judged import judge_folder
                from shakedown.records.base import Outcome

                collect(self._copy)
                verdict = judge_folder(self._copy)
                failed = [cell for cell in verdict.cells if cell.outcome is Outcome.FAIL]
                of = f"{verdict.coverage.measured} of {verdict.coverage.planned} required cells measured"
                why = f"{failed[0].reason} ({count(len(failed), 'cell')} FAIL; " if failed else "none fails ("
                self._worst = f"{why}{of}; no verdict yet)"
            except ImportError as error:  # a submit host may have less than a controller
                self._worst = f"not judged here: {error.name} is not installed"
            except (BadInput, OSError) as refused:
                self._worst = f"cannot be judged: {refused}"
            self._judge_next = time.monotonic() + _PAUSE * (time.monotonic() - began)
        return self._worst

    def _queued(self, told: dict[str, str]) -> dict[str, list[str]]:
        """Return squeue's fields of the run's jobs, by name; any user's: the run's may be another's."""
        found: dict[str, list[str]] = {}
        try:
            said = self._slurm.ask("squeue", "--noheader", "--format=%i|%j|%T|%r|%M|%Z")
        except BadInput as refused:
            told["Slurm"] = f"does not say what waits or runs: {refused.what}"
            return found
        for line in said.splitlines():
            fields = line.strip().split("|")
            path = Path(fields[-1])
            ours = ".." not in path.parts and self._places & {path, *path.parents}
            if len(fields) == 6 and re.fullmatch("[0-9]+", fields[0]) and ours:
                found[fields[1]] = fields
        return found

    def _nodes_out(self, rest: list[JobSpec], told: dict[str, str]) -> None:
        from shakedown.slurm.client import ask_nodes, parse_unusable

        nodes = tuple(dict.fromkeys(node for spec in rest for node in spec.nodes))
        if nodes and "Slurm" not in told:
            reserved = any(option.startswith("--reservation") for option in self.jobs.submit)
            try:
                out = parse_unusable(self._slurm.ask(*ask_nodes(nodes)), nodes, reserved=reserved)
                told.update({"nodes out": out} if out else {})
            except BadInput as refused:
                told["nodes out"] = f"not known: {refused.what}"


def _now(spec: JobSpec, record: JobRecord | None, queued: list[str] | None) -> JobNow:
    """Return a job as its record has it, or as Slurm does while another attempt is under way."""
    job = JobNow(spec.name, spec.stage.value, len(spec.nodes))
    if queued and (record is None or record.job != queued[0]):
        _, _, state, reason, elapsed, _ = queued
        if state == "PENDING":
            return replace(job, state="waiting", why=printable(reason)[:60])
        clock = _ELAPSED.fullmatch(elapsed)
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups()) if clock else (0, 0, 0, 0)
        took_s = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
        why = "" if state == "RUNNING" else printable(state)[:60]
        return replace(job, state="running", why=why, took_s=took_s)
    if record is None:
        return job
    took_s = record.duration_s or 0.0
    if record.state == "COMPLETED" and record.problem is None:
        return replace(job, state="done", took_s=took_s)
    why = printable(record.problem.message if record.problem else record.state)[:200]
    return replace(job, state="failed", why=why, took_s=took_s)


def _drawn(look: Look) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table("stage", title=Text(f"run {look.run}"), title_justify="left", box=None, pad_edge=False)
    states = ("not submitted", "waiting", "running", "done", "failed")
    for state in states:
        table.add_column(state, justify="right", style="red" if state == "failed" else None)
    for stage in dict.fromkeys(job.stage for job in look.jobs):
        mine = [job.state for job in look.jobs if job.stage == stage]
        table.add_row(stage, *(str(mine.count(state) or "") for state in states))
    named = [job for job in look.jobs if job.state in ("waiting", "running", "failed")]
    said = look.lines()
    lines = [f"{job.name}: {said[job.name]}" for job in named[:_LISTED]]
    lines += [f"and {len(named) - _LISTED} more jobs"] if len(named) > _LISTED else []
    lines += [look.sums(), *(f"{name}: {words}" for name, words in look.told.items())]
    return Group(table, *(Text(line) for line in lines))  # Text, not markup: it comes from the cluster


def page(look: Look, every_s: int) -> str:
    """Return a page of a look that loads itself anew while the run is under way."""
    from rich.console import Console

    console = Console(record=True, file=io.StringIO(), width=160)
    console.print(_drawn(look))
    renewal = "" if look.over else f'\n<meta http-equiv="refresh" content="{every_s}">'
    return console.export_html(code_format=_PAGE.replace("RENEWAL", renewal), inline_styles=True)


def changes(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """Yield a line for each thing that is said otherwise than before, or no more."""
    for name, said in after.items():
        if before.get(name) != said:
            yield f"{name}: {said}"
    yield from (f"{name}: no longer so" for name in before if name not in after)


@command(
    "shakedown watch reports/runs/lab --once", "shakedown watch reports/runs/lab --once --html watch.html"
)
def watch(
    run: Annotated[Path, typer.Argument(help="The run's folder on the share: shared_stage_path/runs/RUN.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write a page here that renews itself.")] = None,
    every: Annotated[int, typer.Option(min=2, max=3600, help="Seconds between two looks.")] = 15,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Look once; print JSON.")] = False,
) -> None:
    """Watch a run on its submit host until its last job has ended; it changes nothing and gives no verdict.

    Stages, jobs that wait (with Slurm's reason), run or have ended, nodes out, hours used and left, the worst
    cell so far. Without a terminal it prints a line for each change, and one when nothing changes for long.
    """
    from rich.console import Console
    from rich.live import Live

    from shakedown.slurm.client import Slurm

    for end in (signal.SIGTERM, signal.SIGHUP):  # a lost connection too; the copy goes with whom it is for
        if signal.getsignal(end) is signal.SIG_DFL:
            signal.signal(end, signal.default_int_handler)
    terminal = sys.stdout.isatty() and not (once or as_json)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    with (
        tempfile.TemporaryDirectory() as copy,
        Live(console=Console(quiet=not terminal), auto_refresh=False) as live,
    ):
        watched, before, told_at = Watched(run, Path(copy), Slurm()), dict[str, str](), time.monotonic()
        while True:
            look = watched.look()
            if html is not None:
                write_aside(html, page(look, every).encode())
            lines = list(changes(before, look.lines()))
            if as_json:
                print(json.dumps(asdict(look), indent=2))
            elif once:
                console.print(_drawn(look))
            elif terminal:
                live.update(_drawn(look), refresh=True)
            elif lines or time.monotonic() - told_at > _SILENT_S:
                at = datetime.now(UTC).strftime("%H:%M:%SZ")
                lines = [*(lines or ["nothing has changed"]), look.sums()]
                print(*(f"{at} {line}" for line in lines), sep="\n", flush=True)
                told_at = time.monotonic()
            if once or as_json or look.over:
                return
            before = look.lines()
            time.sleep(every)


@command("shakedown power reports/runs/PT --bmcs ~/bmcs.yml --seconds 3600")
def power(
    run: Annotated[Path, typer.Argument(help="The run's folder, with its plan.json.")],
    bmcs: Annotated[Path, typer.Option(help="Which BMC is which node's, and where its password is.")],
    seconds: Annotated[float, typer.Option(min=1, max=86400, help="How long to read.")] = 3600,
    every: Annotated[float, typer.Option(min=0.5, max=60, help="Seconds from one reading to the next.")] = 2,
) -> int:
    """Read every node's power from its BMC, through Redfish or IPMI, while a run measures.

    Start it before the run's jobs, on a machine that reaches the BMCs and has the run's folder; it ends by
    itself or with Ctrl-C. Readings go to raw/server_power/ and become metric server_power of the tests that
    acceptance.nccl.server_power asks for. The file of BMCs:

    \b
      bmcs:
        n1: {through: redfish, address: 192.0.2.111, user: monitor, password_file: bmc.password}
        n2: {through: ipmi, address: 192.0.2.112, user: monitor, password_file: bmc.password}

    Passwords are in files of mode 600, and nowhere else: not in arguments, logs, readings or reports.

    Exit status 0: every node was read; 3: a node never was; 2: bad input.
    """
    import threading

    from shakedown.collect.server_watts import read_bmcs, reader, sample
    from shakedown.run.folder import Run

    nodes = Run(run).plan.nodes
    found = read_bmcs(bmcs)
    if missing := [node for node in nodes if node not in found]:
        raise BadInput(f"no BMC of {', '.join(missing[:5])}", fix="add it under bmcs", file=bmcs)
    readers = {node: reader(found[node]) for node in nodes}
    counts = sample(run, readers, every_s=every, for_s=seconds, stop=threading.Event())
    for node, (good, bad) in counts.items():
        typer.echo(f"{node}: {good} readings" + (f", {bad} times none" if bad else ""))
    return ExitStatus.PASS if all(good for good, _ in counts.values()) else ExitStatus.INCOMPLETE
