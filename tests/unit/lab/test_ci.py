"""The phases of `make test`, with commands that stand for them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lab import ci, processes
from lab.ci import Phase, Run
from lab.paths import CHECKOUT


def shell(name, script, *after, prepares=False):
    """A phase that runs a script."""
    return Phase(name, ("sh", "-c", script), after, prepares)


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run phases; return the exit status and the lines that were printed."""
    monkeypatch.setattr(ci, "_POLL_S", 0.01)

    def call(*phases):
        status = Run(phases, tmp_path, os.environ).to_the_end()
        return status, capfd.readouterr().out.splitlines()

    return call


def test_outputs_keep_their_order_and_pytest_has_the_last_word(run):
    """Catches: two phases whose lines are mixed; a closing line that is not at the end, or there twice."""
    status, said = run(
        shell("lint", "echo a; sleep 0.3; echo b"),
        shell("lab", "echo c; sleep 0.1; echo d", prepares=True),
        shell("code", "echo '==== 7 passed, 1 skipped in 1.20s ===='; echo e", "lint", "lab"),
        shell("faults", "echo f; printf '2 passed in 3.00s'", "code"),
    )
    assert status == 0
    shown = [line for line in said if line and line[:3] != "---"]
    assert shown[:6] == ["a", "b", "c", "d", "e", "==== 7 passed, 1 skipped in 1.20s ===="]
    assert [line.split()[0] for line in shown[6:8]] == ["f", "phase"]
    assert [line.split() for line in shown[8:12]] == [
        [name, "0", "passed"] for name in ("lint", "lab", "code", "faults")
    ]
    assert (shown[-2].split()[:2], shown[-1]) == (["make", "test"], "2 passed in 3.00s")


def test_after_a_failure_nothing_begins_and_what_only_prepares_is_ended(run):
    """Catches: an exit status 0 with a red phase; 40 minutes of lab after a linter's word."""
    begin = time.monotonic()
    status, said = run(
        shell("lint", "echo wrong; exit 3"),
        shell("lab", "sleep 60", prepares=True),
        shell("tests", "echo never", "lint", "lab"),
    )
    assert status == 1 and time.monotonic() - begin < 20
    assert "wrong" in said and "never" not in said
    results = {
        line.split()[0]: line.split(maxsplit=2)[2] for line in said if line[:4] in ("lint", "lab ", "test")
    }
    assert results == {"lint": "FAILED with status 3", "lab": "ended", "tests": "not run"}


def test_a_failed_preparation_leaves_what_runs_to_its_end(run):
    """Catches: a lab that does not converge, and with it the unit tests' result lost."""
    status, said = run(
        shell("lab", "echo broken; exit 2", prepares=True),
        shell("code", "sleep 0.3; echo '4 passed in 1.00s'"),
        shell("faults", "echo never", "code", "lab"),
    )
    assert (status, said[-1]) == (1, "4 passed in 1.00s")
    assert "broken" in said and "never" not in said


def test_each_phase_that_is_silent_is_told_of(run, monkeypatch):
    """Catches: minutes without a word, or none of what runs in the background."""
    monkeypatch.setattr(ci, "PROGRESS_S", 0.2)
    _, said = run(shell("code", "echo x; sleep 0.7"), shell("lab", "echo task 3; sleep 0.7"))
    told = [line.split("] ")[1] for line in said if line.startswith("[")]
    assert "code, 0 s: x" in told and "lab, 0 s: task 3" in told, said


# What a shell runs in the background ignores Ctrl-C. The lab only notes that it was ended.
INTERRUPTED = """
import sys
from lab import ci
ci.phases = lambda lab, committed: (ci.Phase("one", ("sh", "-c", "sleep 100 & echo $! > pid; wait")),)
ci.CHECKOUT = {folder!r}
ci.cluster.stop = lambda lab: print("stopped", lab, flush=True)
sys.exit(ci.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_it_the_lab_is_taken_down(tmp_path, number):
    """Catches: four QEMUs and a pytest left behind by Ctrl-C, by CI that ends a job, by a lost terminal."""
    code = INTERRUPTED.format(folder=str(tmp_path))
    known = {**os.environ, "PYTHONPATH": str(CHECKOUT), "SHAKEDOWN_TEST_LAB": "x"}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=known)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(number)
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said.splitlines()[0] == said.splitlines()[-1] == "stopped x"  # what was left, and what was up
    left = processes.stat_of(int((tmp_path / "pid").read_text()))
    assert left is None or left[0] in "ZX", left


@pytest.mark.parametrize(("committed", "code"), [(True, "test-slow"), (False, "test-code")])
def test_every_phase_can_be_called_by_its_name(committed, code):
    """Catches: a phase that the Makefile has no longer; one whose predecessor is never run."""
    phases = ci.phases("x", committed=committed)
    names = [phase.name for phase in phases]
    targets = [phase.argv[-1] for phase in phases if "make" in phase.argv[0]]
    assert targets == ["lint", "test-spaces", code, "test-bare", "test-faults"]
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}: setup  ## " in makefile for target in targets)
    assert all(names.index(one) < names.index(phase.name) for phase in phases for one in phase.after)


def test_the_fast_tests_run_twice_only_for_what_is_not_committed(tmp_path, monkeypatch):
    """Catches: changed files that no fast test sees, since test-bare clones HEAD; no git taken for clean."""
    monkeypatch.setattr(ci, "CHECKOUT", tmp_path)
    assert not ci.all_is_committed()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert ci.all_is_committed()
    (tmp_path / "new.py").touch()
    assert not ci.all_is_committed()
    monkeypatch.setenv("PATH", "")
    assert not ci.all_is_committed()
