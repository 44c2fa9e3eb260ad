"""What is known of a running lab, as one JSON file that is replaced whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import statefile
from lab.processes import Process

SCHEMA = 1


@dataclass
class Guest:
    """One machine: its QEMU and the host port that leads to its SSH server."""

    process: Process
    ssh_port: int


@dataclass
class State:
    """A lab.  ``ready`` is false until every machine answered over SSH."""

    name: str
    nodes: int
    image: str
    accelerator: str
    hub: Process | None = None
    guests: dict[str, Guest] = field(default_factory=dict)
    # Faults in force, "<node>" or "<node> <rail>" to a description; and per snapshot those it was saved with.
    faults: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, dict[str, str]] = field(default_factory=dict)
    ready: bool = False
    # Whose cluster it plays: one of lab.image.SITES.
    site: str = "own"

    def processes(self) -> list[Process]:
        """Every QEMU of the lab, the management LAN's too."""
        return [guest.process for guest in self.guests.values()] + ([self.hub] if self.hub else [])

    def save(self, path: Path) -> None:
        """Write the file aside, then rename it: a reader sees the old or the new state."""
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "nodes": self.nodes,
            "image": self.image,
            "accelerator": self.accelerator,
            "site": self.site,
            "hub": _process_json(self.hub) if self.hub else None,
            "guests": {
                name: {**_process_json(guest.process), "ssh_port": guest.ssh_port}
                for name, guest in self.guests.items()
            },
            "faults": self.faults,
            "snapshots": self.snapshots,
            "ready": self.ready,
        }
        statefile.write(path, document)


def _process_json(process: Process) -> dict[str, int]:
    return {"pid": process.pid, "started": process.started}


def load(path: Path) -> State | None:
    """The state in ``path``, None when there is none, :class:`LabError` when it is not one of ours."""
    return statefile.read(
        path,
        _parse,
        schema=SCHEMA,
        what=f"lab state of schema {SCHEMA}",
        fix="end its qemu processes by hand and remove the file",
    )


def _parse(document: Mapping[str, Any]) -> State:
    return State(
        name=str(document["name"]),
        nodes=int(document["nodes"]),
        image=str(document["image"]),
        accelerator=str(document["accelerator"]),
        site=str(document.get("site", "own")),
        hub=_process(document["hub"]) if document["hub"] else None,
        guests={
            str(name): Guest(_process(entry), int(entry["ssh_port"]))
            for name, entry in document["guests"].items()
        },
        faults=_strings(document["faults"]),
        snapshots={str(tag): _strings(faults) for tag, faults in document["snapshots"].items()},
        ready=bool(document["ready"]),
    )


def _process(entry: Mapping[str, Any]) -> Process:
    return Process(int(entry["pid"]), int(entry["started"]))


def _strings(entry: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in entry.items()}
