"""Run one command, keep what it prints, and note which cell it measures.

    python -m shakedown.onnode.output FOLDER TOOL TEST NODE,NODE... -- COMMAND...

Standard output goes to FOLDER/TEST.txt, standard error to FOLDER/TEST.err, and one line to
FOLDER/outputs.jsonl. The exit status is the command's. Runs on the first node of the job, around `srun`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shakedown.onnode.journal import Clock, Journal, failure
from shakedown.onnode.standing import WITH_SLURM


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
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        # Slurm ends a job with SIGTERM to this process: pass it on, and still write the record.
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        code = child.wait()
    problem = None
    if code != 0:
        name = command[len(WITH_SLURM)] if tuple(command[: len(WITH_SLURM)]) == WITH_SLURM else command[0]
        words = (folder / f"{test}.err").read_text(encoding="utf-8", errors="replace")
        problem = failure(name, code, words, said())
    Journal(folder).add(tool, test, f"{test}.txt", nodes, clock, code if code >= 0 else None, problem)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
