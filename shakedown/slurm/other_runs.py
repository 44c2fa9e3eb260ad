"""A run of another stage folder on the same nodes: two site folders may describe one cluster.

`run.lock` lies in the stage folder, so that a site with another `shared_stage_path` does not see it. ReFrame
on the submit host and jobs in the queue name their run's folder, whoever's they are; both are looked at.
What cannot be read is taken for no run: Slurm then makes its jobs wait (--exclusive).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from shakedown.records.errors import BadInput
from shakedown.run.processes import PROC, argv_of, start_ticks
from shakedown.slurm.client import Slurm

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

    Raises:
        BadInput: naming that run, its folder and a node.
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
    """Return the nodes of a run's jobs; none where the file cannot be read."""
    try:
        if jobs.stat().st_size > _LARGEST:
            return frozenset()
        listed = json.loads(jobs.read_bytes())["jobs"]
        return frozenset(str(node) for job in listed for node in job["nodes"])
    except (OSError, ValueError, KeyError, TypeError):
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
