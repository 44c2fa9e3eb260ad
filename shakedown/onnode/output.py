"""Run one command, keep what it prints, and note which cell it measures.

    python -m shakedown.onnode.output FOLDER TOOL TEST NODE,NODE... -- COMMAND...

Standard output goes to FOLDER/TEST.txt, standard error to FOLDER/TEST.err, and one line to
FOLDER/outputs.jsonl. The exit status is the command's. Runs on the first node of the job, around `srun`.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shakedown.onnode.journal import Clock, Journal
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
        how = f"exit status {code}" if code > 0 else f"signal {-code}"
        tail = _telling((folder / f"{test}.err").read_text(encoding="utf-8", errors="replace").strip())
        name = command[len(WITH_SLURM)] if tuple(command[: len(WITH_SLURM)]) == WITH_SLURM else command[0]
        words = ": ".join(part for part in (name, how, said(), tail) if part)
        problem = {"kind": "killed" if code < 0 else "other", "message": words}
    Journal(folder).add(tool, test, f"{test}.txt", nodes, clock, code if code >= 0 else None, problem)
    return code if code >= 0 else 128 - code


# What says nothing of the cause: Open MPI on its layers, as we ask it to, Python on its way to an error, and
# what Slurm says of a step that it ends because of it.
_CHATTER = re.compile(
    r"\[[^]]+\] (?:mca: base: |select|selected )|Traceback|  File |    |-{70,}\Z"
    r"|srun: (?:cluster configuration lacks|First task exited|StepId=|launch/slurm: |Job step aborted)"
    r"|srun: error: \S+ tasks? [0-9,-]+: (?:Killed|Term)|slurmstepd\S* error: \*\*\* STEP "
)


def _telling(text: str) -> str:
    """Return the first and the last lines that tell of a cause: whole ones, 250 characters of each."""
    lines = [line for line in text.splitlines() if line.strip() and not _CHATTER.match(line)]
    told = "\n".join(lines or text.splitlines())
    if len(told) <= 500:
        return told
    first, end = told[:250].rpartition("\n")[0] or told[:250], told[-250:]
    return f"{first}\n...\n{end.partition(chr(10))[2] or end}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
