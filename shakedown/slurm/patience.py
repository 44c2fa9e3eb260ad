"""Questions to a Slurm that may be away: asked again until it answers, for a bounded time.

One `Patience` serves all jobs of a ReFrame. Once its time is over it asks no more: the jobs that are left
end at once, each with the same reason, instead of waiting one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from shakedown.records.errors import BadInput
from shakedown.slurm.client import JobState, NoAnswer, show_job, unusable_nodes

T = TypeVar("T")

_EVERY_S = 5.0
# A controller that has just started shows nodes as not responding until each has answered it.
_SETTLE_S = 120.0
# squeue forgets a job before slurmctld has noted its last state.
_COMPLETING_S = 30.0


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
