"""NVIDIA's Multi-Process Service for nodes that share a GPU: without it they take turns of milliseconds."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from lab import processes
from lab.errors import LabError
from lab.paths import LabPaths
from lab.processes import Process

# Where the nodes find it, in the shared folder.
FOLDER = ".mps"
_CONTROL = "nvidia-cuda-mps-control"
_PATIENCE_S = 20.0


def program() -> str:
    """The service's control program.

    Raises:
        LabError: the host has none.
    """
    found = shutil.which(_CONTROL)
    if found is None:
        raise LabError(
            f"nodes that share a GPU need {_CONTROL}", fix="it is part of the driver: put it on the PATH"
        )
    return found


def log_of(paths: LabPaths) -> Path:
    """Where the control program writes what it says."""
    return paths.run / "mps.log"


def start(folder: Path, log: Path) -> Process:
    """Start the service on the host, where every machine's processes have numbers of their own.

    No node counts it among the processes on its GPU.
    """
    folder.mkdir(exist_ok=True)
    names = [f"CUDA_MPS_{kind}_DIRECTORY={folder}" for kind in ("PIPE", "LOG")]
    return processes.start(["env", *names, program(), "-f"], log)


def wait(control: Process, folder: Path, log: Path) -> None:
    """Wait until it answers.

    Raises:
        LabError: it ended, or did not answer in time.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not (folder / "control").exists():
        if not control.alive() or time.monotonic() > deadline:
            raise LabError("NVIDIA's Multi-Process Service did not start", fix=f"see {log} and {folder}")
        time.sleep(0.05)


def end(control: Process | None, log: Path) -> list[Process]:
    """End the service, whose clients are gone, and its server, which is its child; what would not go."""
    if control is None:
        return []
    both = [control, processes.child_of(control)]
    left = processes.end([process for process in both if process is not None])
    log.unlink(missing_ok=True)
    return left
