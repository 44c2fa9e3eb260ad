"""What a person hears while the lab works: at least every 20 seconds, and which job it is."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import progress
from lab.acceptance import BIN, CHECKOUT
from lab.errors import LabError
from tests.kit.cases import cases


def test_a_long_step_gives_signs_of_life(monkeypatch, capsys):
    """Catches: minutes without a word, in which a person takes the program for hung."""
    monkeypatch.setattr(progress, "EVERY_S", 0.3)
    steps = progress.Steps()
    with steps.step("boot"):
        time.sleep(0.5)
        steps.doing("configure: Install packages")
        time.sleep(0.8)
        steps.more = lambda: "job 7 of 21, fabric.ib_write_bw, 40 s"
        time.sleep(0.5)
    said = capsys.readouterr().out
    assert "boot, 0 s" in said
    assert "Install packages, 0 s" in said
    assert "job 7 of 21, fabric.ib_write_bw, 40 s" in said
    time.sleep(0.7)
    assert capsys.readouterr().out == ""
    assert progress.Steps().more is None and steps.timings[0][0] == "boot"


@cases(
    "answer, words",
    ("6\nfabric.ib_write_bw 0:40\n", "job 7 of 21, fabric.ib_write_bw, 40 s"),
    ("0\nnode.stream.n1 1:02:03\nnode.stream.n2 5\n", "job 1 of 21, node.stream.n1, 3723 s, and 1 beside it"),
    ("3\ncollective.nccl 1-00:00:10\n", "job 4 of 21, collective.nccl, 86410 s"),
    ("21\n", "21 of 21 jobs have ended, none runs now"),
    ("ssh: timed out\n", ""),
    ("", ""),
)
def test_which_job_runs(tmp_path, answer, words):
    """Catches: another job's name or number, days read as seconds, a traceback where nothing answers."""
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [{}] * 21}))
    assert progress.JobsNow(tmp_path, lambda _: answer, "/shared/runs/r")() == words


def test_a_lab_that_does_not_answer_costs_no_run(tmp_path):
    """Catches: a look at the jobs that ends the acceptance, or that needs a plan that is not there yet."""

    def away(_: str) -> str:
        raise LabError("head does not answer")

    assert progress.JobsNow(tmp_path, away, "/r")() == ""
    (tmp_path / "jobs.json").write_text('{"jobs": []}')
    assert progress.JobsNow(tmp_path, away, "/r")() == ""


def test_a_host_that_is_too_slow_is_said_to_be():
    """Catches: jobs that ran into their limits on a busy host, told as if the lab were at fault."""
    assert (
        progress.busy_host(269, 734) == "planned 4 min 29 s, took 12 min 14 s: this host is busy or too slow"
    )
    assert progress.busy_host(269, 390) == ""


@pytest.mark.slow
def test_ansible_names_a_long_task_again_and_prints_a_verdict_as_one(tmp_path):
    """Catches: a stage of an hour without a word; FAILED! and an assertion where a verdict is meant."""
    book = tmp_path / "book.yml"
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    tasks = [
        {"name": "Run ReFrame", "ansible.builtin.command": {"argv": ["sleep", "25"]}},
        {
            "name": "The verdict",
            "ansible.builtin.assert": {"that": False, "fail_msg": "INCONCLUSIVE  2 of 9"},
        },
    ]
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": here, "tasks": tasks}]))
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", "localhost,", book],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "... Run ReFrame: 2" in done.stdout, done.stdout
    assert "INCONCLUSIVE  2 of 9" in done.stdout and "FAILED!" not in done.stdout + done.stderr
    assert done.returncode == 2


def test_a_shell_command_of_set_up_gives_signs_of_life(tmp_path):
    """Catches: packages that install for six minutes behind one line; a status that is lost on the way."""
    script = (CHECKOUT / "lab/setup.sh").read_text()
    begin = script.index("patiently() {")
    function = script[begin : script.index("\n}\n", begin) + 3].replace("% 15", "% 1")
    log = Path(tmp_path) / "log"
    play = f"{function}\npatiently 'installing packages' {log} sh -c 'echo Unpacking x; sleep 2; exit 7'"
    done = subprocess.run(["sh", "-c", play], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "setup: installing packages, 1 s: Unpacking x" in done.stdout
