"""How a job ended, how long to wait for it, and what to do where it hangs."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from shakedown.records.reading import BadInput
from shakedown.records.results import RunProblem
from shakedown.slurm.client import (
    UNUSABLE,
    JobState,
    NoAnswer,
    Slurm,
    ask_nodes,
    parse_unusable,
    show_job,
    unusable_nodes,
)

# One `Patience` serves all jobs of a ReFrame. Once its time is over it asks no more: the jobs that are left
# end at once, each with the same reason, instead of waiting one after the other.

T = TypeVar("T")

_EVERY_S = 5.0
# A controller that has just started shows nodes as not responding until each has answered it.
_SETTLE_S = 120.0
_COMPLETING_S = 30.0  # squeue forgets a job before slurmctld has noted its last state


@dataclass(eq=False)
class Patience:
    """How long Slurm may be silent, in seconds, and how long it has been."""

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    gave_up: str = ""  # why, once the time is over
    epilog_s: float = 0.0  # that the site's epilog takes; a job is COMPLETING for as long
    _silent_since: float | None = None
    _settled_at: float = field(default=float("-inf"))

    def ask(self, question: Callable[[], T]) -> T:
        """Return the answer to a question, as soon as there is one.

        Raises:
            NoAnswer: Slurm has been silent for `limit_s`, now or at an earlier question.
            BadInput: Slurm's answer is a refusal.
        """
        while not self.gave_up:
            asked = self.clock()
            try:
                answer = question()
            except NoAnswer as silence:
                self._wait(asked, silence.what)
            except BadInput:
                self._heard()
                raise
            else:
                self._heard()
                return answer
        raise NoAnswer(self.gave_up, fix="mend slurmctld, then measure again")

    def _wait(self, asked: float, said: str) -> None:
        if self._silent_since is None:
            self._silent_since = asked
        left = self._silent_since + self.limit_s - self.clock()
        if left <= 0:
            self.gave_up = f"Slurm has not answered for {self.limit_s:.0f} s ({said})"
        else:
            self.sleep(min(_EVERY_S, left))

    def _heard(self) -> None:
        if self._silent_since is not None:
            self._silent_since, self._settled_at = None, self.clock() + _SETTLE_S

    def last_state(self, job: str, *, limit_s: float) -> JobState:
        """Return how a job ended.

        A job that still runs is waited for: ReFrame takes a silent Slurm for the job's end. When it has run
        for `limit_s` more, its own time limit, the state is returned that it has then.

        Raises:
            NoAnswer: Slurm has been silent for too long.
            BadInput: Slurm does not know the job.
        """
        begin = self.clock()
        completing: float | None = None
        while True:
            state = self.ask(lambda: show_job(job))
            now = self.clock()
            if state.state == "PENDING":  # its time limit begins with it; the stage's own ends this
                begin = now
            if state.state == "COMPLETING":
                completing = now if completing is None else completing
            ends_s = _COMPLETING_S + self.epilog_s
            over = now - begin > limit_s + ends_s
            if state.finished or over or (completing is not None and now - completing > ends_s):
                return state
            self.sleep(0.5 if 0 < now - begin < _COMPLETING_S else _EVERY_S)

    def unusable(self, nodes: tuple[str, ...], *, reserved: bool) -> str:
        """Return why Slurm cannot run a job on these nodes now, in one sentence; empty if it can.

        Nodes get two minutes to report to a controller that was away. `reserved` as in `unusable_nodes`.
        """
        while True:
            try:
                why = self.ask(lambda: unusable_nodes(nodes, reserved=reserved))
            except BadInput as error:
                return error.what
            if not why or self.clock() >= self._settled_at:
                return why
            self.sleep(_EVERY_S)


def how_it_ended(job: str, patience: Patience, *, limit_s: float) -> tuple[JobState, RunProblem | None]:
    """Return a job's last state, waiting for Slurm if need be; where it has none to tell, with the reason.

    `limit_s` is the job's time limit. Nothing is raised: a Slurm that is silent is no fault of the nodes.
    """
    try:
        return patience.last_state(job, limit_s=limit_s), None
    except BadInput as error:
        away = isinstance(error, NoAnswer)
        message = error.what if away else f"Slurm cannot say how job {job} ended: {error.what}"
        state = JobState(job, "UNKNOWN", "", "", 0, None, None)
        return state, problem("environment", message)


def flaw(
    state: JobState, planned: tuple[str, ...], ran_on: tuple[str, ...], cancelled: Mapping[str, str]
) -> RunProblem | None:
    """Return why a job that Slurm has told of does not count; None if it does.

    `cancelled` says of which jobs, and why, the watch over waiting jobs has ended them.
    """
    if state.job in cancelled:
        return problem("environment", f"cancelled while it waited for its nodes: {cancelled[state.job]}")
    if not state.finished and state.state != "COMPLETING":
        return problem("killed", f"Slurm still says {state.state}, and the job's time limit is over")
    if not ran_on:
        # The script itself notes them as it begins, on the first of the job's nodes.
        wrote = f"{planned[0]}: the job's script left no file in its folder, can it write there?"
        return problem("environment", f"{wrote} Slurm says {state.state}, exit code {state.exit_code}")
    if set(ran_on) != set(planned):
        ran = f"the job ran on {','.join(ran_on)}, planned were {','.join(planned)}"
        return problem("environment", ran)
    if state.good:
        return None
    message = f"Slurm says {state.state}, exit code {state.exit_code}, {state.restarts} restarts"
    # Name the node that died, so that the others are not suspected.
    with contextlib.suppress(BadInput):
        down = unusable_nodes(planned, reserved=True)
        message = f"{message}; {down}" if down else message
    return problem("killed" if state.state != "FAILED" else "other", message)


def not_submitted(why: str) -> RunProblem | None:
    """Return why a job was never submitted; None if it may be. Nodes out of service are NOT-RUN, named."""
    if not why:
        return None
    return problem("not-run" if why.startswith(UNUSABLE) else "environment", why)


def problem(kind: Literal["environment", "killed", "not-run", "other"], message: str) -> RunProblem:
    """Return a problem; a thousand node names are cut to what a record holds."""
    return RunProblem(kind=kind, message=message[:2000])


# Slurm would keep jobs that wait for such a node until it is mended, and ReFrame with them; ReFrame's own way
# out of this (`slurm_job_cancel_reasons`) raises while the test waits, after which it never ends.

_CANCEL_EVERY_S = 10.0
_LOOKS = 3  # a node that is back within so many looks was only slow to answer


@dataclass(eq=False)
class _Job:
    job_id: Callable[[], object]
    nodes: tuple[str, ...]
    reserved: bool
    looks: int = 0  # in a row that found its nodes out of service


@dataclass
class Pending:
    """Jobs that are about to be submitted, each with its nodes, watched by a thread of its own."""

    slurm: Slurm = field(default_factory=Slurm)
    cancelled: dict[str, str] = field(default_factory=dict)  # why, by job
    _jobs: list[_Job] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def watch(self, job_id: Callable[[], object], nodes: tuple[str, ...], *, reserved: bool) -> None:
        """Look after a job until it runs. `job_id` returns nothing before it is submitted."""
        with self._lock:
            self._jobs.append(_Job(job_id, nodes, reserved))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="pending")
                self._thread.start()

    def look(self) -> None:
        """Look once: forget jobs that run or ended, cancel those that wait in vain for the third time."""
        with self._lock:
            submitted = [(str(job_id), job) for job in self._jobs if (job_id := job.job_id())]
        if not submitted:
            return
        # Asked for by its id, a job that Slurm has forgotten would make squeue fail for all of them.
        waiting = set(
            self.slurm.ask("squeue", "--noheader", "--me", "--states=PENDING", "--format=%i").split()
        )
        # All nodes in one question, and none while nothing waits.
        nodes = dict.fromkeys(node for job_id, job in submitted if job_id in waiting for node in job.nodes)
        states = self.slurm.ask(*ask_nodes(nodes)) if nodes else ""
        for job_id, job in submitted:
            why = parse_unusable(states, job.nodes, reserved=job.reserved) if job_id in waiting else ""
            job.looks = job.looks + 1 if why else 0
            if job.looks >= _LOOKS:
                self.slurm.ask("scancel", job_id)
                self.cancelled[job_id] = why
            if job_id not in waiting or job_id in self.cancelled:
                with self._lock:
                    self._jobs.remove(job)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(_CANCEL_EVERY_S):
            try:
                self.look()
            except (BadInput, OSError, subprocess.SubprocessError):
                continue  # Slurm does not answer: the next look is soon
