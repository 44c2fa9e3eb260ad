"""Outputs that are another one once more: a copy proves nothing of a second measurement."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from shakedown.benchmarks.registry import TOOLS
from shakedown.collect.outputs import journal
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_output
from shakedown.run.folder import RAW

Place = tuple[str, str]  # the job's folder, and the file in it


def own_digests(folder: Path) -> Iterator[tuple[Place, str]]:
    """Yield each output of a run that no second measurement writes alike, with its SHA-256.

    What cannot be read is passed over: its reader says so.
    """
    for record in sorted((folder / RAW).glob("*/job.json")):
        job = record.parent
        if job.is_symlink():
            continue
        seen: set[str] = set()
        for output in journal(job, []):
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


def copies(folder: Path) -> dict[Place, str]:
    """Return why outputs are no evidence: those that are another one of the run to the byte, and that one."""
    of: dict[str, list[Place]] = {}
    for place, digest in own_digests(folder):
        of.setdefault(digest, []).append(place)
    return {
        place: f"{place[1]} is to the byte {'/'.join(next(p for p in places if p != place))}: "
        "nobody can tell which of them was measured"
        for places in of.values()
        if len(places) > 1
        for place in places
    }
