"""Read the way to every GPU of this node from sysfs, while copies keep the links awake.

    srun python -m shakedown.benchmarks.interconnect.job FOLDER

A GPU at rest lowers the speed of its link, so the settings may name an interpreter with PyTorch, which copies
in the background while sysfs is read. Without one the document says `loaded: false`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shakedown.onnode.journal import Clock, Journal, job
from shakedown.onnode.noted import node_name
from shakedown.onnode.software import enter, ordered
from shakedown.onnode.topology_probe import registers
from shakedown.records.program import SOURCE, WORKLOADS, own_python
from shakedown.run.service import NODE, config_spaces

_READY_S = 120.0


@contextlib.contextmanager
def load(settings: dict[str, Any], folder: Path) -> Iterator[str]:
    """Copy in the background; yields why not, or nothing once copies are under way."""
    if "pytorch" not in ordered(folder):
        yield "no PyTorch in the plan (software.pytorch)"
        return
    ready = enter(folder, "pytorch", gpus=True)
    if ready.problem:
        yield ready.problem["message"]
        return
    where = os.pathsep.join([str(SOURCE), str(WORKLOADS), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    child = subprocess.Popen(
        [*ready.prefix, ready.interpreter, "-m", "loadgen_harness.copies", "--load", str(settings["gpus"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": where},
    )
    try:
        assert child.stdout is not None
        said = child.stdout.readline().strip()  # an end of file if it dies; Slurm's time limit if it hangs
        yield (
            ""
            if said == "copying"
            else f"the background copies did not start: {said or child.wait(_READY_S)}"
        )
    finally:
        child.kill()
        child.wait()


def topology() -> dict[str, Any]:
    """Return the probe's document."""
    done = subprocess.run(
        [*own_python(), "shakedown.onnode.topology_probe"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return with_registers(document)


def with_registers(document: dict[str, Any], service: str = NODE) -> dict[str, Any]:
    """Return the probe's document with the registers that only root may read, from the node's own service.

    Without them switches are told from ports by their number alone.
    """
    devices = document.get("devices", [])
    if any("port_type" not in device for device in devices):
        spaces = config_spaces(service)
        for device in devices:
            if "port_type" not in device:
                device.update(registers(spaces.get(device["bdf"], b"")))
    return document


@job
def main(folder: Path, settings: dict[str, Any]) -> int:
    """Write the document and its journal line."""
    clock, node = Clock(), node_name()
    document: dict[str, Any] = {}
    problem: dict[str, str] | None = None
    try:
        with load(settings, folder) as why_not:
            document = {"schema": 1, "loaded": not why_not, "why_not": why_not, "topology": topology()}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        problem = {"kind": "other", "message": f"sysfs was not read: {error}"[:1900]}
    (folder / "pcie_path.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    Journal(folder).add(
        "pcie-path", "pcie_path", "pcie_path.json", [node], clock, 1 if problem else 0, problem
    )
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
