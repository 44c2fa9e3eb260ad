"""The folder of one job, `raw/NAME.aN`: what its programs left beside each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shakedown.records.errors import BadInput
from shakedown.records.reading import read_output
from shakedown.run.nic_counters import NodeCounters, read_before_and_after


@dataclass(frozen=True)
class JobFolder:
    """A job's folder, read file by file."""

    path: Path

    def holds(self, name: str) -> bool:
        """Return whether there is something of that name."""
        return os.path.lexists(self.path / name)

    def text(self, name: str) -> str:
        """Return a file's text. Raises BadInput for what is no plain file of UTF-8."""
        file = self.path / name
        if file.name != name:
            raise BadInput(f"{name[:80]!r} is no name of a file in here", file=self.path)
        try:
            return read_output(file).decode("utf-8")
        except UnicodeDecodeError:
            raise BadInput("is not text", file=file) from None

    def counters(self, node: str) -> tuple[NodeCounters, NodeCounters]:
        """Return what a node's NICs counted before and after the job. Raises BadInput."""
        return read_before_and_after(self.path, node)
