"""One thing that was measured as if it were two: outputs alike to the byte, GPUs that two nodes show."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from shakedown.benchmarks.registry import TOOLS
from shakedown.collect.outputs import Gpus
from shakedown.plan.jobs import Jobs
from shakedown.records.reading import BadInput, loads, read_output
from shakedown.records.results import Measurement, OutputRecord, RunProblem
from shakedown.run.folder import INVENTORY, RAW, job_folders


def own_digests(job: Path, outputs: Iterable[OutputRecord]) -> Iterator[tuple[str, str]]:
    """Yield each output of a job that no second measurement writes alike, `raw/JOB/FILE`, with its SHA-256.

    What cannot be read is passed over: its reader says so.
    """
    seen: set[str] = set()
    for output in outputs:
        tool = TOOLS.get(output.tool)
        if tool is None or tool.own_bytes is None or output.file in seen:
            continue
        seen.add(output.file)
        try:
            content = read_output(job / output.file)
        except (BadInput, OSError):
            continue
        if content and tool.own_bytes(content.decode("utf-8", "replace")):
            yield f"{RAW}/{job.name}/{output.file}", hashlib.sha256(content).hexdigest()


def without_copies(
    measurements: Iterable[Measurement], digests: Iterable[tuple[str, str]]
) -> list[Measurement]:
    """Return measurements, with a problem for those of an output that is another one's to the byte.

    Of two such outputs nobody can tell which was measured. One that its reader refused, because it names
    other ends than its record, is told from the other by that.
    """
    found = list(measurements)
    taken = {m.raw for m in found if m.problem is None and m.raw}
    of: dict[str, list[str]] = {}
    for raw, digest in digests:
        if raw in taken:
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
    jobs = job_folders(folder)
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
