"""Files of a job that are not there any more, or not what they were: they cost the cells they are of.

What a reader needs it misses by itself. Beside it, every release leaves the job's order, its nodes and what
their NICs counted; and what else a folder held when its job had ended stands in the job's own list
(`run.contents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shakedown.collect.counters import WHEN, dead_nodes
from shakedown.collect.outputs import Told
from shakedown.evidence.contents import MISSING, NODES, OTHER, departed, unlike_given
from shakedown.evidence.job_record import failed_tasks
from shakedown.plan.jobs import JobSpec
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_evidence
from shakedown.records.results import JobRecord, Measurement, OutputRecord, RunProblem
from shakedown.run.nic_counters import counters_file
from shakedown.run.ownership import writers


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

    def held(self, told: Iterable[Told], uncounted: Mapping[str, RunProblem]) -> list[Told]:
        """Return what a job's outputs say, with the reason for those that lost files cost.

        `uncounted`: nodes whose counters are no evidence and have no cells of their own to say so.
        """
        by_node = {**uncounted, **self.nodes}
        return [Told(tuple(self._held(m, by_node) for m in one.measurements), one.moved) for one in told]

    def _held(self, one: Measurement, by_node: Mapping[str, RunProblem]) -> Measurement:
        if one.problem is not None and one.problem.kind != "parse":
            return one  # a reader's words of what is left tell less than what is gone
        output = self.outputs.get((one.raw or "").rpartition("/")[2])
        why = self.whole or output or next((by_node[n] for n in one.nodes if n in by_node), None)
        return one.model_copy(update={"problem": why}) if why else one


def lost_files(
    folder: Path, job: JobRecord, spec: JobSpec, outputs: Iterable[OutputRecord], *, alone: bool
) -> Lost:
    """Return which files of a job are lost; of one that ended badly every cell has its reason anyhow.

    Args:
        folder: the job's.
        job: what Slurm said of it.
        spec: what was planned.
        outputs: the journal.
        alone: the job failed with some nodes alone, and the others' outputs count (`told_by_tasks`).
    """
    if (job.problem is not None or job.state != "COMPLETED") and not alone:
        return Lost()
    gone = departed(folder, job.files)
    whole = {**_nodes(folder, job), **unlike_given(folder, spec)}
    files, owner = {output.file for output in outputs}, writers(gone, spec.nodes, {})
    by_output, by_node = dict[str, str](), dict[str, str]()
    by_counters = _uncounted(folder, job, spec, gone)
    for name, how in gone.items():
        if name in files:
            by_output[name] = f"{name} {how}"
        elif (node := owner.get(name)) and not name.startswith("counters."):
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
