"""A node whose part of a job failed is named by its own words, and undoes no other node's results."""

import json
from pathlib import Path

import pytest

from shakedown.benchmarks.config import job as settings_job
from shakedown.evidence.job_folder import failed_tasks, note_contents
from shakedown.judge.judged import judge_folder
from shakedown.onnode import counters
from tests.kit.cases import cases
from tests.kit.files import edited

JOB = "raw/config.settings.a1"
# As srun and the programs print it when n2 has mounted the stage read-only.
STDERR = """\
n2: cannot write its outputs to /shared/runs/r/raw/config.settings.a1: Read-only file system
srun: error: n2: task 1: Exited with exit code 1
n2: cannot write its outputs to /shared/runs/r/raw/config.settings.a1: Read-only file system
srun: error: n2: task 1: Exited with exit code 1
n2: cannot write its outputs to /shared/runs/r/raw/config.settings.a1: Read-only file system
srun: error: n2: task 1: Exited with exit code 1
"""
SLURM = "Slurm says FAILED, exit code 1:0, 0 restarts"


def fail(run: Path, stderr: str, exit_code: str = "1:0", *, left: bool = False) -> None:
    """Turn the recorded settings job into one that failed at n2; `left`: what n2 wrote stays."""
    folder = run / JOB
    for path in () if left else [*folder.glob("*.n2.*")]:
        path.unlink()
    with edited(folder / "job.json") as record:
        problem = {"kind": "other", "message": SLURM.replace("1:0", exit_code)}
        record |= {"state": "FAILED", "exit_code": exit_code, "problem": problem}
    (folder / "rfm_job.err").write_text(stderr)


def collected(shakedown, run: Path):
    """Collect and judge."""
    assert shakedown("collect", run)[0] == 0
    return judge_folder(run)


def test_a_read_only_stage_costs_its_own_node_and_is_named(recorded_run, shakedown):
    """Catches: `n1 settings ... found "106", wanted "106"` as the first words about n2's read-only stage."""
    run = recorded_run("lab_healthy")
    fail(run, STDERR)
    verdict = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "at n2" in verdict.reason
    assert "n2: cannot write its outputs" in verdict.reason
    assert "Read-only file system" in verdict.reason
    assert verdict.cells
    for cell in verdict.cells:
        assert "/n2/" in cell.cell
        assert "n2: cannot write its outputs" in cell.reason
        assert "found" not in cell.reason


@cases(
    "stderr, exit_code",
    ("something went wrong\n", "1:0"),  # whose part failed is not said
    (STDERR, "0:9"),  # ended from outside: who knows what of n1's was cut off
    (STDERR.replace(" n2: task 1", " n[1-2]: tasks 0-1"), "1:0"),
)
def test_a_good_node_is_not_taken_on_trust(recorded_run, shakedown, stderr, exit_code):
    """Catches: outputs of a failed job counted without knowing that their own task ended well."""
    run = recorded_run("lab_healthy")
    fail(run, stderr, exit_code)
    verdict = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    of_n1 = [c for c in verdict.cells if c.cell.startswith("config/settings/") and "/n1/" in c.cell]
    assert of_n1
    assert {c.outcome.value for c in of_n1} == {"INCONCLUSIVE"}
    assert not [c for c in of_n1 if "found" in c.reason], "a passing detail is no cause"


def test_outputs_of_the_failed_task_do_not_count(recorded_run, shakedown):
    """Catches: what a task wrote before it failed, judged as complete."""
    run = recorded_run("lab_healthy")
    fail(run, STDERR, left=True)
    cells = [c for c in collected(shakedown, run).cells if c.cell.startswith("config/settings/")]
    assert cells
    assert all("/n2/" in c.cell and "Read-only file system" in c.reason for c in cells)


@cases(
    "text, told",
    ("srun: error: n2: task 1: Killed\n", {"n2": "n2: its task: Killed"}),
    (
        "Traceback (most recent call last):\n  File ...\nOSError: no room\n"
        "srun: error: n2: task 1: Exited with exit code 1\n",
        {"n2": "n2: OSError: no room"},
    ),
    # Two failed: nobody knows whose words these are.
    (
        "OSError: no room\nsrun: error: n[1-2]: tasks 0-1: Exited with exit code 1\n",
        {n: f"{n}: its task: Exited with exit code 1" for n in ("n1", "n2")},
    ),
    ("srun: error: n9: task 1: Killed\n", {}),
    ("n2: task 1: Killed\n", {}),
)
def test_words_are_of_the_node_that_said_them(tmp_path, text, told):
    """Catches: one node's message told of another."""
    (tmp_path / "rfm_job.err").write_text(text)
    assert failed_tasks(tmp_path, ("n1", "n2")) == told


@pytest.mark.parametrize(("program", "arguments"), [(counters, ["before"]), (settings_job, [])])
def test_a_program_that_cannot_write_says_so_in_one_line(program, arguments, tmp_path, monkeypatch, capsys):
    """Catches: a traceback of one of many tasks, from which nobody sees whose it is."""
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    (tmp_path / "spec.json").write_text(json.dumps({"targets": {"n2": {"fab0": "rail0"}}}))
    # A folder in the way of every file that would be written: root may write anywhere else.
    for name in ("settings.n2.fab0.json", "counters.n2.before.json"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(settings_job, "SOCKET", str(tmp_path / "no.sock"))
    assert program.main([*arguments, str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"n2: cannot write its outputs to {tmp_path}: Is a directory"


# As srun printed them in the lab when n2 lost its shared folder, and when its clock was set 400 s ahead, each
# in the middle of a job.
NO_SHARE = """\
slurmstepd-n2: error: execve(): /shared/shakedown-code/venv/bin/python: No such file or directory
srun: error: n2: task 1: Exited with exit code 2
"""
CLOCK = """\
srun: error: Node failure on n2
srun: error: Munge decode failed: Rewound credential
srun: auth/munge: _print_cred: ENCODED: Thu Nov 26 14:25:56 2026
srun: auth/munge: _print_cred: DECODED: Thu Nov 26 14:19:16 2026
srun: error: Check for out of sync clocks
srun: error: slurm_unpack_received_msg: [[n2]:39572] auth_g_verify: MESSAGE_TASK_EXIT has authentication error: Unspecified error
srun: error: slurm_unpack_received_msg: [[n2]:39572] Protocol authentication error
"""  # noqa: E501


@cases(
    "stderr, why",
    (NO_SHARE, ": n2: slurmstepd-n2: error: execve(): /shared/shakedown-code/venv/bin/python: No such file"),
    (CLOCK, ": n2: its task: munge refused its end (Rewound credential): likely its clock"),
    (
        CLOCK.replace("Rewound", "Invalid"),
        ": n2: its task: munge refused its end (Invalid credential): likely another munge.key",
    ),
    ("", ""),
)
def test_counters_that_were_never_read_say_why(recorded_run, shakedown, stderr, why):
    """Catches: a file called lost that was never there, and a cause that only the job's own errors tell."""
    run = recorded_run("lab_healthy")
    folder = run / "raw/fabric.ib_write_bw.a1"
    (folder / "counters.n2.after.json").unlink()
    (folder / "rfm_job.err").write_text(stderr)
    record = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(record | {"files": note_contents(folder)}))
    verdict = collected(shakedown, run)
    assert verdict.outcome == "INCONCLUSIVE"
    said = f"the NICs' counters of n2 could not be read after the job{why}"
    assert all("/n2/" in cell.cell and said in cell.reason for cell in verdict.cells)
    assert not [cell for cell in verdict.cells if "is missing" in cell.reason]
