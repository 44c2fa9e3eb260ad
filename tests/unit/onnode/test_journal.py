"""What a step's end is put down to, from what srun wrote."""

import json
import re
import sys
from pathlib import Path

import pytest

from shakedown.onnode.journal import first_killed, watched
from shakedown.onnode.output import kept
from shakedown.records.results import RunProblem
from tests.kit.cases import cases

# As srun of Slurm 22.05 wrote it when rank 1 of two was killed in the middle of an all-reduce.
KILLED = """\
srun: cluster configuration lacks support for cpu binding
srun: error: n2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=11.4
slurmstepd-n1: error: *** STEP 11.4 ON n1 CANCELLED AT 2026-11-24T16:39:44 ***
srun: error: n1: task 0: Terminated
srun: Force Terminated StepId=11.4
"""
# The same srun, when a watchdog had ended it.
ENDED = """\
srun: forcing job termination
slurmstepd-n1: error: *** STEP 9.4 ON n1 CANCELLED AT 2026-11-24T16:39:07 ***
srun: error: n2: task 1: Killed
"""


@cases(
    "words, said",
    (KILLED, "task 1 on n2 ended by a signal: Killed"),
    (
        "srun: error: gpu3: tasks 8-11: Segmentation fault (core dumped)\n",
        "tasks 8-11 on gpu3 ended by a signal: Segmentation fault (core dumped)",
    ),
    (ENDED, None),
    # The first one went by itself, and its own words say why.
    ("srun: error: n1: task 0: Exited with exit code 2\nsrun: error: n2: task 1: Killed\n", None),
    ("srun: error: n1: task 0: Terminated\n", None),
    ("", None),
)
def test_the_task_that_was_killed_first_is_named_and_no_other(words, said):
    """Catches: a killed rank without its node, or a healthy node named that srun itself had ended."""
    assert first_killed(words) == said


def test_a_killed_rank_leads_the_problem(tmp_path):
    """Catches: a table's heading told as the reason where a rank on one node was killed."""
    code = f"import sys; print('size count type'); sys.stderr.write({KILLED!r}); sys.exit(143)"
    status, problem = watched([sys.executable, "-c", code], tmp_path / "o", tmp_path / "e", timeout_s=30)
    assert status == 143
    assert problem is not None and problem["kind"] == "killed"
    assert problem["message"].endswith(": task 1 on n2 ended by a signal: Killed")


NOISE = "".join(f"[n1:{number:05d}] select: component ucx selected\\n" for number in range(60))


@cases(
    "said, told",
    (NOISE + "n2: cannot write: Read-only file system\\nsrun: First task exited 8s ago", 1),
    (NOISE + "srun: First task exited 8s ago", None),
    ("".join(f"n2: error {number} of a library\\n" for number in range(90)), None),
)
def test_a_failure_is_told_in_whole_lines_without_chatter(tmp_path, said, told):
    """Catches: a reason that begins within a word, or Open MPI's start for why a node could not write,
    by a program under the watchdog as by one without."""
    command = [sys.executable, "-c", f"import sys; sys.stderr.write('{said}'); sys.exit(3)"]
    assert kept(tmp_path, "mpi", "one", ["n1"], command) == 3
    record = json.loads((tmp_path / "outputs.jsonl").read_text())
    how, _, tail = record["problem"]["message"].partition("exit status 3: ")
    assert how
    lines = tail.splitlines()
    assert len(lines) == told or (told is None and len(lines) > 5)
    assert all(line.startswith(("[n1:000", "srun: ", "n2: ", "...")) for line in lines), lines
    assert watched(command, tmp_path / "o", tmp_path / "e", timeout_s=30)[1] == record["problem"]


def test_a_line_that_is_too_long_is_told_by_its_end(tmp_path):
    """Catches: a failure without a word because its only line did not fit."""
    said = "import sys; sys.stderr.write('x' * 900 + ' the end'); sys.exit(1)"
    assert kept(tmp_path, "mpi", "one", ["n1"], [sys.executable, "-c", said]) == 1
    message = json.loads((tmp_path / "outputs.jsonl").read_text())["problem"]["message"]
    assert message.endswith("xx the end")


SOURCE = Path(__file__).resolve().parents[3] / "shakedown"
# `{"kind": "busy", "message": ...}`, over one line or several.
_PROBLEM = re.compile(r'"kind": "([a-z-]+)",\s*"message"')
WRITTEN = sorted(
    (path.relative_to(SOURCE).as_posix(), kind)
    for path in SOURCE.rglob("*.py")
    for kind in set(_PROBLEM.findall(path.read_text(encoding="utf-8")))
)


@pytest.mark.parametrize(("program", "kind"), WRITTEN)
def test_a_problems_kind_is_one_that_is_read(program: str, kind: str) -> None:
    """Catches: a job's line that is refused as damaged, and with it what happened (`exit-status`)."""
    RunProblem.model_validate({"kind": kind, "message": program})


def test_programs_were_found() -> None:
    """Catches: a pattern that matches nothing any more, and so proves nothing."""
    assert len(WRITTEN) > 10
