"""Whether a job ended so that what it measured counts, and if not, why."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Literal

from shakedown.records.errors import BadInput
from shakedown.records.results import Problem
from shakedown.slurm.client import UNUSABLE, JobState, NoAnswer, unusable_nodes
from shakedown.slurm.patience import Patience


def how_it_ended(job: str, patience: Patience, *, limit_s: float) -> tuple[JobState, Problem | None]:
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
) -> Problem | None:
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


def not_submitted(why: str) -> Problem | None:
    """Return why a job was never submitted; None if it may be. Nodes out of service are NOT-RUN, named."""
    if not why:
        return None
    return problem("not-run" if why.startswith(UNUSABLE) else "environment", why)


def problem(kind: Literal["environment", "killed", "not-run", "other"], message: str) -> Problem:
    """Return a problem; a thousand node names are cut to what a record holds."""
    return Problem(kind=kind, message=message[:2000])
