"""What a run's raw files say of versions: of PyTorch, CUDA and NCCL on nodes, and of switches' systems."""

from __future__ import annotations

import json
import re
from pathlib import Path

from shakedown.benchmarks.software.found import last_attempt
from shakedown.nos.readings import load_reading
from shakedown.nos.registry import known
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_evidence
from shakedown.run.folder import RAW

# What a profile's `software` may name: of which of the site's programs, and which part of what it tells.
OF_PROGRAMS = {
    "cuda": (("pytorch", "cuda"),),
    "nccl": (("nccl_tests", "libnccl"), ("pytorch", "nccl")),
    "pytorch": (("pytorch", "version"),),
}
OF_SWITCHES = "switch_os"
_SWITCHES = "switches.config"
# NVIDIA's containers name themselves in PyTorch's version: 2.3.0a0+40ec155e58.nv24.03 is NGC 24.03.
_NGC = re.compile(r"\+[^+\n]*\bnv([0-9]{2}\.[0-9]{2})\b")
_LIBRARY = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)\Z")


def of_programs(folder: Path, node: str, what: str) -> list[str]:
    """Return the versions that a node's programs told of one part, such as `nccl`; none: nothing is known."""
    last = last_attempt(folder)
    told = []
    for program, part in OF_PROGRAMS[what] if last else ():
        assert last is not None
        try:
            found = json.loads(read_evidence(last / f"software.{node}.{program}.json"))["found"][part]
        except (BadInput, OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(found, str) and (version := _version(part, found[:300])):
            told.append(version)
    return told


def _version(part: str, found: str) -> str:
    if part == "libnccl":  # the file that the loader would take
        library = _LIBRARY.search(found)
        return library[1] if library else ""
    container = _NGC.search(found) if part == "version" else None
    if found == "none":  # of a build without it
        return ""
    return f"NGC {container[1]} ({found})" if container else found


def of_switch(folder: Path, switch: str) -> str:
    """Return the version of a switch's system from the config stage's reading; empty: it was not read."""
    reading = folder / RAW / _SWITCHES / f"{switch}.after.json"
    try:
        read = load_reading(reading)
    except (BadInput, OSError):
        return ""
    version = known(read.nos).version
    return version({label: output.stdout for label, output in read.outputs.items()}) if version else ""
