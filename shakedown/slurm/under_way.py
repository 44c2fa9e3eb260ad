"""What a start finds on the submit host: nothing, a run that is under way, or one that was broken off."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from shakedown.records.errors import BadInput
from shakedown.run.lock import Holder
from shakedown.run.processes import end, with_argument
from shakedown.slurm.client import NoAnswer, Slurm
from shakedown.slurm.own_jobs import cancel_own, own_jobs


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

    Raises:
        BadInput: something does not end, is another user's, or Slurm does not answer.
    """
    end(with_argument(prefix_of(run)))
    try:
        cancel_own(run, slurm)
    except NoAnswer as error:
        raise BadInput(f"the run's jobs cannot be ended: {error.what}", fix="mend Slurm first") from None


def decide(
    holder: Holder, playbook: Literal["alive", "dead", "elsewhere"], left: Left, asked: Asked, run: str
) -> Decision:
    """Return what a start of `run` may do, where `holder` has the lock.

    Args:
        holder: who has it.
        playbook: whether the holder's ansible-playbook runs.
        left: what is left of the holder's run.
        asked: what the person at the keyboard said.
        run: the run that is being started.
    """
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
