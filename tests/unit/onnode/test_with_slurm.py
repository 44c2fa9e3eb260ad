"""A job's next step while slurmctld is away: waited for, for a bounded time, and on no other account."""

import os
import subprocess
from pathlib import Path

import pytest

from shakedown.onnode.output import kept
from shakedown.onnode.standing import SILENT_FILE, SILENT_S, WITH_SLURM, once_a_node
from tests.kit.cases import cases

# As the commands of Slurm 22.05 and 23.11 print it.
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Have `squeue` say these lines, one at each call, and then answer; `sleep` takes no time."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv(SILENT_FILE, str(tmp_path / "silent"))
    asked, clock = tmp_path / "asked", tmp_path / "clock"
    clock.write_text("1000")

    def program(name: str, text: str) -> None:
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)

    def made(*said: str, status: int = 1) -> Path:
        (tmp_path / "said").write_text("".join(f"{line}\n" for line in said))
        # Each question takes its line; the last one stays for ever where it is `...`.
        program(
            "squeue",
            f'echo "$*" >> {asked}\ncd {tmp_path}\nline=$(head -1 said)\n'
            '[ -n "$line" ] || { echo 7; exit 0; }\n'
            f'[ "$(sed -n 2p said)" = ... ] || sed -i 1d said\necho "$line" >&2\nexit {status}',
        )
        program("sleep", f"echo $(($(cat {clock}) + $1)) > {clock}")
        program("date", f"cat {clock}")
        return asked

    made.program = program  # type: ignore[attr-defined]
    return made


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a job does."""
    return subprocess.run([*WITH_SLURM, *command], capture_output=True, text=True, check=False, timeout=60)


def test_a_step_waits_for_slurmctld(slurm, tmp_path):
    """Catches: a good job lost to a restart of slurmctld between two of its steps."""
    asked = slurm(AWAY, "slurm_load_jobs error: Socket timed out on send/recv operation", AWAY)
    done = run("printf", "%s|", "a b", "$HOME")
    assert (done.returncode, done.stdout) == (0, "a b|$HOME|")
    assert done.stderr.splitlines() == [f"shakedown: waiting for Slurm ({AWAY})"]
    assert asked.read_text().splitlines() == ["--noheader --jobs=7 --format=%i"] * 4
    assert not (tmp_path / "silent").exists()
    assert run("sh", "-c", "exit 5").returncode == 5


def test_the_wait_has_an_end_and_is_once_a_job(slurm, tmp_path, monkeypatch):
    """Catches: a job that waits for ever, or the site's limit again at each of its steps."""
    monkeypatch.setenv(SILENT_S, "60")
    asked = slurm(AWAY, "...")
    done = run("echo", "tried")
    assert done.stdout == "tried\n"
    assert done.stderr.splitlines()[-1] == f"shakedown: Slurm has not answered for 60 s ({AWAY})"
    assert len(asked.read_text().splitlines()) == 13  # one, and one after each 5 s
    assert (tmp_path / "silent").exists()
    again = run("echo", "at once")
    assert (again.stdout, again.stderr) == ("at once\n", "")
    assert len(asked.read_text().splitlines()) == 13
    (tmp_path / "silent").unlink()
    monkeypatch.setenv(SILENT_S, "0")
    assert "not answered for 0 s" in run("true").stderr
    assert len(asked.read_text().splitlines()) == 14


@cases(
    "said, status",
    ("slurm_load_jobs error: Invalid job id specified", 1),
    ("slurm_load_jobs error: Access/permission denied", 1),
    ("squeue: site policy: use our portal", 1),
    ("squeue: error: unrecognized option", 1),
    ("", 0),
)
def test_another_answer_holds_nothing_up(slurm, said, status):
    """Catches: a foreign Slurm, whose squeue refuses or prints nothing, that costs ten minutes a step."""
    asked = slurm(*([said, "..."] if said else []), status=status)
    done = run("echo", "well")
    assert (done.stdout, done.stderr) == ("well\n", "")
    assert len(asked.read_text().splitlines()) == 1


def test_no_squeue_and_no_job_hold_nothing_up(slurm, monkeypatch):
    """Catches: a step by hand, or on a node without squeue, that waits for a Slurm that is not there."""
    done = run("echo", "well")
    assert (done.stdout, done.stderr) == ("well\n", "")
    asked = slurm(AWAY, "...")
    monkeypatch.delenv("SLURM_JOB_ID")
    assert run("echo", "well").stdout == "well\n"
    assert not asked.exists()


def test_a_hung_squeue_is_no_answer(slurm, monkeypatch):
    """Catches: a question that hangs for ever, and one that is ended and taken for an answer."""
    monkeypatch.setenv(SILENT_S, "60")
    slurm.program("timeout", '[ "$2" = 60 ] || exit 125\nexit 124')
    slurm.program("sleep", "true")
    slurm.program("date", "f=$(dirname $0)/../clock; echo $(($(cat $f) + 40)) > $f; cat $f")
    done = run("echo", "tried")
    assert done.stdout == "tried\n"
    assert "has not answered for 60 s (squeue did not end within 60 s)" in done.stderr


def test_what_starts_a_step_waits(tmp_path):
    """Catches: a program's own steps that do not wait, or a failure that names the shell and not srun."""
    words = once_a_node(2, "shakedown.onnode.gpus", "sample")
    assert tuple(words[:2]) == WITH_SLURM and words[2] == "srun" and os.access(words[1], os.X_OK)
    assert kept(tmp_path, "mpi", "one", ["n1"], [*WITH_SLURM, "false"]) == 1
    assert '"message": "false: exit status 1' in (tmp_path / "outputs.jsonl").read_text()
