"""Measure the memory bandwidth of every NUMA node of this node, one after the other.

    srun --ntasks-per-node=1 python -m shakedown.benchmarks.stream.job FOLDER

FOLDER/spec.json is the order (options.py). Without a program of the site's own, ours is built here first.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from shakedown.onnode.journal import Clock, Journal, job, watched
from shakedown.onnode.software import enter, ordered
from shakedown.records.reading import ExitStatus

_NODES = Path("/sys/devices/system/node")
_SOURCE = Path(__file__).with_name("stream.c")
_BUILD_S = 120.0


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Measure this node."""
    # Not among the outputs: a program is no evidence.
    with tempfile.TemporaryDirectory() as built:
        return _measure(folder, Path(built), spec, _NODES)


def _measure(folder: Path, built: Path, spec: dict[str, Any], nodes: Path) -> int:
    node, good = os.environ["SLURMD_NODENAME"], True
    journal = Journal(folder, node)
    command, problem = _program(folder, built / "stream", node, spec)
    found = cpus_of_numa_nodes(nodes)
    if problem is None and sorted(found) != list(range(spec["numa_nodes"])):
        has = f"NUMA nodes with CPUs are {', '.join(map(str, sorted(found))) or 'none'}"
        problem = {"kind": "setup", "message": f"{has}; {spec['numa_nodes']} were planned"}
    for numa in range(spec["numa_nodes"]):
        name, clock, code, why = f"stream.{node}.numa{numa}.txt", Clock(), None, problem
        out = folder / name
        if why is None:
            # CPUs of one NUMA node only: memory is taken where it is first written.
            bound = ["taskset", "--cpu-list", found[numa], *command]
            code, why = watched(
                bound,
                out,
                out.with_suffix(".err"),
                timeout_s=spec["timeout_s"],
                variables={"OMP_PROC_BIND": "true"},
            )
        else:
            out.write_bytes(b"")
        good &= why is None
        journal.add("stream", "stream", name, [node], clock, code, why, params={"numa": numa})
    return ExitStatus.PASS if good else ExitStatus.INCOMPLETE


def cpus_of_numa_nodes(nodes: Path) -> dict[int, str]:
    """Return the CPU list of every NUMA node that has CPUs; memory without CPUs is not measured."""
    found = {}
    for folder in nodes.glob("node[0-9]*"):
        cpus = (folder / "cpulist").read_text(encoding="ascii").strip()
        if cpus:
            found[int(folder.name.removeprefix("node"))] = cpus
    return found


def _program(
    folder: Path, program: Path, node: str, spec: dict[str, Any]
) -> tuple[list[str], dict[str, str] | None]:
    """Return the command that measures, and why there is none."""
    if "stream" in ordered(folder):
        ready = enter(folder, "stream")
        return [*ready.prefix, ready.program or "stream"], ready.problem
    compiler = shutil.which(spec["compiler"])
    if compiler is None:
        fix = "install a C compiler, or say where yours is in software.stream"
        return [], {"kind": "missing-tool", "message": f"{spec['compiler']} is not on {node}: {fix}"}
    build = [compiler, "-O3", "-march=native", "-fopenmp", "-o", str(program), str(_SOURCE), "-lm"]
    log = folder / f"build.{node}.txt"
    _, problem = watched(build, log, log.with_suffix(".err"), timeout_s=_BUILD_S)
    return [str(program), str(spec["array_mib"] << 17), str(spec["times"])], problem


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
