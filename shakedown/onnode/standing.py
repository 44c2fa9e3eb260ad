"""Start a step on each node, keep it standing, and say what makes a collective hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shakedown.onnode.journal import ran
from shakedown.onnode.noted import leave, node_name
from shakedown.records.program import own_python
from shakedown.records.wording import BLAMES

# What goes before an srun, or before what starts one: it waits while slurmctld is away.
WITH_SLURM = ("sh", str(Path(__file__).with_name("with_slurm.sh")))
# How long, in seconds, and the file that says that it was in vain.
SILENT_S, SILENT_FILE = "SHAKEDOWN_SLURM_SILENT_S", "SHAKEDOWN_SLURM_SILENT_FILE"


def once_a_node(nodes: int, module: str, *words: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command: a step of one task a node, which takes nothing from the steps beside it.

    Args:
        nodes: how many nodes the job has.
        module: of this package.
        words: its arguments.
        options: more options of srun.
    """
    step = [*WITH_SLURM, "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap"]
    alone = ["--mpi=none", "--cpu-bind=none", "--input=none"]
    return [*step, *options, *alone, *own_python(), module, *words]


def wait_for_slurm() -> None:
    """Return once slurmctld answers, or after the time that it may be silent.

    For steps that have a time limit of their own, which is not to pass while slurmctld is away.
    """
    subprocess.run([*WITH_SLURM, "true"], check=False, stdin=subprocess.DEVNULL)


#     srun --ntasks-per-node=1 python -m shakedown.onnode.standing FOLDER MARK
#
# A collective waits for its slowest rank, so all ranks of a hung one look alike from outside: no output, no
# end. On its node the rank at fault shows, because the others wait busily. Each node's look is written to
# FOLDER/standing.NODE.json: its ranks of the run whose processes have MARK in their environment, their state
# and how much of a CPU they used while they were watched. Standard library only.

MARK = "SHAKEDOWN_STEP"  # the environment variable by which the processes of a run are found
# A rank's number, the variable of the inner launcher first: mpirun's ranks inherit those of the daemon that
# srun started for it.
_RANK = ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_LAUNCHERS = frozenset(
    ("srun", "mpirun", "mpirun.openmpi", "mpiexec", "orterun", "orted", "prted", "prterun", "slurmstepd")
)
_WATCH_S, _PATIENCE_S = 1.0, 20.0
# Below the one a rank stands, above the other it works or waits busily; shares of one CPU.
_STANDS, _WORKS = 0.05, 0.5
# proc(5), the states in which a process cannot go on by itself.
_STATES = {"T": "stopped by a signal (SIGSTOP)", "t": "stopped by a debugger", "Z": "ended"}


def ranks_here(mark: str, proc: Path = Path("/proc")) -> dict[int, list[int]]:
    """Return the processes of a run on this node, by rank."""
    found: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        # A process may end in between, and another user's environment is closed.
        with contextlib.suppress(OSError, ValueError):
            if (folder / "comm").read_text(errors="replace").strip() in _LAUNCHERS:
                continue
            pairs = (word.partition(b"=") for word in (folder / "environ").read_bytes().split(b"\0"))
            own = {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}
            rank = next((own[name] for name in _RANK if own.get(name, "").isdigit()), None)
            if own.get(MARK) == mark and rank is not None:
                found.setdefault(int(rank), []).append(int(folder.name))
    return found


def state_of(pid: int, proc: Path = Path("/proc")) -> tuple[str, float] | None:
    """Return a process's state and the seconds of CPU it has used, None once it is gone."""
    try:
        fields = (proc / f"{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def watch(mark: str, proc: Path = Path("/proc"), watch_s: float = _WATCH_S) -> list[dict[str, Any]]:
    """Return each rank's state here and its share of a CPU, over a moment."""
    ranks = ranks_here(mark, proc)
    before = {pid: state_of(pid, proc) for pids in ranks.values() for pid in pids}
    began = time.monotonic()
    time.sleep(watch_s)
    passed = time.monotonic() - began
    seen = []
    for rank, pids in sorted(ranks.items()):
        used_s, states = 0.0, ""
        for pid in pids:
            first, last = before[pid], state_of(pid, proc)
            if first and last:
                used_s += last[1] - first[1]
                states += last[0]
        seen.append({"rank": rank, "pids": pids, "states": states, "cpu": round(used_s / passed, 3)})
    return seen


def told(looks: Mapping[str, list[dict[str, Any]] | None]) -> str:
    """Return what stands still, from what each node saw; None: the node did not answer."""
    named = [
        (entry, f"rank {entry['rank']} on {node}") for node, seen in looks.items() for entry in seen or ()
    ]
    silent = [f"{node} does not answer" for node, seen in looks.items() if seen is None]
    gone = [f"no rank of it is left on {node}" for node, seen in looks.items() if seen == []]
    if not named:
        # Nothing was found at all: the run may never have begun.
        return "; ".join(silent) or "none of its ranks was found on any node"
    stopped = [
        BLAMES["stands-still"].told(name=name, state=_STATES[state])
        for entry, name in named
        if (state := next((x for x in entry["states"] if x in _STATES), ""))
    ]
    # On a node with too few CPUs a rank that works gets less of one.
    works = any(entry["cpu"] >= _WORKS or "R" in entry["states"] for entry, _ in named)
    idle = [
        BLAMES["stands-still"].told(
            name=name, state=f"it uses no CPU (state {entry['states'][:1] or '?'}), the others do"
        )
        for entry, name in named
        if works and entry["cpu"] < _STANDS and not any(state in _STATES for state in entry["states"])
    ]
    if found := [*silent, *gone, *stopped, *idle]:
        return "; ".join(found)
    how = "work or wait busily" if works else "wait without using a CPU"
    return f"no rank stands still alone: all {len(named)} {how}"


def ask(folder: Path, nodes: list[str], mark: str) -> str:
    """Have every node of this job look at its ranks of a run; return what stands still, in words."""
    for node in nodes:
        (folder / f"standing.{node}.json").unlink(missing_ok=True)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            once_a_node(len(nodes), "shakedown.onnode.standing", str(folder), mark),
            timeout=_PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    looks: dict[str, list[dict[str, Any]] | None] = {}
    for node in nodes:
        looks[node] = None
        with contextlib.suppress(OSError, ValueError):
            looks[node] = json.loads((folder / f"standing.{node}.json").read_bytes())
    return told(looks)


# All ranks of a hung collective look alike from outside. In the allocation that is there already, smaller
# ones run beside each other, on halves, quarters and pairs of its nodes, until the least that hangs is known.

_TRIAL_S = 45.0  # what one group may take: starting MPI or NCCL and a few messages
_GRACE_S = 10.0
_MOST_NAMED, _MOST_MATES = 4, 3

# Whether a collective on these nodes ends: well, by no end in time (False), or with an error (None).
Ends = Callable[[Sequence[str]], bool | None]


def budget_s(needed_s: float = 0.0) -> float:
    """Return the seconds of this job that a search may take beside what the job still needs; 0: unknown."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if end.isdigit():
        return max(0.0, float(end) - time.time() - needed_s)
    # Slurm 22.05 leaves it out. The time left, as squeue(1) prints it: [[days-]hours:]minutes:seconds.
    asked = ["squeue", "--noheader", "--format=%L", f"--job={os.environ.get('SLURM_JOB_ID', '')}"]
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
        self._failed = set[str]()  # nodes on which it ended with an error alone
        self.found: list[str] = []

    def tried(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        """Run groups that share no node, beside each other. Raises TimeoutError: there is no time for it."""
        if time.monotonic() + _TRIAL_S + _GRACE_S > self._until:
            self.found.append("there was no time to search further")
            raise TimeoutError
        with ThreadPoolExecutor(len(groups)) as beside:
            ended = list(beside.map(self._ends, groups))
        self._failed |= {
            group[0] for group, how in zip(groups, ended, strict=True) if how is None and len(group) == 1
        }
        worked = [how is True for how in ended]
        self._well += [group for group, well in zip(groups, worked, strict=True) if well and len(group) > 1]
        return worked

    def narrow(self, group: Sequence[str]) -> None:
        """Find what hangs in a group that does."""
        if len(group) == 1 and group[0] in self._failed:
            # It may be the step that cannot be started so: no word on the node.
            self.found.append(
                f"on {group[0]} alone the same ended with an error, which says nothing of its network"
            )
            return
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


def ends_in_time(command: Sequence[str], variables: Mapping[str, str] | None = None) -> bool | None:
    """Run a command that prints into nothing; whether it ended well, in no time (False) or badly (None)."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(variables or {})},
        )
    except OSError:
        return None
    try:
        return True if child.wait(_TRIAL_S) == 0 else None
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


def main(argv: list[str]) -> int:
    """Look at this node's ranks."""
    if len(argv) != 3:
        print("usage: python -m shakedown.onnode.standing FOLDER MARK", file=sys.stderr)
        return 2
    leave(Path(argv[1]), f"standing.{node_name()}.json", watch(argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
