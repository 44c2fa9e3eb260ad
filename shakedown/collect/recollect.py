"""Whether a run's results are what its raw files give: results.jsonl is a copy that anyone can edit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from shakedown.plan.jobs import Jobs
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_bytes, read_record
from shakedown.records.wording import count
from shakedown.run.folder import COUNTERS, JOBS, RAW, RESULTS, lines_of


def has_jobs(folder: Path) -> bool:
    """Return whether a run has jobs. One without (a simulation, a case written by hand) has no raw files."""
    return (folder / JOBS).exists() and bool(read_record(folder / JOBS, Jobs).jobs)


def uncollected(folder: Path) -> tuple[str, str] | None:
    """Return the first of results and counters that is not what the raw files give, and how it differs.

    A run without jobs has no source but its results. Raises BadInput as `gather` does.
    """
    if not has_jobs(folder):
        return None
    for name, records in _recomputed(folder):
        found = difference(read_bytes(folder / name), records)
        if found:
            return name, found
    return None


def hold_against_raw(folder: Path) -> str:
    """Hold a run's results against its raw files; return a notice where either is missing.

    Raises:
        BadInput: they differ, or the raw files cannot be read.
    """
    if not (folder / RESULTS).exists():
        # Nothing was collected, so nothing can pass.
        left = sum(1 for _ in (folder / RAW).glob("*/job.json"))
        return (
            f"the raw files of {count(left, 'job')} were not collected: run shakedown collect {folder}"
            if left
            else ""
        )
    if not has_jobs(folder) or not any((folder / RAW).glob("*/job.json")):
        return f"{RESULTS} was judged as it stands: this run has no jobs' raw files to recompute it from"
    for name, records in _recomputed(folder):
        recorded = read_bytes(folder / name) if (folder / name).exists() else b""
        if recorded != records:
            pairs = zip_longest(recorded.splitlines(), records.splitlines())
            differing = sum(a != b for a, b in pairs)
            raise BadInput(
                f"differs from the raw files in {count(differing, 'line')}, first: "
                f"{difference(recorded, records)}",
                fix=f"run shakedown collect {folder}",
                file=folder / name,
            )
    return ""


def _recomputed(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield results and counters, each by its file's name, as the raw files give them."""
    # For cost: it brings all benchmarks along, which a run without raw files need not wait for.
    from shakedown.collect.run import gather

    measurements, counters = gather(folder)
    yield RESULTS, lines_of(measurements)
    yield COUNTERS, lines_of(counters)


def difference(recorded: bytes, expected: bytes) -> str:
    """Name the first line in which a recorded file differs from the recomputed one."""
    if recorded == expected:
        return ""
    old, new = recorded.splitlines(), expected.splitlines()
    for number, (a, b) in enumerate(zip(old, new, strict=False), start=1):
        if a != b:
            # Lines of JSON are long and differ somewhere: show that place.
            at = max(0, next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0) - 40)
            at = at if at > 40 else 0
            was, now = (x[at:].strip().decode(errors="replace")[:120] for x in (a, b))
            return f"line {number} says {was}, recomputed {now}"
    return f"{len(old)} lines, recomputed {len(new)}"
