"""Which nodes' tasks of a job failed, and what they said of it: from the job's standard error."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from shakedown.benchmarks.registry import JOB_KINDS
from shakedown.plan.jobs import JobSpec
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_output
from shakedown.records.results import JobRecord, Problem
from shakedown.run.ownership import STDERR, is_of_nodes

# What srun(1) says of each task that did not end with status 0:
# `srun: error: n2: task 1: Exited with exit code 1`, `srun: error: n[2-3]: tasks 1-2: Killed`.
_FAILED = re.compile(
    r"srun: error: (?P<hosts>[A-Za-z0-9][^\s:]{0,2000}): tasks? (?P<tasks>[0-9,-]+): (?P<how>.+)"
)
# What srun says of a node whose messages munge refuses, as where its clock was set: first why, then
# `srun: error: slurm_unpack_received_msg: [[n2]:39572] auth_g_verify: MESSAGE_TASK_EXIT has ...`.
_MUNGE = re.compile(r"srun: error: Munge decode failed: (?P<why>.+)")
_REFUSED = re.compile(
    r"srun: error: slurm_unpack_received_msg: \[\[(?P<host>[^\]\s]+)\]:\d+\] auth_g_verify: "
)
_HOSTS = re.compile(r"(?P<stem>[^\[\],]+)(?:\[(?P<ranges>[0-9,-]+)\])?(?P<rest>[^\[\],]*)")
# Lines that only say that something failed, not what.
_FRAME = re.compile(r"(?:srun|slurmstepd|slurmd): |Traceback |\s|$")
# What a node's driver says of a partner that does not answer any more.
_LOST = re.compile(r"(?P<node>[^\s:]+) lost: ")
_MOST_HOSTS = 100_000
_MOST_CHARACTERS = 300


def failed_tasks(job_folder: Path, nodes: Collection[str]) -> dict[str, str]:
    """Return what became of each node's task that failed: its own words, or srun's. Empty if none is named.

    A program that names its node in front of its message (`n2: cannot write ...`) is quoted with it; words of
    nobody in particular are the failed node's if it is the only one.
    """
    lines = list(_lines(job_folder))
    how: dict[str, str] = {}
    munge = ""
    for line in lines:
        if found := _FAILED.match(line):
            for node in _expanded(found["hosts"]):
                if node in nodes:
                    how.setdefault(node, found["how"])
        elif found := _MUNGE.match(line):
            munge = found["why"]
        elif munge and (found := _REFUSED.match(line)) and found["host"] in nodes:
            how.setdefault(found["host"], f"munge refused its end ({munge[:40]}): see its clock")
    theirs = tuple(f"{node}: " for node in nodes)
    unnamed = [line for line in lines if not _FRAME.match(line) and not line.startswith(theirs)]
    told: dict[str, str] = {}
    for node, ended in how.items():
        mine = [line.removeprefix(f"{node}: ") for line in lines if line.startswith(f"{node}: ")]
        words = mine or (unnamed[-1:] if len(how) == 1 else [])
        told[node] = f"{node}: {words[0][:_MOST_CHARACTERS] if words else f'its task: {ended[:80]}'}"
    return told


def told_by_tasks(
    job_folder: Path, job: JobRecord, spec: JobSpec | None
) -> tuple[JobRecord, dict[str, Problem], bool]:
    """Return a failed job's record with what its tasks said in front, each failed node's problem, and a flag.

    The flag says that each node of the job stands for itself and the failed ones are known: what the others
    left is then as good as if the job had been theirs alone.
    """
    if spec is None or job.problem is None or job.state != "FAILED":
        return job, {}, False
    failed = failed_tasks(job_folder, spec.nodes)
    if not failed:
        return job, {}, False
    first = "; ".join(list(failed.values())[:3])
    problem = Problem(kind=job.problem.kind, message=f"{first} ({job.problem.message})"[:2000])
    kind = JOB_KINDS.get(spec.kind)
    # A job that a signal ended, or that ran elsewhere, is nobody's.
    by_itself = bool(re.fullmatch(r"[1-9][0-9]*:0", job.exit_code or "")) and set(job.nodes) == set(
        spec.nodes
    )
    alone = kind is not None and kind.each_node and by_itself
    problems = {node: Problem(kind="environment", message=text) for node, text in failed.items()}
    return job.model_copy(update={"problem": problem}), problems, alone


def why_lost(problem: Problem | None, failed: Mapping[str, Problem]) -> Problem | None:
    """Return the problem of an output; where it is that another node was lost, with what that node said."""
    lost = _LOST.match(problem.message) if problem else None
    if problem is None or lost is None or lost["node"] not in failed:
        return problem
    message = f"{failed[lost['node']].message} ({problem.message})"[:2000]
    return problem.model_copy(update={"message": message})


def _lines(job_folder: Path) -> Iterator[str]:
    for path in sorted(job_folder.glob("*.err")):
        if path.name != STDERR and not is_of_nodes(path.name):
            continue  # under an order nobody signs it
        try:
            text = read_output(path).decode("utf-8", errors="replace")
        except (BadInput, OSError):
            continue
        yield from text.splitlines()


def _expanded(hosts: str) -> Iterator[str]:
    """Yield the names of a host list of Slurm's, `n[1-2,7],login`; nothing of what is not understood."""
    for found in _HOSTS.finditer(hosts):
        if not found["ranges"]:
            yield found["stem"] + found["rest"]
            continue
        for part in found["ranges"].split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or not (last or first).isdigit():
                continue
            for number in range(int(first), min(int(last or first), int(first) + _MOST_HOSTS) + 1):
                yield f"{found['stem']}{number:0{len(first)}d}{found['rest']}"
