"""Find and run every program of the site's software on this node, one file for each.

A probe says how a program is asked and where its version stands. Standard library only."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.onnode.counters import unwritable
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.noted import node_name
from shakedown.onnode.software import ordered, unusable, use
from shakedown.records.program import own_python

_PROBE_S = 180.0  # PyTorch's import takes a minute on a cold parallel file system
# The path and the shared libraries of a program, each resolved to its file (libnccl.so.2 to libnccl.so.2.21).
_LINKS = """
path=$(command -v "$0") || exit 69
echo "program $path"
ldd "$path" 2>/dev/null | while read -r name arrow file rest; do
    [ "$arrow" != "=>" ] || echo "library $name $(readlink -f "$file" 2>/dev/null || echo "$file")"
done
"""
_TORCH = """
import json, sys
import torch
n = torch.cuda.nccl.version() if torch.version.cuda else ()
seen = {"version": torch.__version__, "cuda": torch.version.cuda or "none"}
seen["nccl"] = ".".join(map(str, n)) or "none"
if sys.argv[1:]:
    import mlperf_loadgen
    seen["loadgen"] = getattr(mlperf_loadgen, "__version__", "there")
for name in sorted(seen):
    print("part", name, seen[name])
"""
# What of a program's libraries tells with what it was built.
_TOLD = re.compile(r"lib(cuda|cudart|nccl|mpi|open-pal|ucp|pmix|ibverbs|mlx5|efa|numa|gomp)\.so")


@dataclass(frozen=True)
class VersionProbe:
    """How one software is looked at."""

    program: str  # the program whose libraries are told; empty: an interpreter is asked instead
    version: tuple[tuple[str, ...], str] = ((), "")  # what prints its version, and the pattern of it
    # Further commands, each with the pattern of its version, by the name of the part.
    parts: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    works: str = ""  # what the first command must print to have run


PROBES = {
    "perftest": VersionProbe(
        "ib_write_bw", (("ib_write_bw", "--version"), r"[Vv]ersion:?\s*([0-9][0-9A-Za-z.+-]*)")
    ),
    "openmpi": VersionProbe(
        "ompi_info",
        (("ompi_info", "--version"), r"v([0-9]+\.[0-9][0-9A-Za-z.]*)"),
        (
            ("ucx", ("ompi_info", "--parsable", "--param", "pml", "ucx"), r"mca:pml:(ucx):version"),
            ("pmix", ("ompi_info", "--parsable", "--all"), r"mca:pmix:([a-z0-9]+):version"),
        ),
    ),
    "nccl_tests": VersionProbe("all_reduce_perf", works="USAGE", version=(("all_reduce_perf", "--help"), "")),
    "nvbandwidth": VersionProbe(
        "nvbandwidth", (("nvbandwidth", "--help"), r"[Vv]ersion:?\s*v?([0-9][0-9.]*)"), works="nvbandwidth"
    ),
    "stream": VersionProbe("stream"),
    "fio": VersionProbe("fio", (("fio", "--version"), r"fio-([0-9][0-9A-Za-z.-]*)")),
    "pytorch": VersionProbe(""),
    "loadgen": VersionProbe(""),
}


def look(name: str, enter: Sequence[str], interpreter: str, program: str = "") -> dict[str, str]:
    """Return what one software says of itself: `version`, and its parts and libraries by name.

    Args:
        name: which software.
        enter: words that enter its container.
        interpreter: of PyTorch.
        program: the program where the site names it itself.

    Raises LookupError: it is not there or does not run, in a sentence.
    """
    probe = PROBES[name]
    if not probe.program:
        return _python(name, enter, interpreter)
    asked = program or probe.program
    found = {"version": "not told"}
    code, said = _run([*enter, "sh", "-c", _LINKS, asked])
    if code != 0:
        raise LookupError(f"there is no {asked}" if code == 69 else f"{asked}: {_last(said)}")
    for line in said.splitlines():
        kind, _, rest = line.partition(" ")
        library, _, file = rest.partition(" ")
        if kind == "program":
            found["program"] = rest
        elif kind == "library" and "not found" in f"{rest} ":
            raise LookupError(f"{asked} lacks the library {library}")
        elif kind == "library" and _TOLD.match(library):
            found[library.partition(".so")[0]] = file
    if probe.version[0]:
        words = [program or word if word == probe.program else word for word in probe.version[0]]
        code, said = _run([*enter, *words])
        match = re.search(probe.version[1], said) if probe.version[1] else None
        if match:
            found["version"] = match[1]
        elif code in (126, 127) or ((probe.works or not code) and probe.works not in said):
            raise LookupError(f"{asked} does not run: {_last(said)}")
        elif not probe.works:
            raise LookupError(f"{asked} told no version: {_last(said)}")
    for part, words_of, pattern in probe.parts:
        matches = re.findall(pattern, _run([*enter, *words_of])[1])
        # OpenMPI 5 has no component for PMIx: it is linked to the library, which stands for it.
        library = found.get(f"lib{part}", "none").rpartition("/")[2]
        found[part] = ", ".join(dict.fromkeys(matches)) or library
    return found


def _python(name: str, enter: Sequence[str], interpreter: str) -> dict[str, str]:
    code, said = _run([*enter, interpreter, "-c", _TORCH, *(["loadgen"] if name == "loadgen" else [])])
    if code != 0:
        raise LookupError(f"{interpreter} cannot run PyTorch: {_last(said)}")
    words = (line.split(" ", 2) for line in said.splitlines() if line.startswith("part "))
    found = {part[1]: part[2] for part in words if len(part) == 3}
    if "version" not in found:
        raise LookupError(f"{interpreter} told no version of PyTorch: {_last(said)}")
    return {"program": interpreter, **found}


def _run(words: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end within {_PROBE_S:g} s"
    except OSError as error:
        return 127, f"{words[0]}: {error.strerror}"
    return done.returncode, done.stdout.decode(errors="replace")


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


#     srun --ntasks-per-node=1 python -m shakedown.benchmarks.software.job FOLDER
#
# FOLDER/software.json says where each comes from. What one software does to the environment must not reach
# the next, so each is looked at by a process of its own.

_SELF = "shakedown.benchmarks.software.job"


def main(argv: list[str]) -> int:
    """Look at every software of this node."""
    if len(argv) not in (2, 3):
        print("usage: python -m shakedown.benchmarks.software.job FOLDER [NAME]", file=sys.stderr)
        return 2
    folder, node = Path(argv[1]), node_name()
    if len(argv) == 3:
        return _one(folder, argv[2], folder / f"software.{node}.{argv[2]}.json")
    journal = Journal(folder, node)
    for name in ordered(folder):
        file, clock = f"software.{node}.{name}.json", Clock()
        status = subprocess.run([*own_python(), _SELF, str(folder), name], check=False).returncode
        try:
            document: dict[str, Any] = json.loads((folder / file).read_bytes())
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                return unwritable(node, folder, error)
            document = {"problem": {"kind": "other", "message": f"{node}: {name}: status {status}"}}
            (folder / file).write_text(json.dumps(document) + "\n", encoding="utf-8")
        journal.add(
            "software", "software", file, [node], clock, 0, document.get("problem"), params={"program": name}
        )
    return 0


def _one(folder: Path, name: str, file: Path) -> int:
    """Write what one software says of itself."""
    document = look_at(folder, name, ordered(folder)[name])
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def look_at(folder: Path, name: str, source: dict[str, Any]) -> dict[str, Any]:
    """Return what one software says of itself, or its problem."""
    ready = use(source, name, folder)
    document: dict[str, Any] = {"schema": 1, "name": name, "from": source["from"]}
    if ready.problem:
        return {**document, "problem": ready.problem}
    try:
        return {**document, "found": look(name, ready.prefix, ready.interpreter, ready.program)}
    except LookupError as error:
        return {**document, "problem": unusable(name, source, str(error))}


if __name__ == "__main__":
    sys.exit(main(sys.argv))
