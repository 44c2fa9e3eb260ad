"""What was measured and does not count: copies, traffic that no NIC saw, files that are lost.

A copy of another output proves nothing of a second measurement. Traffic counts where the NICs or ports on its
way moved it. Of files, a reader misses what it needs by itself; beside it, every release leaves the job's
settings, its nodes and what their NICs counted, and what else a folder held stands in the job's own list
(`evidence.contents`).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shakedown.benchmarks.registry import TOOLS
from shakedown.collect.counters import WHEN, dead_nodes
from shakedown.collect.outputs import Gpus, Told, journal
from shakedown.evidence.contents import MISSING, NODES, OTHER, departed, unlike_given
from shakedown.evidence.job_record import failed_tasks
from shakedown.intent.site import NicSpec
from shakedown.nics.rates import bytes_moved, counts_rdma_bytes
from shakedown.nos.system import LOST
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import Stage
from shakedown.records.reading import BadInput, loads, read_evidence, read_output
from shakedown.records.results import CounterReading, JobRecord, Measurement, OutputRecord, RunProblem
from shakedown.run.folder import INVENTORY, RAW
from shakedown.run.nic_counters import NodeCounters, counters_file
from shakedown.run.ownership import writers

Place = tuple[str, str]  # the job's folder, and the file in it


def own_digests(folder: Path, most: int | None = None) -> Iterator[tuple[Place, str]]:
    """Yield each output of a run that no second measurement writes alike, with its SHA-256.

    What cannot be read is passed over: its reader says so. `most`: records of a job that are read.
    """
    for record in sorted((folder / RAW).glob("*/job.json")):
        job = record.parent
        if job.is_symlink():
            continue
        seen: set[str] = set()
        for output in journal(job, [], most):
            tool = TOOLS.get(output.tool)
            if tool is None or tool.own_bytes is None or output.file in seen:
                continue
            seen.add(output.file)
            try:
                content = read_output(job / output.file)
            except (BadInput, OSError):
                continue
            if content and tool.own_bytes(content.decode("utf-8", "replace")):
                yield (job.name, output.file), hashlib.sha256(content).hexdigest()


def without_copies(
    folder: Path, measurements: Iterable[Measurement], most: int | None = None
) -> list[Measurement]:
    """Return measurements, with a problem for those of an output that is another one's to the byte.

    Of two such outputs nobody can tell which was measured. One that its reader refused, because it names
    other ends than its record, is told from the other by that.
    """
    found = list(measurements)
    taken = {m.raw for m in found if m.problem is None and m.raw}
    of: dict[str, list[str]] = {}
    for (job, file), digest in own_digests(folder, most):
        if (raw := f"{RAW}/{job}/{file}") in taken:
            of.setdefault(digest, []).append(raw)
    twins: dict[str | None, str] = {}
    for alike in of.values():
        if len(alike) > 1:
            twins |= {raw: next(other for other in alike if other != raw) for raw in alike}
    return [
        m.model_copy(update={"problem": _copied(m.raw, twins[m.raw])})
        if m.raw in twins and m.problem is None
        else m
        for m in found
    ]


def _copied(raw: str | None, other: str) -> RunProblem:
    message = f"{raw} is to the byte {other}: which of them was measured is unknown"
    return RunProblem(kind="parse", message=message[:2000])


# An output can be made up, or be that of a wrapper that did less. The payload which it implies must have
# gone through the NICs at its ends: headers and retransmissions only add to it
# (docs/decisions/ordered-work.md).

# The share of the implied payload that the counters may lack: NICs refresh them now and then (mlx5 once a
# second), so the last reading may miss the end of a job.
MISSING_SHARE = 0.05

End = tuple[str, str | None]  # a node, and over what (`Moved`); None: all of its NICs


def confirmed(
    told: Sequence[Told],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, RunProblem],
    nics: Mapping[str, tuple[NicSpec, ...]],
) -> list[Told]:
    """Return what a job's outputs say, with a problem for those that the NICs' counters do not bear out.

    An output is borne out when an end's counters can tell and none of them contradicts it. Nothing is asked
    of outputs that imply no traffic, or of nodes without NICs. Such a problem makes a cell undecided, never
    bad: it is the evidence that is at fault.
    """
    implied: dict[End, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in told:
        for node, over, sent, received in one.moved:
            implied[node, over][0] += sent
            implied[node, over][1] += received
    short = {end: _short(end, sums, readings, unread, nics) for end, sums in implied.items()}
    return [_held(one, short) for one in told]


def _held(one: Told, short: Mapping[End, tuple[bool, str]]) -> Told:
    ends = [short[node, over] for node, over, *_ in one.moved]
    against = [why for tells, why in ends if tells and why]
    silent = [why for tells, why in ends if not tells]
    if against:
        message = against[0]
    elif ends and len(silent) == len(ends) and silent[0]:
        message = f"no counter confirms what this output says: {silent[0]}"
    else:
        return one
    problem = RunProblem(kind="other", message=message[:2000])
    held = tuple(
        m
        if m.problem or one.check not in ("", m.params.get("check"))
        else m.model_copy(update={"problem": problem})
        for m in one.measurements
    )
    return replace(one, measurements=held)


def _short(  # noqa: PLR0911  (one return per reason reads best)
    end: End,
    sums: Iterable[float],
    readings: Mapping[str, tuple[NodeCounters, NodeCounters]],
    unread: Mapping[str, RunProblem],
    nics: Mapping[str, tuple[NicSpec, ...]],
) -> tuple[bool, str]:
    """Return whether an end's counters can tell what it moved, and what speaks against it, or why not."""
    node, over = end
    where = f"{node} {over}" if over else node
    mine = nics.get(node, ())
    devices = [nic.rdma_device for nic in mine if over in (None, nic.rail, nic.rdma_device, nic.netdev)]
    if not devices:
        return False, ""  # nothing of it is under test
    if node in unread:
        return False, unread[node].message
    before, after = readings.get(node, (NodeCounters(), NodeCounters()))
    counted, all_tell = [0, 0], True
    for device in devices:
        first, last = before.devices.get(device), after.devices.get(device)
        if first is None or last is None:
            return False, f"{where}: the counters of {device} were not read before and after the job"
        if before.began_anew(after, device):
            return False, f"{where}: the counters of {device} count from zero again"
        moved = bytes_moved(first, last)
        counted = [total + more for total, more in zip(counted, moved, strict=True)]
        all_tell = all_tell and counts_rdma_bytes(first) and counts_rdma_bytes(last)
    lacking = [
        f"{what} {_amount(claimed)}, the NIC counted {_amount(found)}"
        for what, claimed, found in zip(("sent", "received"), sums, counted, strict=True)
        if found < (1 - MISSING_SHARE) * claimed
    ]
    if not lacking:
        return True, ""
    if not all_tell:
        return (
            False,
            f"{where}: the driver of {', '.join(devices)} has no counter of RDMA bytes that is known here",
        )
    return True, f"{where}: by the outputs of this job it {' and '.join(lacking)}"


def _amount(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


# A switch that is restarted in the middle of a stage, or whose counters are cleared, counts from zero again,
# and what it dropped before is gone. A counter below its old value shows it; one that grew past it does not.
# The payload that went over a host's port must be among the port's bytes: headers, retransmissions and other
# traffic only add to it (docs/decisions/ordered-work.md).

StageEnd = tuple[Stage, str, str | None]  # a stage, and a node with its rail
# What a switch's port receives the node sent.
_COUNTERS = ("rx_bytes", "tx_bytes")


def implied(told: Iterable[tuple[Stage, Told]]) -> dict[StageEnd, list[float]]:
    """Return the payload, in bytes, that each end sent and received by outputs that are evidence."""
    found: dict[StageEnd, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for stage, one in told:
        if not any(measurement.problem for measurement in one.measurements):
            for node, rail, sent, received in one.moved:
                found[stage, node, rail][0] += sent
                found[stage, node, rail][1] += received
    return found


def set_back(
    lines: Sequence[CounterReading], moved: Mapping[StageEnd, Sequence[float]]
) -> list[CounterReading]:
    """Return the lines of switches; those of a port that counted less than was moved say it began anew."""
    counted: dict[StageEnd, list[float]] = defaultdict(lambda: [0.0, 0.0])
    unknown: set[StageEnd] = set()
    for line in lines:
        if line.counter in _COUNTERS and (end := _end(line)) in moved:
            if line.delta is None:
                unknown.add(end)
            else:
                counted[end][_COUNTERS.index(line.counter)] += line.delta
    short = {
        end
        for end, has in counted.items()
        if end not in unknown
        and any(got < (1 - MISSING_SHARE) * due for got, due in zip(has, moved[end], strict=True))
    }
    of_rails = {(line.stage, line.device, line.rail) for line in lines if _end(line) in short}
    return [
        line.model_copy(update={"began_anew": True})
        if _end(line) in short or (line.counter == LOST and (line.stage, line.device, line.rail) in of_rails)
        else line
        for line in lines
    ]


def _end(line: CounterReading) -> StageEnd:
    return line.stage, (line.peer or "").partition("/")[0], line.rail


# What a driver calls a GPU, and no other. All zeros are what takes its place where it is withheld.
_GPU = re.compile(r"(?:GPU-)?(?!0{8}-0{4}-0{4}-0{4}-0{12})([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
# Files that name GPUs once each: a node's name may have dots. A worker's is of its job's node.
_LOOK = re.compile(r"gpus\.(.+)\.(?:before|after)\.json")
_RATE, _WORKER = re.compile(r"gpu_(?:rate|integrity)\.(.+)\.jsonl"), re.compile(r"worker\.[0-9]{1,4}\.json")


def without_one_for_two(folder: Path, measurements: Iterable[Measurement], jobs: Jobs) -> list[Measurement]:
    """Return measurements, with a doubt for those of nodes that show one GPU twice, or the same as another.

    Two names of one machine measure it against itself. Nodes of which the inventory says that they share a
    GPU may; what failed stays failed.
    """
    found = list(measurements)
    # Orders of earlier releases name them in each job that asks.
    shared = {*jobs.shared_gpus}
    shared |= {str(node) for spec in jobs.jobs for node in _list(spec.settings.get("shared_gpus"))}
    doubts: dict[str, str] = {}
    owner: dict[str, str] = {}
    for node, file, uuids in _gpus_shown(folder, found):
        if twice := next((uuid for uuid in uuids if uuids.count(uuid) > 1), None):
            doubts.setdefault(node, f"{file} shows GPU-{twice} of {node} twice: no two GPUs have one UUID")
        for uuid in uuids:
            other = owner.setdefault(uuid, node)
            if other != node and not {other, node} <= shared:
                told = (
                    f"{other} and {node} show the same GPU (GPU-{uuid}): two names of one machine, or a GPU "
                    "that both have, which the inventory must say (shared: true)"
                )
                doubts |= {name: told for name in (other, node) if name not in doubts}
    return [
        m.model_copy(update={"disturbed": why[:500]})
        if m.raw and (why := next((doubts[node] for node in m.nodes if node in doubts), ""))
        else m
        for m in found
    ]


def gpus_of(folder: Path, jobs: Jobs) -> Gpus:
    """Return which GPUs a run's nodes must have, and which they have by its snapshot, if that can be read."""
    # Orders of earlier releases say it where each GPU's state is asked for.
    states = ((spec, spec.settings.get("state")) for spec in jobs.jobs if spec.kind == "gpu_node")
    models = [(spec.nodes, state.get("model")) for spec, state in states if isinstance(state, dict)]
    wanted = {node: str(model) for nodes, model in models if model for node in nodes}
    seen: defaultdict[str, list[str]] = defaultdict(list)
    uuids: defaultdict[str, list[str]] = defaultdict(list)
    with contextlib.suppress(BadInput, OSError, ValueError, LookupError, TypeError, AttributeError):
        for part in loads(read_output(folder / INVENTORY))["components"]:
            if part["kind"] == "gpu" and (name := part["attributes"].get("name")):
                seen[part["host"]].append(str(name)[:100])
                if (uuid := str(part["attributes"].get("uuid"))).startswith("GPU-"):
                    uuids[part["host"]].append(uuid[:100])
    return Gpus(wanted | jobs.gpus, seen, uuids)


def _gpus_shown(folder: Path, measurements: Iterable[Measurement]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (node, file, GPUs' UUIDs) of what a run holds; what cannot be read its reader refuses."""
    nodes = {m.raw.split("/")[1]: m.nodes[0] for m in measurements if m.raw and m.raw.count("/") == 2}
    jobs = [path.parent for path in sorted((folder / RAW).glob("*/job.json"))]
    places = [folder / INVENTORY, *(p for job in jobs if not job.is_symlink() for p in sorted(job.iterdir()))]
    found: defaultdict[tuple[Path, str, str], list[str]] = defaultdict(list)
    for path in places:
        try:
            for node, file, uuids in _shown_in(path, nodes.get(path.parent.name, "")):
                found[path.parent, file, node] += uuids
        except (BadInput, OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    yield from ((node, file, uuids) for (_, file, node), uuids in found.items())


def _shown_in(path: Path, node: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield what one file shows, if it is of a kind that names GPUs; `node`: the first of its job."""
    look, rate, worker = _LOOK.fullmatch(path.name), _RATE.fullmatch(path.name), _WORKER.fullmatch(path.name)
    if not (look or rate or worker or path.name == INVENTORY):
        return
    text = read_output(path).decode("utf-8", "replace")
    if look:
        yield look[1], path.name, _GPU.findall(loads(text)["commands"]["gpus"]["out"])
    elif rate:
        headers = [loads(line)["uuid"] for line in text.splitlines() if '"header"' in line]
        yield rate[1], path.name, _GPU.findall(" ".join(map(str, headers)))
    elif worker and node:
        # The workers of a search are of one node, each with a GPU of its own.
        yield node, "worker.N.json", _GPU.findall(str(loads(text).get("uuid")))
    elif not worker:
        hosts: defaultdict[str, list[str]] = defaultdict(list)
        for part in loads(text)["components"]:
            if part["kind"] == "gpu":
                hosts[part["host"]] += _GPU.findall(part["attributes"].get("uuid", ""))
        yield from ((host, path.name, uuids) for host, uuids in hosts.items())


def _list(found: object) -> list[object] | tuple[object, ...]:
    return found if isinstance(found, list | tuple) else []


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
        return [
            replace(one, measurements=tuple(self._held(m, by_node) for m in one.measurements)) for one in told
        ]

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
