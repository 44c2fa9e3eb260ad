"""Outputs that are another one once more: a copy proves nothing of a second measurement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from shakedown.benchmarks.registry import TOOLS
from shakedown.collect.outputs import journal
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_output
from shakedown.records.results import Measurement, RunProblem
from shakedown.run.folder import RAW

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
    message = f"{raw} is to the byte {other}: nobody can tell which of them was measured"
    return RunProblem(kind="parse", message=message[:2000])
