"""What a mesh's drivers left in their OUTDIR, read without a run around it.

A quick mesh, chosen pairs or one rail are measured by hand, so there is no plan, no `job.json` and no
`results.jsonl`. The numbers come from the same records and the same readers as a run's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.perftest.mesh.driver import read_spec
from shakedown.benchmarks.perftest.mesh.schedule import (
    Cell,
    MeshCoverage,
    blocks_of,
    cell_of,
    client_and_server,
    coverage_of,
    drop_superseded,
    pairs_of,
)
from shakedown.benchmarks.perftest.mesh.spec import LATENCY_TESTS, Spec
from shakedown.benchmarks.perftest.mesh.store import (
    Start,
    events,
    refuse_other_specification,
    refuse_other_version,
    start_in,
    start_of,
)
from shakedown.benchmarks.perftest.metrics import perftest
from shakedown.benchmarks.perftest.settings import MeshSettings, NicSettings, NodeSettings
from shakedown.evidence.job_folder import journal
from shakedown.judge.localise.pair_results import PairResults, PlannedPairs, is_pair
from shakedown.records.base import Better, Stage
from shakedown.records.plan import PlanItem
from shakedown.records.reading import BadInput, read_bytes
from shakedown.records.results import Measurement, OutputRecord, RunProblem
from shakedown.run.folder import PLAN
from shakedown.run.nic_counters import JobFolder


class Outdir:
    """The folder of the drivers, opened for reading.

    Args:
        folder: where it is.
        spec: what was measured, if it is known: each output is held against its addresses and its MTU.

    Attributes:
        folder: where it is.
        dropped: node -> who found it lost, in order.
        skews: (node, partner) -> how far their clocks were apart, in seconds, where it was worth a note.

    Raises:
        BadInput: it is no folder, or a line of a journal or of the records cannot be used.
    """

    def __init__(self, folder: Path, spec: Spec | None = None) -> None:
        if not folder.is_dir():
            raise BadInput("is not a folder", fix="name the driver's OUTDIR", file=folder)
        self.folder, self._spec = folder, spec
        self._ordered = _ordered(spec) if spec else MeshSettings()
        self._records = [r for r in journal(folder) if r.tool == "perftest"]
        self._starts: dict[str, list[Start]] = {}
        self.skews: dict[tuple[str, str], float] = {}
        dropped: dict[str, set[str]] = {}
        for path in sorted(folder.glob("journal.*.jsonl")):
            node = path.name.removeprefix("journal.").removesuffix(".jsonl")
            for number, entry in events(path):
                if entry["event"] == "start":
                    self._starts.setdefault(node, []).append(start_in(path, number, entry))
                elif entry["event"] == "dropped" and isinstance(entry.get("dropped"), str):
                    dropped.setdefault(entry["dropped"], set()).add(node)
                elif entry["event"] == "clock-skew" and isinstance(entry.get("partner"), str):
                    seconds = entry.get("seconds")
                    # A whole number is nothing that a driver writes, and may be too large for anything.
                    if isinstance(seconds, float) and math.isfinite(seconds):
                        ends = (node, entry["partner"])
                        self.skews[ends] = max(seconds, self.skews.get(ends, 0.0))
        self.dropped = {node: sorted(by) for node, by in sorted(dropped.items())}

    def refuse_other(self, digest: str) -> None:
        """Refuse results of another specification than the one with this digest, or of several perftests.

        Raises:
            BadInput: naming the line of the journal that says so.
        """
        for found in self._starts.values():
            refuse_other_specification(found, digest)
        first: dict[str, Start] = {}
        for record in self._records:
            if record.exit_code != 0 or record.problem is not None or len(record.nodes) != 2:
                continue
            start = self._start_of(record)
            refuse_other_version(
                first.setdefault(record.test, start), record.test, start.versions.get(record.test)
            )

    def _start_of(self, record: OutputRecord) -> Start:
        """Return with which start of its driver a client was run."""
        pair = (record.nodes[0], record.nodes[1])
        client, _ = client_and_server(record.test, pair, record.direction or "forward")
        if client not in self._starts:
            raise BadInput(
                f"no journal of {client} says which specification {record.file} belongs to",
                fix="copy the drivers' whole OUTDIR",
                file=self.folder,
            )
        return start_of(self._starts[client], record.started)

    def measurements(self) -> Iterator[Measurement]:
        """Yield what the records say, with the numbers of their files; what has none says why."""
        for record in drop_superseded(self._records):
            problem, values = record.problem, dict[str, float | None]()
            if problem is None and record.exit_code != 0:
                problem = RunProblem(kind="other", message=f"exit status {record.exit_code}")
            if problem is None:
                try:
                    values = self._values(record)
                except BadInput as refused:
                    text = str(refused).replace(f"{self.folder}/", "")
                    problem = RunProblem(kind="parse", message=text[:2000])
            metric, unit, better = _metric(record.test)
            yield Measurement(
                run="outdir",
                stage=Stage.FABRIC,
                test=record.test,
                metric=metric,
                value=values.get(metric),
                unit=unit,
                better=better,
                nodes=record.nodes,
                rail=record.rail,
                direction=record.direction,
                params=record.params,
                state="COMPLETED",
                attempt=record.attempt,
                started=record.started,
                duration_s=record.duration_s,
                raw=record.file,
                problem=problem,
            )

    def _values(self, record: OutputRecord) -> dict[str, float | None]:
        """Return metric -> value of an output, held against its record as a run's is.

        Raises:
            BadInput: it cannot be read, or is of something else.
        """
        file = self.folder / record.file
        try:
            text = read_bytes(file).decode("utf-8")
        except UnicodeDecodeError:
            raise BadInput("not UTF-8", file=file) from None
        output = Output(text, record, self._ordered, JobFolder(self.folder))
        return {value[0]: value[1] for value in perftest(output)}

    def pairs(self) -> PairResults:
        """Return the results of all pairs, or of the specification's, with how many of those are missing."""
        results = PairResults(PlannedPairs(planned_items(self._spec)) if self._spec else None)
        for m in self.measurements():
            results.add(m)
        return results


def read_outdirs(folders: Sequence[Path], specs: Sequence[Path]) -> PairResults:
    """Return the results of several meshes together: a quick one, say, and the one that confirmed it.

    Args:
        folders: the drivers' OUTDIRs.
        specs: the specification of each; what it holds is what may be missing.

    Raises:
        BadInput: they do not belong together, or one cannot be used.
    """
    if len(folders) != len(specs):
        raise BadInput(
            f"{len(folders)} OUTDIRs and {len(specs)} specifications", fix="give a --spec for each OUTDIR"
        )
    if len(set(map(Path.resolve, folders))) < len(folders):
        raise BadInput("an OUTDIR is named twice", fix="name each once")
    read = [
        (Outdir(folder, spec), spec, digest)
        for folder, (spec, digest) in zip(folders, map(read_spec, specs), strict=True)
    ]
    _refuse_overlap([spec for _, spec, _ in read])
    results = PairResults(PlannedPairs(item for _, spec, _ in read for item in planned_items(spec)))
    for outdir, _, digest in read:
        outdir.refuse_other(digest)
        for m in outdir.measurements():
            results.add(m)
    return results


def _refuse_overlap(specs: Sequence[Spec]) -> None:
    """Refuse specifications that measure the same, which would count twice what may be missing."""
    for i, one in enumerate(specs):
        for other in specs[:i]:
            tests = {(b.test, *sorted(b.params.items())) for b in blocks_of(one)}
            same = tests & {(b.test, *sorted(b.params.items())) for b in blocks_of(other)}
            pairs = set(pairs_of(one)) & set(pairs_of(other))
            if same and pairs and set(one.rails) & set(other.rails):
                a, b = min(pairs)
                raise BadInput(
                    f"two specifications measure {a} and {b} alike", fix="name one of the two OUTDIRs"
                )


class Covered:
    """Gathers which cells have a number: finite, above 0, and with no problem, in their last attempt.

    Attributes:
        nodes: those at an end of any result.
    """

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        # (attempt, whether it failed, why) of each cell, the largest of them: failure wins within an attempt.
        self._last: dict[Cell, tuple[int, bool, str]] = {}

    def add(self, m: Measurement) -> None:
        """Take a measurement in, if it is one of a pair."""
        if not is_pair(m.stage, m.metric, m.nodes, m.rail, m.direction):
            return
        why = ""
        if m.problem is not None:
            why = m.problem.message
        elif m.value is None or not math.isfinite(m.value) or m.value <= 0:
            why = f"{m.raw}: no {m.metric} above 0"
        else:
            self.nodes.update(m.nodes)
        cell = cell_of(m)
        self._last[cell] = max(self._last.get(cell, (0, False, "")), (m.attempt, bool(why), why))

    def of(self, spec: Spec) -> MeshCoverage:
        """Return how much of a specification that is."""
        measured = {cell for cell, (_, failed, _) in self._last.items() if not failed}
        return coverage_of(spec, measured, {cell: why for cell, (*_, why) in self._last.items() if why})


def is_outdir(folder: Path) -> bool:
    """Return whether a folder is the drivers' own, and not one of a run."""
    return not os.path.lexists(folder / PLAN) and any(folder.glob("outputs.*.jsonl"))


def planned_items(spec: Spec) -> list[PlanItem]:
    """Return what a specification measures, as a plan has it; nothing is held against a reference."""
    items: list[PlanItem] = []
    for block in blocks_of(spec):
        metric, unit, better = _metric(block.test)
        items.append(
            PlanItem(
                stage=Stage.FABRIC,
                test=block.test,
                metric=metric,
                unit=unit,
                better=better,
                nodes=tuple(pairs_of(spec)),
                rails=block.rails,
                directions=block.directions,
                params=dict(block.params),
                reference="none",
            )
        )
    return items


def _ordered(spec: Spec) -> MeshSettings:
    """Return a specification as far as outputs are held against it."""
    nodes = {
        name: NodeSettings(rails={rail: NicSettings(ipv4=nic.ipv4) for rail, nic in node.rails.items()})
        for name, node in spec.nodes.items()
    }
    return MeshSettings(nodes=nodes, mtu=spec.mtu, gid_index=spec.gid_index)


def _metric(test: str) -> tuple[str, str, Better]:
    if test in LATENCY_TESTS:
        return "latency_typical", "us", Better.LOWER
    return "bandwidth", "Gb/s", Better.HIGHER
