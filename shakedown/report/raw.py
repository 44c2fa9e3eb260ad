"""Excerpts of raw tool output for the page."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shakedown.records.reading import open_plain

HEAD_BYTES = 2_000
TAIL_BYTES = 6_000  # tools print their results and their last words at the end
BUDGET_BYTES = 400_000


@dataclass(frozen=True)
class Excerpt:
    """Part of a raw output. `note` says what is missing; `text` is outside text and must be escaped."""

    path: str
    text: str
    note: str
    readable: bool


def excerpt(run: Path, path: str) -> Excerpt:
    """Return the start and the end of a raw output, never more than `HEAD_BYTES + TAIL_BYTES`.

    That the path stays inside the run folder was checked when the line that names it was read (`runs.Run`).
    """
    if not os.path.lexists(run / path):
        return Excerpt(path, "", "This file is not in the run folder.", readable=False)
    with open_plain(run / path) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(HEAD_BYTES + TAIL_BYTES)
        if size <= len(head):
            return Excerpt(path, head.decode(errors="replace"), "", readable=True)
        stream.seek(size - TAIL_BYTES)
        tail = stream.read(TAIL_BYTES)
    # Whole lines only: half a number at the cut would be another number.
    start = head[:HEAD_BYTES].rpartition(b"\n")[0] or head[:HEAD_BYTES]
    end = tail.partition(b"\n")[2] or tail
    left_out = size - len(start) - len(end)
    cut = f"\n\n[… {left_out:,} bytes left out …]\n\n"
    joined = start.decode(errors="replace") + cut + end.decode(errors="replace")
    return Excerpt(path, joined, f"{left_out:,} of {size:,} bytes are left out here.", readable=True)


def excerpts(run: Path, paths: Iterable[str], budget: int = BUDGET_BYTES) -> dict[str, Excerpt]:
    """Return excerpts by path, in order, until the budget is spent; later paths are linked but not shown."""
    found: dict[str, Excerpt] = {}
    for path in paths:
        if budget <= 0:
            found[path] = Excerpt(path, "", "Not embedded, to keep this page small.", readable=True)
            continue
        found[path] = excerpt(run, path)
        budget -= len(found[path].text)
    return found
