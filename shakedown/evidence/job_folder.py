"""What a job's folder must hold, what its own record and its failed tasks say, and what of it is lost.

`files.json` lists what was there when the job had ended, and `job.json` names that list's digest. A file that
is lost, cut off or of another job afterwards is told by it, whatever the file is: whether a cell's reader
would miss it or not. Beside it, every release leaves the job's settings, its nodes and what their NICs
counted. It shows what happened by mistake; who changes a run on purpose writes the list anew as well, and
only an order's signatures show that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from shakedown.benchmarks.base.contract import rails_of
from shakedown.benchmarks.config.odd_parts import OF_CLOCKS
from shakedown.benchmarks.registry import JOB_KINDS, TOOLS
from shakedown.plan.jobs import Jobs, JobSpec, job_and_attempt
from shakedown.records.reading import (
    LARGEST_OUTPUT,
    BadInput,
    complete_lines,
    read_evidence,
    read_output,
    refusal,
)
from shakedown.records.results import JobRecord, Measurement, OutputRecord, RunProblem
from shakedown.records.wording import BLAMES, those
from shakedown.run.chain import digest
from shakedown.run.nic_counters import WHEN, counters_file
from shakedown.run.ownership import BEFORE_IT_RUNS, CONTENTS, STDERR, is_of_nodes, writers
from shakedown.run.share import Share

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
_FAILED = re.compile(r"srun: error: (?P<hosts>[A-Za-z0-9][^\s:]{0,2000}): tasks? [0-9,-]+: (?P<how>.+)")
_NODE = "Node failure"  # any other word tells more
_SLURMS = ("Killed", "Out Of Memory", _NODE)  # which no words of a program explain
_GONE = re.compile(rf"srun: error: (?P<how>{_NODE}) on (?P<hosts>[A-Za-z0-9]\S{{0,2000}})")
# How jobs end whose tasks' words tell why; where Slurm ended the job itself, each task was killed for it.
_OF_TASKS = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY")
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
        if found := _FAILED.match(line) or _GONE.match(line):
            for node in expanded(found["hosts"]):
                if node in nodes and how.get(node) in (None, _NODE):
                    how[node] = found["how"]
        elif found := _MUNGE.match(line):
            munge = found["why"]
        elif munge and (found := _REFUSED.match(line)) and (node := found["host"]) in nodes:
            how[node] = _of_munge(munge[:40], node) if how.get(node) in (None, _NODE) else how[node]
    theirs = tuple(f"{node}: " for node in nodes)
    unnamed = [line for line in lines if not _FRAME.match(line) and not line.startswith(theirs)]
    told: dict[str, str] = {}
    for node, ended in how.items():
        mine = [line.removeprefix(f"{node}: ") for line in lines if line.startswith(f"{node}: ")]
        words = mine or (unnamed[-1:] if len(how) == 1 and not ended.startswith(_SLURMS) else [])
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
    failed = failed_tasks(job_folder, spec.nodes) if spec and job.state in _OF_TASKS else {}
    if job.problem is None and (failed or (job.job and job.state not in ("COMPLETED", "FAILED"))):
        ended = f"job {job.job} ended {job.state}, not COMPLETED"
        job = job.model_copy(update={"problem": RunProblem(kind="killed", message=ended[:2000])})
    if spec is None or job.problem is None or not failed:
        return job, {}, False
    first = "; ".join(list(failed.values())[:3])
    problem = RunProblem(kind=job.problem.kind, message=f"{first} ({job.problem.message})"[:2000])
    kind = JOB_KINDS.get(spec.kind)
    # A job that a signal ended, or that ran elsewhere, is nobody's.
    here = set(job.nodes) == set(spec.nodes)
    by_itself = here and bool(re.fullmatch(r"[1-9][0-9]*:0", job.exit_code or ""))
    alone = kind is not None and kind.each_node and by_itself
    problems = {node: RunProblem(kind="environment", message=text) for node, text in failed.items()}
    return job.model_copy(update={"problem": problem}), problems, alone


def _lines(job_folder: Path) -> Iterator[str]:
    for path in sorted(job_folder.glob("*.err")):
        if path.name != STDERR and not is_of_nodes(path.name):
            continue  # under an order nobody signs it
        try:
            text = read_output(path).decode("utf-8", errors="replace")
        except (BadInput, OSError):
            continue
        yield from text.splitlines()


def expanded(hosts: str) -> Iterator[str]:
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


# Which file measures which cells.


def journal(
    job_folder: Path, flaws: list[BadInput] | None = None, most: int | None = None
) -> list[OutputRecord]:
    """Return the records of all journals of a job.

    A file that several records claim, although one file of that tool is of one cell, is a problem of each.

    Args:
        job_folder: the folder.
        flaws: gets why a journal cannot be read to its end; what stands before the flaw is returned.
        most: records that are read; a file of 60 MB that names one output again and again takes minutes.

    Raises:
        BadInput: a journal cannot be read, unless there are `flaws` to say so.
    """
    outputs: list[OutputRecord] = []
    for path in sorted(job_folder.glob("outputs*.jsonl")):
        try:
            for output in _records(path):
                if most is not None and len(outputs) >= most:
                    raise BadInput(
                        f"more than {most} records of one job, which its plan does not explain",
                        fix="run the job again: its journal is damaged",
                        file=path,
                    )
                outputs.append(output)
        except BadInput as refused:
            if flaws is None:
                raise
            flaws.append(refused)
    claims: dict[str, set[tuple[object, ...]]] = {}
    for output in outputs:
        claims.setdefault(output.file, set()).add(_claim(output))
    return [
        output
        if output.problem is not None or len(claims[output.file]) == 1
        else output.model_copy(update={"problem": _contested(output.file, len(claims[output.file]))})
        for output in outputs
    ]


def _records(path: Path) -> Iterator[OutputRecord]:
    """Yield the records of one journal. Raises BadInput."""
    # A node that died while it wrote leaves half a line; the cell it was about stays without a value.
    for number, line in complete_lines(read_evidence(path)):
        try:
            yield OutputRecord.model_validate_json(line)
        except ValidationError as error:
            again = "run the job again: its journal is damaged"
            raise refusal(error, OutputRecord, file=path, line=number, fix=again) from None


def _claim(output: OutputRecord) -> tuple[object, ...]:
    """Return what a record takes its file for, without what the tool's file tells apart itself."""
    told = TOOLS[output.tool].told_by_file if output.tool in TOOLS else ""
    place = {"test": output.test, "direction": output.direction, "rail": output.rail, "nodes": output.nodes}
    kept = tuple(value for name, value in place.items() if name != told)
    return (output.tool, *kept, tuple(sorted(output.params.items())), output.attempt)


def _contested(file: str, claims: int) -> RunProblem:
    message = f"{file} is named by the records of {claims} cells or attempts: whose it is, is unknown"
    return RunProblem(kind="parse", message=message)


# What there must be in the folder, and what is lost.

_LIST = TypeAdapter(dict[str, str | None], config=ConfigDict(strict=True))
MISSING, OTHER = "is missing", "is not what was ordered"
CHANGED = "is not what it was when the job had ended"

SPEC, SOFTWARE, RAILS = BEFORE_IT_RUNS
NODES = "nodes.txt"  # the nodes that a job's script runs on, one a line, as it notes them when it begins


def given(jobs: Jobs, spec: JobSpec) -> dict[str, str]:
    """Return what a job's programs read of their order and of each other's NICs, by file."""
    files = {SPEC: json.dumps(spec.settings, indent=1) + "\n"}
    if spec.software:
        sources = {name: source.model_dump(by_alias=True) for name, source in spec.software.items()}
        files[SOFTWARE] = json.dumps(sources, indent=1) + "\n"
    keep = {"rail", "netdev", "ipv4"}
    told = {node: [nic.model_dump(include=keep) for nic in own] for node, own in rails_of(jobs, spec).items()}
    return {**files, RAILS: json.dumps(told) + "\n"} if told else files


def unlike_given(folder: Path, jobs: Jobs, spec: JobSpec) -> dict[str, str]:
    """Return which files that a job was given are missing from its folder, or not what they were."""
    from shakedown.run.redact import redact, redact_bytes  # a fifth of a second, which few runs need

    due_files = given(jobs, spec)
    found = {name: OTHER for name in BEFORE_IT_RUNS if name not in due_files and (folder / name).exists()}
    if RAILS in due_files and not (folder / RAILS).exists() and not _were_told(folder):
        del due_files[RAILS]
    for name, text in due_files.items():
        # As secrets' names are gone from it: a target is called `environment`.
        due, how = json.loads(redact(text)), ""
        try:
            had = json.loads(redact_bytes(read_evidence(folder / name)))
        except (BadInput, OSError, ValueError, RecursionError):
            how = OTHER if (folder / name).exists() else MISSING
        else:
            if name == SOFTWARE and isinstance(had, dict) and had.keys() == due.keys():
                # A later release may know more of a source than the one that wrote this.
                due = {key: {k: v for k, v in of.items() if k in (had[key] or ())} for key, of in due.items()}
            how = OTHER if had != due else ""
        if how:
            found[name] = how
    return found


def _were_told(folder: Path) -> bool:
    """Return whether a job's nodes knew each other's NICs, which earlier releases did not tell them."""
    return any(b'"astray"' in read_output(path) for path in folder.glob("counters.*.json"))


def note_contents(folder: Path) -> str:
    """Write the list of a job's files with their SHA-256, once secrets are gone; return the list's own.

    A file that is larger than anybody reads stands there without a digest.

    Raises:
        OSError: a file cannot be read, or the list cannot be written.
    """
    share, found = Share(folder.parents[1]), dict[str, str | None]()
    for name in share.names(folder):
        if not is_of_nodes(name) and name != STDERR:  # nothing is read from what else is there
            continue
        path = folder / name
        try:
            with share.open(path, os.O_RDONLY) as file:
                small = os.fstat(file).st_size <= LARGEST_OUTPUT
        except OSError:
            continue  # a link, a folder, a pipe: no output
        found[name] = digest(share.read(path)) if small else None
    content = (json.dumps(found, indent=0) + "\n").encode()
    share.write(folder / CONTENTS, content)
    return _digest(content)


def departed(folder: Path, due: str | None) -> dict[str, str]:
    """Return the files of a job's folder that are not what they were when it had ended, and how.

    Args:
        folder: the job's.
        due: the list's digest, as `job.json` has it; None: the job was run before there was a list.
    """
    if due is None:
        return {}
    try:
        content = read_evidence(folder / CONTENTS)
        if _digest(content) != due:
            return {CONTENTS: CHANGED}
        noted = _LIST.validate_json(content)
    except (BadInput, OSError, ValidationError):
        return {CONTENTS: MISSING if not (folder / CONTENTS).exists() else CHANGED}
    return {name: how for name, one in noted.items() if (how := _how(folder, name, one))}


def _how(folder: Path, name: str, due: str | None) -> str:
    path = folder / name
    if due is None:  # nobody reads it, and one that would fill a disk is not fetched
        return ""
    if path.name != name or not path.is_file():
        return MISSING
    try:
        content = read_output(path)
    except (BadInput, OSError):
        return CHANGED
    if _digest(content) == due:
        return ""
    from shakedown.run.redact import redact_bytes
    from shakedown.run.secret_kinds import MASK

    # A later release finds secrets that the one of the day did not.
    masked = content != b"" and MASK.encode() in content
    return "" if masked or _digest(redact_bytes(content)) == due else CHANGED


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def dead_nodes(job_folder: Path, spec: JobSpec) -> Collection[str]:
    """Return which nodes died in a job; where nothing can tell any more, each may have."""
    kind = JOB_KINDS.get(spec.kind)
    try:
        return (kind.lost_nodes(job_folder, spec.nodes) or ()) if kind and kind.lost_nodes else ()
    except (BadInput, OSError):
        return spec.nodes


@dataclass(frozen=True)
class Lost:
    """What is lost of a job's files: the reason by the output, the node or the node's counters it costs.

    `whole`: the reason why nothing of the job counts.
    """

    whole: RunProblem | None = None
    outputs: Mapping[str, RunProblem] = field(default_factory=dict)
    nodes: Mapping[str, RunProblem] = field(default_factory=dict)
    counters: Mapping[str, RunProblem] = field(default_factory=dict)

    @property
    def any(self) -> RunProblem | None:
        """The reason for a cell of which nothing is left."""
        return self.whole or next(iter(self.nodes.values()), None)

    def held(self, one: Measurement, uncounted: Mapping[str, RunProblem]) -> Measurement:
        """Return a measurement of the job, with the reason if lost files cost it.

        `uncounted`: nodes whose counters are no evidence and have no cells of their own to say so.
        """
        if one.problem is not None and one.problem.kind != "parse":
            return one  # a reader's words of what is left tell less than what is gone
        output = self.outputs.get((one.raw or "").rpartition("/")[2])
        why = (
            self.whole
            or output
            or next(filter(None, (self.nodes.get(n, uncounted.get(n)) for n in one.nodes)), None)
        )
        return one.model_copy(update={"problem": why}) if why else one


def lost_files(
    folder: Path, job: JobRecord, jobs: Jobs, spec: JobSpec, outputs: Iterable[OutputRecord], *, alone: bool
) -> Lost:
    """Return which files of a job are lost; of one that ended badly every cell has its reason anyhow.

    Args:
        folder: the job's.
        job: what Slurm said of it.
        jobs: the run's, and
        spec: what was planned of this one.
        outputs: the journal.
        alone: the job failed with some nodes alone, and the others' outputs count (`told_by_tasks`).
    """
    if (job.problem is not None or job.state != "COMPLETED") and not alone:
        return Lost()
    gone = departed(folder, job.files)
    whole = {**_nodes(folder, job), **unlike_given(folder, jobs, spec)}
    # By their names alone: who claims a file in a journal is nothing to those that are gone.
    files, owner = {output.file for output in outputs}, writers(gone, spec.nodes, {})
    by_output, by_node = dict[str, str](), dict[str, str]()
    by_counters = _uncounted(folder, job, spec, gone)
    for name, how in gone.items():
        if name in files:
            by_output[name] = f"{name} {how}"
        elif (node := owner.get(name)) and not name.startswith("counters."):  # those are in `by_counters`
            by_node.setdefault(node, f"{name} {how}")
        elif not node:
            whole.setdefault(name, how)
    return Lost(
        next((_problem(f"{name} {how}") for name, how in whole.items()), None),
        {name: _problem(text) for name, text in by_output.items()},
        {node: _problem(text) for node, text in by_node.items()},
        by_counters,
    )


def _uncounted(folder: Path, job: JobRecord, spec: JobSpec, gone: Mapping[str, str]) -> dict[str, RunProblem]:
    """Return why nodes' counters are no evidence; a node that lives has left them, before and after."""
    died = dead_nodes(folder, spec)
    found: dict[str, RunProblem] = {}
    for node in spec.nodes:
        for when in WHEN:
            name = counters_file(node, when)
            if name in gone:
                found.setdefault(node, _problem(f"{name} {gone[name]}"))
            elif node not in died and not (folder / name).exists():
                # What the job's list has not was not there when the job had ended.
                found.setdefault(
                    node, _unread(folder, spec, node, when) if job.files else _problem(f"{name} {MISSING}")
                )
    return found


def _unread(folder: Path, spec: JobSpec, node: str, when: str) -> RunProblem:
    why = failed_tasks(folder, spec.nodes).get(node)
    return RunProblem(
        kind="environment",
        message=f"the NICs' counters of {node} could not be read {when} the job{f': {why}' if why else ''}"[
            :2000
        ],
    )


def _nodes(folder: Path, job: JobRecord) -> dict[str, str]:
    """Return whether the note of the job's nodes is gone, or says others than the job's record."""
    try:
        there = read_evidence(folder / NODES).split()
    except (BadInput, OSError):
        return {NODES: OTHER if (folder / NODES).exists() else MISSING}
    return {} if there == [node.encode() for node in job.nodes] else {NODES: OTHER}


def _problem(text: str) -> RunProblem:
    return RunProblem(kind="other", message=f"{text}: what is left of this job is not all of it")
