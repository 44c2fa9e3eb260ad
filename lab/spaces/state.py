"""What is known of a lab of namespaces, as one JSON file that is replaced whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import statefile
from lab.paths import LabPaths
from lab.processes import Process

SCHEMA = 1


@dataclass
class State:
    """A lab.  ``gpus`` and ``cpus`` hold each compute node's own, by number; no CPUs: all of the host's."""

    name: str
    gpus: dict[str, list[int]]
    cpus: dict[str, list[int]]
    spaces: dict[str, Process] = field(default_factory=dict)
    # Faults in force, "<node>" or "<node> <rail>" to a description.
    faults: dict[str, str] = field(default_factory=dict)
    verbs: bool = False
    ready: bool = False
    mps: Process | None = None  # what lets nodes that share a GPU use it at once

    @property
    def nodes(self) -> int:
        """How many compute nodes there are."""
        return len(self.gpus)

    @property
    def shared(self) -> list[int]:
        """The GPUs that more than one node has."""
        every = [minor for mine in self.gpus.values() for minor in mine]
        return sorted({minor for minor in every if every.count(minor) > 1})

    def save(self, path: Path) -> None:
        """Write the file aside, then rename it: a reader sees the old or the new state."""
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "gpus": self.gpus,
            "cpus": self.cpus,
            "spaces": {name: {"pid": p.pid, "started": p.started} for name, p in self.spaces.items()},
            "faults": self.faults,
            "verbs": self.verbs,
            "ready": self.ready,
            "mps": {"pid": self.mps.pid, "started": self.mps.started} if self.mps else None,
        }
        statefile.write(path, document)


def path_of(paths: LabPaths) -> Path:
    """Where a lab of namespaces keeps its state."""
    return paths.run / "spaces.json"


def load(path: Path) -> State | None:
    """The state in ``path``, None when there is none, :class:`LabError` when it is not one of ours."""
    return statefile.read(
        path,
        _parse,
        schema=SCHEMA,
        what=f"state of a lab of namespaces, schema {SCHEMA}",
        fix="end its processes by hand and remove the file",
    )


def _parse(document: Mapping[str, Any]) -> State:
    return State(
        name=str(document["name"]),
        gpus={str(node): [int(n) for n in numbers] for node, numbers in document["gpus"].items()},
        cpus={str(node): [int(n) for n in numbers] for node, numbers in document["cpus"].items()},
        spaces={
            str(name): Process(int(entry["pid"]), int(entry["started"]))
            for name, entry in document["spaces"].items()
        },
        faults={str(key): str(value) for key, value in document["faults"].items()},
        verbs=bool(document["verbs"]),
        ready=bool(document["ready"]),
        mps=Process(int(mps["pid"]), int(mps["started"])) if (mps := document.get("mps")) else None,
    )
