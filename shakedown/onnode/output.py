"""Run one command, keep what it prints, and note which cell it measures.

    python -m shakedown.onnode.output FOLDER TOOL TEST NODE,NODE... -- COMMAND...

Standard output goes to FOLDER/TEST.txt, standard error to FOLDER/TEST.err, and one line to
FOLDER/outputs.jsonl. The exit status is the command's. Runs on the first node of the job, around `srun`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from shakedown.onnode import standing
from shakedown.onnode.journal import Clock, Journal, failure
from shakedown.onnode.standing import WITH_SLURM

# Of a job's time, what is kept for the search where its one command hangs: a quarter, and no more than this.
_SEARCH_S, _SEARCH_SHARE = 300.0, 0.25
_END_S = 30.0  # to write the record and read the counters
# What UCX and OpenMPI write beside the output is of the run that is recorded.
_QUIET = {"UCX_LOG_LEVEL": "error", "UCX_LOG_FILE": "stderr", "OMPI_MCA_pml_base_verbose": "0"}


def main(argv: list[str]) -> int:
    """Run the command in `argv` and record it."""
    if len(argv) < 6 or argv[4] != "--":
        print(
            "usage: python -m shakedown.onnode.output FOLDER TOOL TEST NODES -- COMMAND...", file=sys.stderr
        )
        return 2
    return kept(Path(argv[0]), argv[1], argv[2], argv[3].split(","), argv[5:])


def kept(
    folder: Path, tool: str, test: str, nodes: list[str], command: list[str], said: Callable[[], str] = str
) -> int:
    """Run a command and record it; returns its exit status.

    `said`: after a failure, what libraries of the command wrote elsewhere. It leads the record's message.
    """
    clock = Clock()
    with (folder / f"{test}.txt").open("wb") as out, (folder / f"{test}.err").open("wb") as err:
        mark = {standing.MARK: str(folder / test)}
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **mark}
        )
        # Slurm ends a job with SIGTERM to this process: pass it on, and still write the record.
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        search_s = min(_SEARCH_S, _SEARCH_SHARE * (left_s := standing.budget_s(_END_S)))
        hung = ""
        try:
            code = child.wait(left_s - search_s if search_s else None)
        except subprocess.TimeoutExpired:
            hung = (
                f"no end within {left_s - search_s:.0f} s: {standing.ask(folder, nodes, str(folder / test))}"
            )
            code = standing.end(child)
    problem = None
    if hung:
        problem = {
            "kind": "killed",
            "message": f"{test}: hung, {hung}; {_searched(nodes, command, search_s)}"[:2000],
        }
    elif code != 0:
        name = command[len(WITH_SLURM)] if tuple(command[: len(WITH_SLURM)]) == WITH_SLURM else command[0]
        words = (folder / f"{test}.err").read_text(encoding="utf-8", errors="replace")
        problem = failure(name, code, words, said())
    ended = None if hung or code < 0 else code
    Journal(folder).add(tool, test, f"{test}.txt", nodes, clock, ended, problem)
    return 1 if hung else code if code >= 0 else 128 - code


def _searched(nodes: list[str], command: list[str], seconds: float) -> str:
    def ends(group: Sequence[str]) -> bool | None:
        return standing.ends_in_time(standing.on_nodes(command, group), _QUIET)

    return standing.search(nodes, ends, seconds) if "srun" in command else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
