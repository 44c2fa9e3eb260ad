"""Run one MPI benchmark inside a Slurm job, and keep what shows which way its messages went.

    python -m shakedown.benchmarks.mpi.job FOLDER TEST NODE,NODE... -- srun ...

On the first node of the job, around `srun`. Beside TEST's own output (`shakedown.onnode.output`) it leaves
TEST_transport.log: UCX's log of every rank, which names the transport and device of every connection
(UCX_LOG_LEVEL=info, ucp_worker_print_used_tls in UCX's ucp_worker.c), and OpenMPI's word on which of its
messaging layers it chose (pml_base_verbose). Standard library only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from shakedown.onnode import tcp_paths
from shakedown.onnode.journal import Clock, Journal
from shakedown.onnode.output import kept
from shakedown.records.reading import ExitStatus

_UCX_LOGS = "ucx.*.log"  # one file for each rank; UCX puts in its host's name and process number
# UCX's lines of these levels say why it could not do what it was told.
_COMPLAINT = re.compile(
    r"\bUCX\s+(ERROR|FATAL|WARN)\s+(?P<text>.*)|(?P<assertion>Assertion `.{0,500}' failed.*)"
)
# OpenMPI on its messaging layer: "select: component ucx selected", "selected ucx best priority 51".
_LAYER = re.compile(r"\] (?:select: component \w+ selected|selected \w+ best priority)")


def variables(folder: Path) -> Mapping[str, str]:
    """Return the environment in which UCX and OpenMPI say what they choose; UCX's log goes to `folder`."""
    return {
        "UCX_LOG_LEVEL": "info",
        "UCX_LOG_FILE": f"{folder}/ucx.%h.%p.log",
        "OMPI_MCA_pml_base_verbose": "10",
    }


def complaints(folder: Path) -> str:
    """Return why UCX could not go on, by its own words; empty if it did not complain."""
    said: dict[str, None] = {}
    for log in sorted(folder.glob(_UCX_LOGS)):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if found := _COMPLAINT.search(line):
                said[(found["text"] or found["assertion"]).strip()[:200]] = None
    return f"UCX says: {'; '.join(list(said)[:3])}" if said else ""


def join_logs(folder: Path, test: str) -> str:
    """Make one file of all ranks' logs, and return its name."""
    name = f"{test}_transport.log"
    with (folder / name).open("wb") as joined:
        for log in sorted(folder.glob(_UCX_LOGS)):
            joined.write(log.read_bytes().rstrip(b"\n") + b"\n")
            log.unlink()
        error = folder / f"{test}.err"
        for line in error.read_text(encoding="utf-8", errors="replace").splitlines():
            if _LAYER.search(line):
                joined.write(line.encode() + b"\n")
    return name


def main(argv: list[str]) -> int:
    """Run the benchmark; returns its exit status."""
    if len(argv) < 5 or argv[3] != "--":
        print(
            "usage: python -m shakedown.benchmarks.mpi.job FOLDER TEST NODES -- COMMAND...", file=sys.stderr
        )
        return 2
    folder, test, nodes, command = Path(argv[0]), argv[1], argv[2].split(","), argv[4:]
    clock = Clock()
    if problem := tcp_paths.look(folder, json.loads((folder / "spec.json").read_bytes())):
        for tool, name in (("mpi", f"{test}.txt"), ("mpi-log", f"{test}_transport.log")):
            (folder / name).touch()
            Journal(folder).add(
                tool, test if tool == "mpi" else f"{test}_transport", name, nodes, clock, None, problem
            )
        return ExitStatus.INCOMPLETE
    code = kept(folder, "mpi", test, nodes, command, lambda: complaints(folder))
    why = complaints(folder)
    Journal(folder).add(
        "mpi-log",
        f"{test}_transport",
        join_logs(folder, test),
        nodes,
        clock,
        code if code < 128 else None,
        None if code == 0 else {"kind": "other", "message": why or f"{test} ended with {code}"},
    )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
