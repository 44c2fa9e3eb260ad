"""The folder of one job, `raw/NAME.aN`: what its programs left beside each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from shakedown.records.errors import BadInput
from shakedown.records.reading import read_evidence
from shakedown.run.nic_counters import NodeCounters, read_before_and_after

T = TypeVar("T")


@dataclass(frozen=True)
class JobFolder:
    """A job's folder, read file by file."""

    path: Path
    _known: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, read: Callable[[Path, str], T], name: str) -> T:
        """Return `read(folder, name)`: a file that each of many outputs is held against is read once."""
        return self.kept((read, name), lambda: read(self.path, name))

    def kept(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what was made under this key, made now if it is the first time."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    def holds(self, name: str) -> bool:
        """Return whether there is something of that name."""
        return os.path.lexists(self.path / name)

    def text(self, name: str) -> str:
        """Return a file's text. Raises BadInput for what is no plain file of UTF-8."""
        file = self.path / name
        if file.name != name:
            raise BadInput(f"{name[:80]!r} is no name of a file in here", file=self.path)
        try:
            return read_evidence(file).decode("utf-8")
        except UnicodeDecodeError:
            raise BadInput("is not text", file=file) from None

    def counters(self, node: str) -> tuple[NodeCounters, NodeCounters]:
        """Return what a node's NICs counted before and after the job. Raises BadInput."""
        return read_before_and_after(self.path, node)
