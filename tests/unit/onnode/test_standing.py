"""Which rank of a hung run is named, from processes of ours in the states that real ones have."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from shakedown.onnode import standing
from tests.kit.cases import cases
from tests.kit.files import script

BUSY = [sys.executable, "-c", "while True: pass"]
IDLE = ["sleep", "60"]


@pytest.fixture
def ranks(tmp_path):
    """Start ranks of a run that is called as this test's folder; each is ended afterwards, stopped or not."""
    started = []

    def start(command, rank, **variables):
        own = {**os.environ, standing.MARK: str(tmp_path), "SLURM_PROCID": str(rank), **variables}
        started.append(subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.wait()


def seen(tmp_path, count):
    """What this node sees, once all that were started are there."""
    until = time.monotonic() + 20
    while len(standing.ranks_here(str(tmp_path))) < count and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)  # Python itself has started
    return standing.watch(str(tmp_path), watch_s=0.7)


def test_a_stopped_rank_is_named_and_the_waiting_one_is_not(ranks, tmp_path):
    """Catches: a hang that names no rank, or all of them."""
    ranks(BUSY, 0)
    ranks(BUSY, 1).send_signal(signal.SIGSTOP)
    looks = seen(tmp_path, 2)
    said = standing.told({"n1": looks[:1], "n2": looks[1:]})
    assert said == "rank 1 on n2 stands still: stopped by a signal (SIGSTOP)"


def test_a_rank_that_does_nothing_is_named_beside_one_that_waits_busily(ranks, tmp_path):
    """Catches: a rank that hangs somewhere without a signal, unseen."""
    ranks(BUSY, 0)
    ranks(IDLE, 1)
    looks = seen(tmp_path, 2)
    said = standing.told({"n1": looks[:1], "n2": looks[1:]})
    assert said == "rank 1 on n2 stands still: it uses no CPU (state S), the others do"


def test_mpiruns_own_number_of_a_rank_counts_and_other_runs_do_not(ranks, tmp_path):
    """Catches: all ranks of mpirun taken for rank 0, which its daemons are, and processes of another job."""
    ranks(IDLE, 0, OMPI_COMM_WORLD_RANK="3")
    ranks(IDLE, 0, **{standing.MARK: "another run"})
    until = time.monotonic() + 20
    while not (found := standing.ranks_here(str(tmp_path))) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(found) == [3]


def look(rank, states="R", cpu=1.0):
    """What a node says of one rank."""
    return {"rank": rank, "pids": [7], "states": states, "cpu": cpu}


@cases(
    "looks, said",
    ({"n1": [look(0)], "n2": None}, "n2 does not answer"),
    ({"n1": [look(0)], "n2": []}, "no rank of it is left on n2"),
    ({"n1": [look(0)], "n2": [look(1, "Z", 0.0)]}, "rank 1 on n2 stands still: ended"),
    ({"n1": [look(0)], "n2": [look(1)]}, "no rank stands still alone: all 2 work or wait busily"),
    (
        {"n1": [look(0, "S", 0.0)], "n2": [look(1, "S", 0.01)]},
        "no rank stands still alone: all 2 wait without using a CPU",
    ),
    # A helper process of the rank sleeps; the rank itself works.
    (
        {"n1": [look(0, "SR")], "n2": [look(1, "SR", 0.3)]},
        "no rank stands still alone: all 2 work or wait busily",
    ),
    ({"n1": [], "n2": []}, "none of its ranks was found on any node"),
    ({"n1": None, "n2": None}, "n1 does not answer; n2 does not answer"),
)
def test_what_is_told_of_each_state(looks, said):
    """Catches: a healthy rank blamed where nothing can be told, or a silent node passed over."""
    assert standing.told(looks) == said


def test_a_hung_job_asks_every_node_and_a_node_without_a_word_is_told(tmp_path, monkeypatch):
    """Catches: what a node said of an earlier run, taken for what it says of this one."""
    srun = tmp_path / "srun"
    script(srun, '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    (tmp_path / "standing.n2.json").write_text(json.dumps([look(1)]))
    said = standing.ask(tmp_path, ["n1", "n2"], "no such run")
    assert said == "n2 does not answer"
