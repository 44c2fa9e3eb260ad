"""Which node, or which pair, makes a collective hang: the same one on halves and pairs of its nodes.

All ranks of a hung collective look alike from outside. In the allocation that is there already, smaller ones
run beside each other until the smallest that hangs is known. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from shakedown.onnode.journal import ran
from shakedown.records.wording import BLAMES

_TRIAL_S = 45.0  # what one group may take: starting MPI or NCCL and a few messages
_GRACE_S = 10.0
_MOST_NAMED, _MOST_MATES = 4, 3

# Whether a collective on these nodes ends.
Ends = Callable[[Sequence[str]], bool]


def budget_s(needed_s: float = 0.0) -> float:
    """Return the seconds of this job that a search may take beside what the job still needs; 0: unknown."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if end.isdigit():
        return max(0.0, float(end) - time.time() - needed_s)
    # Slurm 22.05 leaves it out. The time left, as squeue(1) prints it: [[days-]hours:]minutes:seconds.
    asked = ["squeue", "--noheader", "--format=%L", f"--jobs={os.environ.get('SLURM_JOB_ID', '')}"]
    done = ran(asked, _ASK_S)
    said = _LEFT.fullmatch(done.stdout.strip()) if done and done.returncode == 0 else None
    if said is None:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in said.groups())
    return max(0.0, ((days * 24 + hours) * 60 + minutes) * 60 + seconds - needed_s)


_LEFT = re.compile(r"(?:(\d{1,4})-)?(?:(\d{1,2}):)?(\d{1,2}):(\d{2})")
_ASK_S = 20.0


def search(nodes: Sequence[str], ends: Ends, seconds: float) -> str:
    """Return in words what hangs, found within so many seconds; empty: there was no time for it.

    Args:
        nodes: those of the collective that hung.
        ends: runs it on some of them, and nothing beside; it is called for groups that share no node at once.
        seconds: how long the search may take. A trial that would end later is not begun.
    """
    look = _Search(nodes, ends, time.monotonic() + seconds)
    with contextlib.suppress(TimeoutError):
        (again,) = look.tried([nodes])
        if again:
            return "the same collective ended when it was run once more: it does not hang each time"
        look.narrow(nodes)
    return "; ".join(look.found)


class _Search:
    """What is known so far."""

    def __init__(self, nodes: Sequence[str], ends: Ends, until: float) -> None:
        self._nodes, self._ends, self._until = nodes, ends, until
        self._well: list[Sequence[str]] = []  # groups of two nodes or more that ended
        self.found: list[str] = []

    def tried(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        """Run groups that share no node, beside each other. Raises TimeoutError: there is no time for it."""
        if time.monotonic() + _TRIAL_S + _GRACE_S > self._until:
            self.found.append("there was no time to search further")
            raise TimeoutError
        with ThreadPoolExecutor(len(groups)) as beside:
            worked = list(beside.map(self._ends, groups))
        self._well += [group for group, well in zip(groups, worked, strict=True) if well and len(group) > 1]
        return worked

    def narrow(self, group: Sequence[str]) -> None:
        """Find what hangs in a group that does."""
        if len(group) == 1:
            self.found.append(BLAMES["hangs-alone"].told(node=group[0]))
            return
        halves = group[: len(group) // 2], group[len(group) // 2 :]
        worked = self.tried(halves)
        for half, well in zip(halves, worked, strict=True):
            if not well and len(self.found) < _MOST_NAMED:
                self.narrow(half)
        if not all(worked):
            return
        pairs = list(zip(*halves, strict=False))
        if len(group) > 2:
            pairs = [pair for pair, well in zip(pairs, self.tried(pairs), strict=True) if not well]
        for pair in pairs[:_MOST_NAMED]:
            self._ends_of(*pair)
        if not pairs:
            many = f"each half of {len(group)} nodes ends, and so does each pair across them"
            self.found.append(f"{many}: it takes more")

    def _ends_of(self, one: str, other: str) -> None:
        """Find which end of a pair hangs, or that each end works with others."""
        apart = (group for group in self._well if {one, other}.isdisjoint(group))
        if mates := next(apart, None):
            worked = self.tried([(one, mates[0]), (other, mates[1])])
            self._say(one, other, mates[0], mates[1], *worked)
            return
        for mate in [node for node in self._nodes if node not in (one, other)][:_MOST_MATES]:
            worked = [*self.tried([(one, mate)]), *self.tried([(other, mate)])]
            if any(worked):  # so the mate is not what hangs
                self._say(one, other, mate, mate, *worked)
                return
        self.found.append(BLAMES["hangs-between"].told(pair=f"{one} and {other}"))

    def _say(self, one: str, other: str, mate: str, second: str, well: bool, second_well: bool) -> None:
        hangs = BLAMES["hangs-with"]
        if not well:
            self.found.append(hangs.told(node=one, mate=mate, other=other if mate == second else second))
        if not second_well:
            self.found.append(hangs.told(node=other, mate=second, other=one if mate == second else mate))
        if well and second_well:
            self.found.append(BLAMES["hangs-apart"].told(pair=f"{one} and {other}"))


def on_nodes(command: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Return a command that starts srun as one of a step on some nodes of the job, a task on each."""
    at = list(command).index("srun") + 1
    many = len(nodes)
    step = ["--overlap", f"--nodes={many}", f"--ntasks={many}", "--ntasks-per-node=1"]
    return [*command[:at], *step, f"--nodelist={','.join(nodes)}", *command[at:]]


def ends_in_time(command: Sequence[str], variables: Mapping[str, str] | None = None) -> bool:
    """Run a command that prints into nothing; whether it ended well and in time."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(variables or {})},
        )
    except OSError:
        return False
    try:
        return child.wait(_TRIAL_S) == 0
    except subprocess.TimeoutExpired:
        end(child)
        return False


def end(child: subprocess.Popen[bytes]) -> int:
    """End a step: srun ends its own on SIGTERM, if it can."""
    child.terminate()
    try:
        return child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
