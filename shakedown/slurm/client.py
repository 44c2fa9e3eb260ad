"""Ask Slurm."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from shakedown.records.program import PLAINLY, plain_environment
from shakedown.records.reading import BadInput

# What the reason of a node that we drained begins with; nothing else tells ours from others'.
PREFIX = "shakedown:"


@dataclass(frozen=True)
class NodeState:
    """One node as Slurm reports it (`scontrol show node`)."""

    name: str
    states: frozenset[str]  # IDLE, ALLOCATED, DRAIN, DOWN, ...
    reason: str = ""
    by: str = ""  # who set the reason

    @property
    def drained(self) -> bool:
        """Whether it was taken out of service on purpose."""
        return "DRAIN" in self.states

    @property
    def ours(self) -> bool:
        """Whether we drained it: our own prefix in the reason decides, and nothing else."""
        return self.drained and self.reason.startswith(PREFIX)


# A finished job is read from `scontrol`, which knows it until MinJobAge has passed. Every call is an argument
# list; `Slurm` can make it on another host through ssh, quoted for the shell there.

# States in which a job will still change (squeue(1), JOB STATE CODES).
UNFINISHED = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "COMPLETING",
        "SUSPENDED",
        "STOPPED",
        "RESIZING",
        "SIGNALING",
        "STAGE_OUT",
        "EXPEDITING",  # since 25.11
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    }
)

# What Slurm's commands say, with exit status 1, when the controller did answer. Everything else that they say
# then is a controller that could not be reached, or one that could not be understood for now.
_ANSWER = re.compile(
    r"Invalid (?:job id|node name|reservation) specified|Access/permission denied|is invalid"
    r"|\A(?:Partition|Reservation|Node) \S+ not found\Z"
)
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z]{1,40})=(\S*)")
# sinfo(1), NODE STATE CODES: a mark behind the state says more of it.
_USABLE = re.compile(r"(?:idle|mixed|allocated|completing|planned)[+~#!%$@^-]?")
_MARKS = {
    "*": "does not respond",
    "~": "is powered off",
    "#": "is being powered up",
    "!": "is about to be powered off",
    "%": "is being powered off",
    "$": "is in a maintenance reservation",
    "@": "is about to be rebooted",
    "^": "is being rebooted",
}
UNUSABLE = "Slurm cannot use"  # what a sentence about nodes that are out of service begins with
_TIME = "%Y-%m-%dT%H:%M:%S"


class NoAnswer(BadInput):
    """Slurm did not answer: its command is missing, too slow, or cannot reach the controller."""


class NotHere(NoAnswer):
    """The command is not on this machine: a laptop, and no submit host."""


def ask_nodes(nodes: Iterable[str]) -> list[str]:
    """Return the command whose output `parse_unusable` reads."""
    return ["sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T|%E"]


@dataclass(frozen=True)
class JobState:
    """State of one job as Slurm reports it."""

    job: str
    state: str
    exit_code: str  # "status:signal"
    reason: str
    restarts: int
    started: str | None  # RFC 3339, UTC
    duration_s: float | None

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state not in UNFINISHED

    @property
    def good(self) -> bool:
        """Whether the job ended by itself with status 0, and never ran twice."""
        return self.state == "COMPLETED" and self.exit_code == "0:0" and self.restarts == 0


def fields(line: str) -> dict[str, str]:
    """Return the fields of a line of `scontrol --oneliner show`.

    Of two of one name the first counts: what a user or a person wrote (Command, Comment, Reason) comes later.
    """
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        found.setdefault(name, value)
    return found


_OF_A_JOB = ("JobId", "JobState", "ExitCode", "Restarts", "StartTime", "EndTime")


def parse_show_job(text: str) -> JobState:
    """Read the output of `scontrol --oneliner show job ID`, with times in UTC.

    Raises BadInput: a field is missing, or the output describes no job or several.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1 or not lines[0].startswith("JobId="):
        raise BadInput(f"scontrol describes {len(lines)} jobs, not one", fix="is MinJobAge long enough?")
    found, names = fields(lines[0]), [name for name, _ in _FIELD.findall(lines[0])]
    for needed in ("JobId", "JobState", "ExitCode"):
        if not found.get(needed):
            raise BadInput(f"scontrol's job has no {needed}: {lines[0][:80]!r}", fix="unknown Slurm release?")
    # A job's name, which its user can change, comes before its state, and a comment after it.
    if twice := [name for name in _OF_A_JOB if names.count(name) > 1]:
        raise BadInput(f"scontrol's job says twice: {', '.join(twice)}", fix="look at its name and comment")
    begin, end = _moment(found.get("StartTime")), _moment(found.get("EndTime"))
    return JobState(
        job=found["JobId"],
        state=found["JobState"],
        exit_code=found["ExitCode"],
        reason=found.get("Reason", ""),
        restarts=int(found["Restarts"]) if found.get("Restarts", "").isdigit() else 0,
        started=begin.strftime(_TIME + "Z") if begin else None,
        duration_s=(end - begin).total_seconds() if begin and end else None,
    )


def show_job(job: str) -> JobState:
    """Ask Slurm for one job.

    Raises:
        NoAnswer: Slurm did not answer.
        BadInput: it does not know the job, or its answer is not understood.
    """
    if not re.fullmatch(r"[0-9]+", job):
        raise BadInput(f"not a Slurm job id: {job!r}")
    return parse_show_job(Slurm().ask("scontrol", "--oneliner", "show", "job", job))


def unusable_nodes(nodes: tuple[str, ...], *, reserved: bool = False) -> str:
    """Return why Slurm cannot run a job on these nodes now, in one sentence; empty if it can.

    `reserved`: the job names a reservation. Without one it would wait until the nodes' reservation ends.

    Raises:
        NoAnswer: Slurm did not answer.
        BadInput: `sinfo` failed.
    """
    return parse_unusable(Slurm().ask(*ask_nodes(nodes)), nodes, reserved=reserved)


def parse_unusable(text: str, nodes: tuple[str, ...], *, reserved: bool = False) -> str:
    """Read `sinfo --Node --format=%N|%T|%E`; a node that it does not list is unusable too."""
    states: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        state, _, reason = rest.partition("|")
        states.setdefault(name.strip(), (state.strip(), reason.strip()))
    bad = []
    for node in nodes:
        state, reason = states.get(node, ("unknown to Slurm", ""))
        # A maintenance reservation keeps all jobs out that do not name it.
        if not _USABLE.fullmatch(state) and not (reserved and state in ("reserved", "maint")):
            mark = _MARKS.get(state[-1:], "")
            says = f"{state[:-1]} and {mark}" if mark else state
            said_already = ("", "none", *(["Not responding"] if state.endswith("*") else []))
            because = "" if reason in said_already else f" ({reason})"
            bad.append(f"{node}: it is {says}{because}")
    return f"{UNUSABLE} {'; '.join(bad)}" if bad else ""


def _moment(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(text or "", _TIME).replace(tzinfo=UTC)  # PLAINLY asks for it
    except ValueError:
        return None  # "Unknown", "None"


# Behind a reason Slurm writes who set it and when, `Reason=bad NIC [root@2026-11-20T02:10:00]`, then further
# fields. Without that, as of a node that slurm.conf names, it ends where a field begins.
_WHO = re.compile(r" \[([^\[\]@\s]{1,64})(?:@[^\[\]@\s]{1,64})?@(?:[0-9][0-9T:-]{3,31}|Unknown)\](?=\s|\Z)")
_FIELD_BEGINS = re.compile(r"(?<!\s)\s+[A-Z]\w*=")
# Never a leading "-", which would be an option.
_HOSTS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,\[\]-]{0,65535}")
_RESERVED = re.compile(r"^ReservationName=(\S++).*?\sNodes=(\S*)")


@dataclass(frozen=True)
class Slurm:
    """Slurm's commands, here or on another host. `over` is what goes in front, such as ("ssh", "head")."""

    over: tuple[str, ...] = ()

    def ask(self, *argv: str) -> str:
        """Run one command and return what it prints.

        Raises:
            NoAnswer: Slurm did not answer, with what the command said.
            BadInput: Slurm refused, with what it said.
        """
        # ssh hands one line to a shell over there, so that it must be quoted for it.
        there = ["env", *(f"{name}={value}" for name, value in PLAINLY.items()), *argv]
        call = [*self.over, shlex.join(there)] if self.over else list(argv)
        try:
            done = subprocess.run(
                call,
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # names of jobs and reasons are whatever somebody typed
                check=False,
                timeout=60,
                stdin=subprocess.DEVNULL,
                env=plain_environment(os.environ),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            kind = NotHere if isinstance(error, FileNotFoundError) and not self.over else NoAnswer
            raise kind(f"{argv[0]}: {error}", fix="is Slurm's command there, and slurmctld up?") from None
        if done.returncode != 0:
            # scontrol prints that it does not know a partition, reservation or node where an answer would be.
            said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
            refused = BadInput if _ANSWER.search(said) else NoAnswer
            raise refused(f"{shlex.join(argv[:3])}: {said[:300]}", fix="is slurmctld up?")
        return done.stdout

    def nodes(self) -> dict[str, NodeState]:
        """Return every node."""
        return parse_show_nodes(self.ask("scontrol", "--oneliner", "show", "node"))

    def hostnames(self, expression: str) -> list[str]:
        """Return the nodes that an expression like gpu[001-003] names; none for what is no such expression.

        Raises BadInput as `ask` does.
        """
        if not _HOSTS.fullmatch(expression):
            return []
        return self.ask("scontrol", "show", "hostnames", expression).split()

    def drain(self, node: str, reason: str) -> None:
        """Take a node out of service; running jobs end by themselves."""
        self.ask("scontrol", "update", f"NodeName={_plain(node)}", "State=DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        """Give a node back."""
        self.ask("scontrol", "update", f"NodeName={_plain(node)}", "State=RESUME")

    def reserve(self, name: str, nodes: tuple[str, ...], user: str) -> None:
        """Keep nodes for one user until `release`, a year at most, lest a node slips back into service."""
        self.ask(
            "scontrol",
            "create",
            "reservation",
            f"ReservationName={_plain(name)}",
            f"Nodes={','.join(_plain(n) for n in nodes)}",
            f"Users={_plain(user)}",
            "StartTime=now",
            "Duration=UNLIMITED",
            "Flags=IGNORE_JOBS",
        )

    def release(self, name: str) -> None:
        """End a reservation."""
        self.ask("scontrol", "delete", f"ReservationName={_plain(name)}")

    def reservations(self) -> dict[str, str]:
        """Return the nodes of every reservation, as Slurm writes them."""
        text = self.ask("scontrol", "--oneliner", "show", "reservation")
        return {m[1]: m[2] for line in text.splitlines() if (m := _RESERVED.match(line))}


def parse_show_nodes(text: str) -> dict[str, NodeState]:
    """Read `scontrol --oneliner show node`. Raises BadInput for a line that describes no node."""
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        told = fields(line)
        if not told.get("NodeName") or not told.get("State"):
            raise BadInput(f"scontrol describes no node: {line[:80]!r}", fix="unknown Slurm release?")
        _, _, reason = line.partition(" Reason=")
        who = _WHO.search(reason)
        # A star is a node that does not answer.
        states = frozenset(told["State"].replace("*", "+NOT_RESPONDING").split("+"))
        found[told["NodeName"]] = NodeState(
            told["NodeName"],
            states,
            (reason[: who.start()] if who else _FIELD_BEGINS.split(reason, maxsplit=1)[0]).strip(),
            who[1] if who else "",
        )
    return found


def _plain(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", name):
        raise BadInput(f"{name!r} is no name of a node or reservation", fix="use letters, digits and -_.")
    return name
