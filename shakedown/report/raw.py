"""Excerpts of raw tool output for the page, and whether a path may be read and linked at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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


def inside(run: Path, path: str) -> Path | None:
    """Return the file that a run names, or None if it lies outside the run folder (`..`, links, absolute)."""
    root = run.resolve()
    try:
        file = (root / path).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    return file if file.is_relative_to(root) and file != root else None


def excerpt(run: Path, path: str) -> Excerpt:
    """Return the start and the end of a raw output, never more than `HEAD_BYTES + TAIL_BYTES`."""
    file = inside(run, path)
    if file is None:
        return Excerpt(path, "", "This path leaves the run folder; it was not read.", readable=False)
    try:
        if not file.is_file():
            return Excerpt(path, "", "This file is not in the run folder.", readable=False)
        with file.open("rb") as stream:
            size = file.stat().st_size
            head = stream.read(HEAD_BYTES + TAIL_BYTES)
            if size <= len(head):
                return Excerpt(path, head.decode(errors="replace"), "", readable=True)
            stream.seek(size - TAIL_BYTES)
            tail = stream.read(TAIL_BYTES)
    except OSError as error:
        return Excerpt(path, "", f"This file could not be read: {error.strerror}.", readable=False)
    # Whole lines only: half a number at the cut would be another number.
    start = head[:HEAD_BYTES].rpartition(b"\n")[0] or head[:HEAD_BYTES]
    end = tail.partition(b"\n")[2] or tail
    left_out = size - len(start) - len(end)
    joined = f"{start.decode(errors='replace')}\n\n[… {left_out:,} bytes left out …]\n\n{end.decode(errors='replace')}"
    return Excerpt(path, joined, f"{left_out:,} of {size:,} bytes are left out here.", readable=True)


def excerpts(run: Path, paths: Iterable[str], budget: int = BUDGET_BYTES) -> dict[str, Excerpt]:
    """Return excerpts by path, in order, until the budget is spent; later paths are linked but not shown."""
    found: dict[str, Excerpt] = {}
    for path in paths:
        if budget <= 0:
            found[path] = Excerpt(
                path, "", "Not embedded, to keep this page small.", readable=inside(run, path) is not None
            )
            continue
        found[path] = excerpt(run, path)
        budget -= len(found[path].text)
    return found
