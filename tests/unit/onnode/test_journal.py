"""What a step's end is put down to, from what srun wrote."""

import sys

import pytest

from shakedown.onnode.journal import first_killed, watched

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
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
    ],
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
