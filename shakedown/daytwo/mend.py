"""Mending what a crash, a full disk or a bad disk left: a run's folder, a history, or a drain log.

Nothing is thrown away that holds something: what cannot be read is set aside under another name, and each
step is told in a line. What was measured is never changed.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from shakedown.daytwo.draining import broken_lines
from shakedown.daytwo.history.ingest import forget, ingest
from shakedown.daytwo.history.store import HistoryStore
from shakedown.records.reading import BadInput
from shakedown.records.writing import write_aside
from shakedown.run.folder import PLAN, SUMS, leftovers

BROKEN = ".broken"


def mend(
    path: Path,  # a run's folder, a history's, or a drain log
    runs: Path | None = None,  # where the runs lie that a history has lost and that are to be taken in again
) -> Iterator[str]:
    """Mend what lies at a path; yield what was done, a line each. Raises BadInput: it is none of these."""
    if (path / "store.json").is_file():
        yield from _history(path, runs)
    elif (path / PLAN).is_file():
        yield from _leftovers(path)
    elif path.is_file() and path.suffix == ".jsonl":
        yield from _drain_log(path)
    else:
        raise BadInput(
            "is nothing that can be mended", fix="name a run's folder, a history or a drain log", file=path
        )


def _leftovers(folder: Path) -> Iterator[str]:
    """Remove files that were never finished: their readers never saw them."""
    if (folder / SUMS).exists() and any(leftovers(folder)):
        raise BadInput(
            "holds half-written files and is sealed: nothing is removed from a sealed run",
            fix=f"remove its {SUMS} and {SUMS}.sig, mend it, and seal it anew",
            file=folder,
        )
    for path in list(leftovers(folder)):
        size = path.stat().st_size
        path.unlink()
        yield f"removed {path.relative_to(folder)}: {size} bytes of a file that was never finished"


def _history(root: Path, runs: Path | None) -> Iterator[str]:
    store = HistoryStore(root)
    with store.locked():
        yield from _leftovers(root)
        lost = [entry for name, entry in sorted(store.entries.items()) if not store.readable(name)]
        # What the ledger itself cannot say any more was taken in under its file's name.
        unread = [p for p in sorted((root / "ledger").glob("*.json")) if p.stem not in store.entries]
        for path in unread:
            path.rename(path.with_suffix(f".json{BROKEN}"))
            yield f"set aside ledger/{path.name}: it cannot be read"
        for entry in lost:
            for path in forget(store, entry.run):
                yield f"set aside {path.relative_to(root)}, with run {entry.run}: it cannot be read"
    times = {entry.run: datetime.fromisoformat(entry.time) for entry in lost}
    for name in dict.fromkeys([*times, *(path.stem for path in unread), *store.gone]):
        folder = runs / name if runs is not None else None
        if folder is None or not folder.is_dir():
            where = f"not in {runs}" if runs is not None else "say where the runs lie with --runs"
            yield f"run {name} must be taken in again ({where})"
            continue
        try:
            yield f"taken in again: {ingest(root, folder, now=datetime.now(UTC), at=times.get(name))}"
        except BadInput as refused:
            yield f"run {name} could not be taken in again: {refused}"


def _drain_log(log: Path) -> Iterator[str]:
    """Set lines aside that are no entries; the others stay as they are."""
    content = log.read_bytes()
    lines = content.split(b"\n")
    broken = broken_lines(content)
    if not broken:
        return
    kept = [line for number, line in enumerate(lines, start=1) if number not in broken]
    aside = log.with_name(log.name + BROKEN)
    with aside.open("ab") as file:
        file.write(b"".join(lines[number - 1] + b"\n" for number in sorted(broken)))
        file.flush()
        os.fsync(file.fileno())
    whole = b"".join(line + b"\n" for line in kept if line)
    write_aside(log, whole)
    for number in sorted(broken):
        yield f"line {number} of {log.name} is no entry, of a write that was cut off: moved to {aside.name}"
