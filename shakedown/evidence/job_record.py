"""What a job's own record and its failed tasks say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from shakedown.benchmarks.config.odd_parts import OF_CLOCKS
from shakedown.benchmarks.registry import JOB_KINDS
from shakedown.plan.jobs import JobSpec, job_and_attempt
from shakedown.records.reading import BadInput, read_output
from shakedown.records.results import JobRecord, RunProblem
from shakedown.records.wording import BLAMES, those
from shakedown.run.ownership import STDERR, is_of_nodes

# ReFrame's guard has said so when the job ended. A run is judged from its raw files, so it is asked again:
# the record of another job, or one that was written over, is no evidence.


def shared_jobs(records: Iterable[tuple[str, JobRecord]]) -> dict[str, tuple[str, ...]]:
    """Return, by Slurm's job id, the folders that say they are that job's, where they are several."""
    folders: dict[str, list[str]] = defaultdict(list)
    for folder, job in records:
        if job.job is not None:
            folders[job.job].append(folder)
    return {job: tuple(sorted(names)) for job, names in folders.items() if len(names) > 1}


def as_kept(
    folder: str, job: JobRecord, spec: JobSpec | None, shared: Mapping[str, tuple[str, ...]]
) -> JobRecord:
    """Return a job's record, with a problem if it says that all is well and contradicts itself or its order.

    Args:
        folder: the name of the job's folder.
        job: the record in it.
        spec: what was planned, if it was.
        shared: as `shared_jobs` of all of the run's folders has it.
    """
    if spec is None or job.problem is not None or job.state != "COMPLETED":
        return job
    what = _flaw(folder, job, spec, shared)
    return (
        job if not what else job.model_copy(update={"problem": RunProblem(kind="other", message=what[:2000])})
    )


def _flaw(folder: str, job: JobRecord, spec: JobSpec, shared: Mapping[str, tuple[str, ...]]) -> str:
    _, attempt = job_and_attempt(folder)
    if set(job.nodes) != set(spec.nodes):
        ran = those(sorted(job.nodes), "node") if job.nodes else "nodes that are not known"
        return f"the job ran on {ran}, planned were {those(sorted(spec.nodes), 'node')}"
    if job.exit_code != "0:0":
        # Slurm never tells the one without the other (`shakedown.slurm.client.parse_show_job`).
        code = "no exit code" if job.exit_code is None else f"exit code {job.exit_code}: which of the two?"
        return f"Slurm says COMPLETED and {code}"
    if job.attempt != attempt:
        return f"the folder {folder} holds the record of attempt {job.attempt}"
    if folders := shared.get(job.job or ""):
        return f"{those(folders, 'folder')} say that they are Slurm's job {job.job}: at most one is"
    if job.started is None or job.duration_s is None:
        return "when the job ran is not known, so that what another time left cannot be told from its outputs"
    return ""


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
_OF_KEY = "Invalid credential"  # what munge says of one that another key made
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
            how.setdefault(found["host"], _of_munge(munge[:40], found["host"]))
    theirs = tuple(f"{node}: " for node in nodes)
    unnamed = [line for line in lines if not _FRAME.match(line) and not line.startswith(theirs)]
    told: dict[str, str] = {}
    for node, ended in how.items():
        mine = [line.removeprefix(f"{node}: ") for line in lines if line.startswith(f"{node}: ")]
        words = mine or (unnamed[-1:] if len(how) == 1 else [])
        told[node] = f"{node}: {words[0][:_MOST_CHARACTERS] if words else f'its task: {ended[:80]}'}"
    return told


def _of_munge(why: str, node: str) -> str:
    """Say why munge refused a node's messages, by its own reason."""
    kind = "munge-clock" if why.startswith(OF_CLOCKS) else "munge-key" if why.startswith(_OF_KEY) else "munge"
    return BLAMES[kind].told(why=why, node=node)


def told_by_tasks(
    job_folder: Path, job: JobRecord, spec: JobSpec | None
) -> tuple[JobRecord, dict[str, RunProblem], bool]:
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
    problem = RunProblem(kind=job.problem.kind, message=f"{first} ({job.problem.message})"[:2000])
    kind = JOB_KINDS.get(spec.kind)
    # A job that a signal ended, or that ran elsewhere, is nobody's.
    by_itself = bool(re.fullmatch(r"[1-9][0-9]*:0", job.exit_code or "")) and set(job.nodes) == set(
        spec.nodes
    )
    alone = kind is not None and kind.each_node and by_itself
    problems = {node: RunProblem(kind="environment", message=text) for node, text in failed.items()}
    return job.model_copy(update={"problem": problem}), problems, alone


def why_lost(problem: RunProblem | None, failed: Mapping[str, RunProblem]) -> RunProblem | None:
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
