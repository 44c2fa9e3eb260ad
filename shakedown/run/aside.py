"""What was made from a run's raw files, set aside when they can no longer be read: nothing stale may pass."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shakedown.run.folder import COUNTERS, RESULTS, VERDICT

# What judging makes of the results, the report's files included.
JUDGED = (VERDICT, "report.html", "report.md", "junit.xml", "metrics.prom")
COLLECTED = (RESULTS, COUNTERS, *JUDGED)


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Rename each of these files of a run that is there to `NAME.old`, over an older one of that name."""
    for name in names:
        path = folder / name
        if path.is_file() and not path.is_symlink():
            path.replace(path.with_name(f"{name}.old"))
