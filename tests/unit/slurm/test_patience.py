"""A Slurm that does not answer for a while, or at all."""

import subprocess
from dataclasses import dataclass, field

import pytest

from shakedown.records.reading import BadInput
from shakedown.slurm import client
from shakedown.slurm.client import NoAnswer
from shakedown.slurm.ending import Patience, flaw, how_it_ended
from tests.kit.cases import cases

DEAD = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
FORGOTTEN = "slurm_load_jobs error: Invalid job id specified"
JOB = (
    "JobId={job} JobName=x JobState={state} Reason=None Requeue=0 Restarts=0 ExitCode=0:0 "
    "StartTime=2026-11-20T11:38:48 EndTime=2026-11-20T11:40:16\n"
)


@dataclass
class Away:
    """Slurm's commands: `script` says what each call in turn comes to; the last stays. Time is the sleeps."""

    script: list[str]
    now: float = 1000.0
    calls: list[list[str]] = field(default_factory=list)

    def run(self, argv, **_):
        """Answer one call."""
        self.calls.append(argv)
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if said == "slow":
            self.now += 60
            raise subprocess.TimeoutExpired(argv, 60)
        if said == "missing":
            raise FileNotFoundError(2, "No such file or directory", argv[0])
        if said in (DEAD, FORGOTTEN):
            return subprocess.CompletedProcess(argv, 1, "", said)
        answer = said if argv[0] == "sinfo" else JOB.format(job=argv[-1], state=said)
        return subprocess.CompletedProcess(argv, 0, answer, "")

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def patience(self, limit_s: float = 600) -> Patience:
        """Return a patience by this clock."""
        return Patience(limit_s, clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def slurm(monkeypatch):
    """Return a function that plants what Slurm's commands come to."""

    def plant(*script: str) -> Away:
        away = Away(list(script))
        monkeypatch.setattr(client.subprocess, "run", away.run)
        return away

    return plant


@pytest.mark.parametrize("silence", [DEAD, "slow", "missing"])
def test_a_slurm_that_comes_back_is_asked_again(slurm, silence):
    """Catches: a good job lost because slurmctld was restarted while it ran."""
    away = slurm(silence, silence, silence, "RUNNING", "RUNNING", "COMPLETED")
    state, problem = how_it_ended("7", away.patience(), limit_s=300)
    assert (state.state, problem, len(away.calls)) == ("COMPLETED", None, 6)
    assert flaw(state, ("n1",), ("n1",), {}) is None


@pytest.mark.parametrize("silence", [DEAD, "slow", "missing"])
def test_a_slurm_that_never_answers_ends_the_waiting(slurm, silence):
    """Catches: a traceback, or a wait without end, where slurmctld is gone for good."""
    away = slurm(silence)
    begin = away.now
    state, problem = how_it_ended("7", away.patience(600), limit_s=300)
    assert (state.state, problem.kind) == ("UNKNOWN", "environment")
    assert problem.message.startswith("Slurm has not answered for 600 s (scontrol")
    assert 600 <= away.now - begin <= 660  # the last question may take its minute


def test_the_bound_is_shared_by_all_jobs(slurm):
    """Catches: twenty jobs that wait ten minutes each for the same dead slurmctld."""
    away = slurm(DEAD)
    patience = away.patience(600)
    first = how_it_ended("7", patience, limit_s=300)
    ended, asked = away.now, len(away.calls)
    for job in range(8, 28):
        state, problem = how_it_ended(str(job), patience, limit_s=300)
        assert (state.job, problem) == (str(job), first[1])
    assert patience.unusable(("n1",), reserved=False) == first[1].message
    assert (away.now, len(away.calls)) == (ended, asked)


def test_each_silence_has_the_whole_bound(slurm):
    """Catches: short silences of a long run that add up, until a healthy Slurm is given up."""
    away = slurm(*[DEAD, "RUNNING"] * 300, "COMPLETED")
    state, problem = how_it_ended("7", away.patience(20), limit_s=1e6)
    assert (state.state, problem) == ("COMPLETED", None)


def test_a_job_that_slurm_forgot_is_an_answer(slurm):
    """Catches: ten minutes spent on a job that slurmctld lost, or an error raised while ReFrame waits."""
    away = slurm(FORGOTTEN)
    begin = away.now
    state, problem = how_it_ended("7", away.patience(), limit_s=300)
    assert (state.state, problem.kind, away.now) == ("UNKNOWN", "environment", begin)
    assert "Slurm cannot say how job 7 ended" in problem.message
    assert "Invalid job id" in problem.message


def test_a_job_that_still_runs_is_waited_for_until_its_time_limit(slurm):
    """Catches: a job judged as ended while it runs because squeue was silent; a wait for it without end."""
    away = slurm(DEAD, "RUNNING")
    begin = away.now
    state, problem = how_it_ended("7", away.patience(), limit_s=300)
    assert (state.state, problem) == ("RUNNING", None)
    assert 330 <= away.now - begin <= 345
    found = flaw(state, ("n1",), ("n1",), {})
    assert (found.kind, found.message) == (
        "killed",
        "Slurm still says RUNNING, and the job's time limit is over",
    )


def test_a_job_that_waits_in_the_queue_has_its_time_limit_before_it(slurm):
    """Catches: a job that was still pending when Slurm came back, given up before it had begun."""
    away = slurm(DEAD, *["PENDING"] * 200, *["RUNNING"] * 10, "COMPLETED")
    assert how_it_ended("7", away.patience(), limit_s=60)[0].state == "COMPLETED"


def test_a_job_that_completes_without_end_is_not_waited_for(slurm):
    """Catches: a dead node's job, COMPLETING for hours, that holds up all the others."""
    away = slurm("COMPLETING")
    begin = away.now
    state, _ = how_it_ended("7", away.patience(), limit_s=3600)
    assert (state.state, away.now - begin < 60) == ("COMPLETING", True)
    assert "COMPLETING" in flaw(state, ("n1",), ("n1",), {}).message


def test_nodes_get_time_to_report_to_a_controller_that_was_away(slurm):
    """Catches: the next job not run, because right after its start slurmctld has heard of no node yet."""
    away = slurm(DEAD, "n1|idle*|none\n", "n1|idle*|none\n", "n1|idle|none\n")
    assert away.patience().unusable(("n1",), reserved=False) == ""
    away = slurm(DEAD, "n1|idle*|none\n")
    begin = away.now
    assert "n1: it is idle and does not respond" in away.patience().unusable(("n1",), reserved=False)
    assert away.now - begin < 150
    away = slurm("n1|down|none\n")
    assert "n1: it is down" in away.patience().unusable(("n1",), reserved=False)
    assert len(away.calls) == 1


def test_a_thousand_node_names_are_cut(slurm):
    """Catches: a reason that no record can hold, raised where ReFrame never ends after it."""
    slurm("COMPLETED")
    nodes = tuple(f"node{i:04d}" for i in range(1000))
    state, _ = how_it_ended("7", Patience(1), limit_s=1)
    assert len(flaw(state, nodes, ("other",), {}).message) == 2000


@cases(
    "said, kind",
    (DEAD, NoAnswer),
    ("slurm_load_node error: Socket timed out on send/recv operation", NoAnswer),
    ("sinfo: error: Protocol authentication error", NoAnswer),
    ("munge: Invalid credential", NoAnswer),
    (FORGOTTEN, BadInput),
    ("slurm_update error: Invalid node name specified", BadInput),
    ("scontrol: error: Access/permission denied", BadInput),
)
def test_silence_and_refusal_are_told_apart(monkeypatch, said, kind):
    """Catches: a refusal that is asked again for ten minutes, and a silence taken for an answer."""
    failed = subprocess.CompletedProcess(["scontrol"], 1, "", said)
    monkeypatch.setattr(client.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(BadInput) as caught:
        client.show_job("7")
    assert type(caught.value) is kind
