"""Jobs and runs that are under way."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from shakedown.records.reading import BadInput, loads, read_bytes
from shakedown.run.lock import PROC, Holder, argv_of, end, start_ticks, with_argument
from shakedown.slurm.client import NoAnswer, Slurm

_EVERY_S = 2.0
_GONE_S = 180.0  # KillWait is 30 s where nobody changed it; an epilog may follow


def own_jobs(run: Path, slurm: Slurm, *, ended_too: bool = False) -> list[str]:
    """Return our user's jobs whose working directory lies below the run's folder.

    `ended_too`: also those that have ended and whose nodes are still being cleaned up. Raises BadInput: Slurm
    does not answer (NoAnswer), or refuses.
    """
    states = "PENDING,CONFIGURING,RUNNING,SUSPENDED,STOPPED" + (",COMPLETING" if ended_too else "")
    said = slurm.ask("squeue", "--noheader", "--me", f"--states={states}", "--format=%i|%Z")
    places = {run.absolute(), run.resolve()}
    found = []
    for line in said.splitlines():
        job, _, directory = line.strip().partition("|")
        path = Path(directory)
        if re.fullmatch(r"[0-9]+", job) and ".." not in path.parts and places & {path, *path.parents}:
            found.append(job)
    return found


def names_of(jobs: Iterable[str], slurm: Slurm) -> dict[str, str]:
    """Return the jobs by the name that each has in Slurm. Raises BadInput as `own_jobs` does."""
    said = slurm.ask("squeue", "--noheader", "--me", "--format=%i|%j")
    by_id = dict(line.strip().partition("|")[::2] for line in said.splitlines())
    return {by_id[job]: job for job in jobs if job in by_id}


def cancel_own(run: Path, slurm: Slurm) -> dict[str, str]:
    """Cancel what the run has in Slurm, wait until it is gone, and return the jobs by their names.

    Raises BadInput: Slurm does not answer (NoAnswer), or jobs do not end.
    """
    jobs = own_jobs(run, slurm)
    if not jobs:
        return {}
    named = names_of(jobs, slurm)
    slurm.ask("scancel", *jobs)
    deadline = time.monotonic() + _GONE_S
    while left := own_jobs(run, slurm, ended_too=True):
        if time.monotonic() > deadline:
            raise BadInput(f"jobs {', '.join(left)} do not end", fix="look at them with scontrol show job")
        time.sleep(_EVERY_S)
    return named


# `run.lock` lies in the stage folder, so that a site with another `shared_stage_path` does not see it.
# ReFrame on the submit host and jobs in the queue name their run's folder, whoever's they are; both are
# looked at. What cannot be read is taken for no run: Slurm then makes its jobs wait (--exclusive).

# As run_control and playbooks/parts/stage.yml lay a run's folder out.
_PLACE = re.compile(
    r"(?P<home>/[^\n]{1,1000})/runs/(?P<run>[A-Za-z0-9][A-Za-z0-9_.-]{0,127})/reframe(?:/.*)?"
)
_STATES = "PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING"
_LARGEST = 64 << 20  # bytes of a jobs.json


@dataclass(frozen=True)
class OtherRun:
    """A run whose stage folder is not ours: what of it lives, and the nodes that it measures on."""

    run: str
    home: str
    what: str
    nodes: frozenset[str]


def refuse_other_run(slurm: Slurm, home: Path, nodes: Collection[str]) -> None:
    """Refuse to start while a run of another stage folder measures on one of our nodes.

    Raises BadInput: naming that run, its folder and a node.
    """
    ours = {str(home.absolute()), str(home.resolve())}
    for other in (*_running(), *_queued(slurm)):
        shared = sorted(other.nodes.intersection(nodes))
        if shared and other.home not in ours and str(Path(other.home).resolve()) not in ours:
            raise BadInput(
                f"run {other.run} of another site folder is under way on {shared[0]}: {other.what}, "
                f"in {other.home}",
                fix="wait until it has ended; or use one shared_stage_path for both folders, which locks it",
            )


def _running() -> Iterator[OtherRun]:
    """Yield the runs whose ReFrame is a process of this machine, where their plan can be read."""
    for path in PROC.iterdir():
        if not path.name.isdecimal():
            continue
        for word in argv_of(int(path.name)):
            found = _PLACE.fullmatch(word.removeprefix("--prefix=")) if word.startswith("--prefix=") else None
            if found and start_ticks(int(path.name)):
                nodes = _planned(Path(found["home"]) / "runs" / found["run"] / "jobs.json")
                yield OtherRun(found["run"], found["home"], f"ReFrame (process {path.name})", nodes)


def _planned(jobs: Path) -> frozenset[str]:
    """Return the nodes of a run's jobs; none where the file, which anybody may have written, is none."""
    try:
        listed = loads(read_bytes(jobs, _LARGEST))["jobs"]
        return frozenset(str(node) for job in listed for node in job["nodes"])
    except (BadInput, OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _queued(slurm: Slurm) -> Iterator[OtherRun]:
    """Yield the runs that have jobs in Slurm, of any user that squeue shows."""
    try:
        said = slurm.ask("squeue", "--noheader", f"--states={_STATES}", "--format=%i|%u|%N|%n|%Z")
    except BadInput:
        return
    for line in said.splitlines():
        job, user, has, wants, place = (*line.strip().split("|", 4), "", "", "", "", "")[:5]
        found = _PLACE.fullmatch(place)
        if found is None or not re.fullmatch(r"[0-9_\[\]-]{1,40}", job):
            continue
        try:
            names = slurm.hostnames(has or wants)
        except BadInput:
            continue
        yield OtherRun(found["run"], found["home"], f"Slurm job {job} of {user[:32]}", frozenset(names))


class Asked(StrEnum):
    """What a start is to do about a run that is under way (`-e run_under_way=...`)."""

    REFUSE = "refuse"
    RESUME = "resume"
    CANCEL = "cancel"


@dataclass(frozen=True)
class Left:
    """What runs on the submit host, and in Slurm, of a run."""

    reframe: tuple[int, ...] = ()
    jobs: tuple[str, ...] = ()
    silent: str = ""  # why Slurm could not be asked

    def __str__(self) -> str:
        parts = [f"ReFrame (process {pid})" for pid in self.reframe[:1]]
        parts += [f"Slurm job {', '.join(self.jobs)}"] if self.jobs else []
        return " and ".join(parts)


@dataclass(frozen=True)
class Decision:
    """Whether a start may go on; `clear` what is left of the holder's run first. `said` is one sentence."""

    action: Literal["take", "clear", "refuse"]
    said: str = ""


def left_of(run: Path, slurm: Slurm) -> Left:
    """Return what is left of the run in this folder."""
    reframe = tuple(with_argument(prefix_of(run)))
    try:
        return Left(reframe, tuple(own_jobs(run, slurm, ended_too=True)))
    except BadInput as error:
        return Left(reframe, silent=error.what)


def prefix_of(run: Path) -> str:
    """Return the argument by which a run's ReFrame is known."""
    return f"--prefix={run}/reframe"


def clear(run: Path, slurm: Slurm) -> None:
    """End what is left of a run: its ReFrame, then its jobs.

    Raises BadInput: something does not end, is another user's, or Slurm does not answer.
    """
    end(with_argument(prefix_of(run)))
    try:
        cancel_own(run, slurm)
    except NoAnswer as error:
        raise BadInput(f"the run's jobs cannot be ended: {error.what}", fix="mend Slurm first") from None


def decide(
    holder: Holder,  # who has it
    playbook: Literal["alive", "dead", "elsewhere"],  # whether the holder's ansible-playbook runs
    left: Left,  # what is left of the holder's run
    asked: Asked,  # what the person at the keyboard said
    run: str,  # the run that is being started
) -> Decision:
    """Return what a start of `run` may do, where `holder` has the lock."""
    who = f"run {holder.run} of {holder.user} on {holder.controller} is under way since {holder.since}"
    ways = (
        f"to go on with it, start it as it was with -e run_id={holder.run} -e run_under_way=resume; "
        "to end it and go on with this start, add -e run_under_way=cancel"
    )
    ended = asked is Asked.CANCEL or (asked is Asked.RESUME and run == holder.run)
    if playbook == "alive":
        kill = f"end it first, on {holder.controller}: kill {holder.pid}"
        if ended:
            return Decision("refuse", f"{who}, and its ansible-playbook still runs: {kill}")
        return Decision("refuse", f"{who}: wait for it, or {kill}; then {ways}")
    if ended:
        return Decision("clear", f"run {holder.run} of {holder.user}, of {holder.since}, was ended")
    gone = "has ended" if playbook == "dead" else "cannot be seen from here"
    unknown = f"whether it has jobs is not known ({left.silent})" if left.silent else ""
    rest = f"still running: {left}" if str(left) else unknown
    if rest or playbook == "elsewhere":
        return Decision("refuse", f"{who}; its ansible-playbook {gone}{', ' if rest else ''}{rest}: {ways}")
    return Decision(
        "take",
        f"run {holder.run} of {holder.user} on {holder.controller}, of {holder.since}, was broken off and "
        "nothing of it runs any more: this run takes its place. To go on with it later, start it as it was "
        f"with -e run_id={holder.run} -e run_under_way=resume",
    )


@dataclass
class Turns:
    """Jobs that share a node take turns: each waits in Slurm for those that were submitted before it.

    `--exclusive` alone does not do: a partition of another owner may set it aside (OverSubscribe=FORCE), and
    the order would be Slurm's choice. It holds jobs about to be submitted or under way, with their nodes, in
    the order of submission.
    """

    _jobs: dict[str, tuple[frozenset[str], Callable[[], object]]] = field(default_factory=dict)

    def after(self, name: str, nodes: tuple[str, ...], job_id: Callable[[], object]) -> list[str]:
        """Take a job in and return the options of sbatch by which it waits for its turn.

        Args:
            name: the job's; a second attempt takes the first one's place.
            nodes: those that it holds.
            job_id: returns nothing until it is submitted.
        """
        self._jobs.pop(name, None)
        mine = frozenset(nodes)
        before = [str(known) for held, asked in self._jobs.values() if held & mine and (known := asked())]
        self._jobs[name] = mine, job_id
        # afterany: also after a job that failed, and at once after one that Slurm has forgotten.
        return [f"--dependency=afterany:{':'.join(before)}"] if before else []

    def ended(self, name: str) -> None:
        """Forget a job that has ended."""
        self._jobs.pop(name, None)
