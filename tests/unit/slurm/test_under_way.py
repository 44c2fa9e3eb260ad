"""What a start does about a run that it finds on the submit host."""

import hashlib
from pathlib import Path

import pytest

from shakedown.run.lock import Holder
from shakedown.slurm.client import NoAnswer
from shakedown.slurm.run_control import make_ready
from shakedown.slurm.under_way import Asked, Left, cancel_own, decide, own_jobs
from tests.kit.cases import cases
from tests.kit.refusal import refused

THEIRS = Holder(
    run="r1",
    host="ctl:0123456789ab",
    boot="b",
    pid=4242,
    start_ticks=1,
    user="alice",
    since="2026-11-23T10:00:00Z",
    ticket="t1",
)
NOTHING, REFRAME, JOBS = Left(), Left(reframe=(9,)), Left(jobs=("7", "8"))
SILENT = Left(silent="squeue: connect failure")
BOTH_WAYS = ("-e run_id=r1 -e run_under_way=resume", "-e run_under_way=cancel")


@cases(
    "playbook, left, asked, run, action, words",
    ("alive", NOTHING, "refuse", "r2", "refuse", ("kill 4242", *BOTH_WAYS)),
    ("alive", NOTHING, "cancel", "r2", "refuse", ("end it first, on ctl: kill 4242",)),
    ("alive", NOTHING, "resume", "r1", "refuse", ("end it first, on ctl: kill 4242",)),
    ("dead", REFRAME, "refuse", "r2", "refuse", ("still running: ReFrame (process 9)", *BOTH_WAYS)),
    ("dead", JOBS, "refuse", "r2", "refuse", ("still running: Slurm job 7, 8", *BOTH_WAYS)),
    ("dead", SILENT, "refuse", "r2", "refuse", ("connect failure", *BOTH_WAYS)),
    ("dead", NOTHING, "refuse", "r2", "take", ("was broken off", BOTH_WAYS[0])),
    ("elsewhere", NOTHING, "refuse", "r2", "refuse", ("cannot be seen from here", *BOTH_WAYS)),
    ("elsewhere", JOBS, "refuse", "r2", "refuse", ("cannot be seen from here", *BOTH_WAYS)),
    ("dead", JOBS, "cancel", "r2", "clear", ("was ended",)),
    ("elsewhere", JOBS, "cancel", "r2", "clear", ("was ended",)),
    ("dead", REFRAME, "resume", "r1", "clear", ("was ended",)),
    ("elsewhere", NOTHING, "resume", "r1", "clear", ("was ended",)),
    # To go on with one run does not end another.
    ("dead", REFRAME, "resume", "r2", "refuse", BOTH_WAYS),
    ("dead", NOTHING, "resume", "r2", "take", ("was broken off",)),
)
def test_a_start_ends_no_run_unless_told_to(playbook, left, asked, run, action, words):
    """Catches: two runs at once; a living run ended; an unattended night blocked for ever by a dead one."""
    decision = decide(THEIRS, playbook, left, Asked(asked), run)
    assert decision.action == action, decision.said
    for word in (*words, "alice", "2026-11-23T10:00:00Z"):
        assert word in decision.said
    assert "\n" not in decision.said


class Queue:
    """squeue and scancel over a list of jobs: id, name, working directory."""

    def __init__(self, *jobs: tuple[str, str, str]) -> None:
        self.jobs = list(jobs)
        self.cancelled: list[str] = []

    def ask(self, *argv: str) -> str:
        """Answer."""
        if argv[0] == "scancel":
            self.cancelled += argv[1:]
            self.jobs = [job for job in self.jobs if job[0] not in argv[1:]]
            return ""
        assert "--me" in argv
        field = 2 if argv[-1].endswith("%Z") else 1
        return "".join(f"{job[0]}|{job[field]}\n" for job in self.jobs)


def test_only_the_runs_own_jobs_are_cancelled(tmp_path):
    """Catches: jobs of another run, or another user's work of the same account, cancelled with this one's."""
    run, link = tmp_path / "runs" / "r1", tmp_path / "link"
    (run / "reframe").mkdir(parents=True)
    link.symlink_to(tmp_path / "runs")
    queue = Queue(
        ("7", "fabric.a", f"{run}/reframe/stage/x"),
        ("8", "fabric.b", str(run)),
        ("9", "mine", f"{run}0/reframe"),
        ("10", "mine", "/home/alice"),
        ("11", "mine", f"{run}/../r2"),
        ("12", "mine", ""),
        ("13_[1-9]", "mine", f"{run}/x"),
    )
    assert own_jobs(link / "r1", queue) == ["7", "8"]
    assert cancel_own(run, queue) == {"fabric.a": "7", "fabric.b": "8"}
    assert queue.cancelled == ["7", "8"]
    assert cancel_own(run, queue) == {}
    assert queue.cancelled == ["7", "8"]


def test_a_silent_slurm_is_not_an_empty_queue(tmp_path):
    """Catches: a run whose jobs still run taken for dead because squeue failed."""

    class Silent:
        def ask(self, *argv):
            raise NoAnswer("squeue: connect failure")

    from shakedown.slurm.under_way import clear, left_of

    assert left_of(tmp_path, Silent()).silent == "squeue: connect failure"
    refused("cannot be ended", clear, tmp_path, Silent())


JOBS_JSON = (
    '{"schema": 1, "run": "r1", "nics": {}, "jobs": ['
    + ", ".join(
        f'{{"name": "{stage}.{name}", "kind": "mesh", "stage": "{stage}", "tests": ["t"], "nodes": ["n1"], '
        '"time_limit_s": 60}'
        for stage, name in (("config", "a"), ("fabric", "a"), ("fabric", "a.a1"), ("collective", "a"))
    )
    + "]}"
)


@pytest.fixture
def broken(tmp_path):
    """A run that was broken off in its fabric stage, and the digests of the controller's files."""
    run = tmp_path / "r1"
    for name in ("config.a.a1", "fabric.a.a1", "fabric.a.a1.a1", "fabric.ab.a1"):
        (run / "raw" / name).mkdir(parents=True)
        (run / "raw" / name / "job.json").write_text("{}")
    (run / "raw" / "reframe.config.txt").touch()
    (run / "raw" / "reframe.fabric.txt").touch()
    (run / "stages").mkdir()
    (run / "stages" / "config.done").touch()
    (run / "plan.json").write_text("{}")
    (run / "jobs.json").write_text(JOBS_JSON)
    return run, {n: hashlib.sha256((run / n).read_bytes()).hexdigest() for n in ("plan.json", "jobs.json")}


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_the_broken_off_stage_is_cleared_and_whole_ones_are_kept(broken):
    """Catches: half a stage judged with its second half from another hour; a whole stage measured again."""
    run, digests = broken
    assert make_ready(run, digests) == ["config"]
    assert names(run / "raw") == ["config.a.a1", "fabric.ab.a1", "reframe.config.txt"]


@pytest.mark.parametrize("name", ["plan.json", "jobs.json"])
def test_another_plan_is_another_run(broken, name):
    """Catches: a run gone on with under a plan that was made anew, its first stages judged by it."""
    run, digests = broken
    refused(f"{name}: is not the controller's", make_ready, run, digests | {name: "0" * 64})
    assert "fabric.a.a1" in names(run / "raw")


def test_a_complete_run_is_not_gone_on_with(broken):
    """Catches: a used run id that `resume` opens again, and a verdict made twice from different files."""
    run, digests = broken
    (run / "stages" / "fetched").touch()
    refused("is complete", make_ready, run, digests)


def test_a_run_that_is_not_there_is_not_gone_on_with(tmp_path):
    """Catches: a traceback, or an empty run judged, for a run id that was misspelt."""
    refused("holds no run that was broken off", make_ready, tmp_path / "r9", {})
