"""What a run does now, as its folder on the share and Slurm tell it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.collect import run as collect
from shakedown.commands import watch as command
from shakedown.commands.watch import Watched, page
from shakedown.records.reading import BadInput
from tests.kit.refusal import refused

WAITS, RUNS, FOREIGN = "fabric.ib_send_lat", "fabric.ib_write_lat", "fabric.ib_read_bw"
HOSTILE = "bad [red]NIC</pre><script>alert(1)</script>\x1b[2J"


class Answers:
    """Slurm's answers; one that is none is refused."""

    def __init__(self, squeue: str | None = "", sinfo: str | None = "n1|idle|none\nn2|idle|none") -> None:
        self.said = {"squeue": squeue, "sinfo": sinfo}

    def ask(self, *argv: str) -> str:
        """Answer one command."""
        if (said := self.said[argv[0]]) is None:
            raise BadInput(f"{argv[0]}: slurmctld is away", fix="mend it")
        return said


@pytest.fixture
def under_way(recorded_run) -> Path:
    """A run of which one job waits, one runs and one has not been submitted."""
    run = recorded_run("lab_healthy")
    shutil.rmtree(run / "raw" / f"{WAITS}.a1")
    shutil.rmtree(run / "raw/collective.mpi_allreduce.a1")
    (run / "raw" / f"{RUNS}.a1/job.json").unlink()
    return run


def queue(run: Path) -> str:
    """Return what squeue says of that run and of one elsewhere whose job is named alike."""
    return (
        f"7|{WAITS}|PENDING|Resources|0:00|{run}/reframe/stage/{WAITS}\n"
        f"8|{RUNS}|RUNNING|None|1-02:03:04|{run}/reframe\n"
        f"9|{FOREIGN}|PENDING|Priority|0:00|/elsewhere/runs/{run.name}/reframe\n"
        f"10|{FOREIGN}|PENDING|Priority|0:00|{run}/../other/reframe\n"
        f"a|{FOREIGN}|PENDING|x|{run}\n"
    )


def looked(run: Path, copy: Path, *answers: str | None):
    """Return a look at the run with these answers of Slurm's."""
    copy.mkdir()
    return Watched(run, copy, Answers(*answers)).look()


def test_each_job_is_where_its_folder_and_slurm_say(under_way, tmp_path):
    """Catches: another run's job taken for this one's; a reason or an elapsed day lost."""
    look = looked(under_way, tmp_path / "copy", queue(under_way))
    jobs = {job.name: job for job in look.jobs}
    assert (jobs[WAITS].state, jobs[WAITS].why) == ("waiting", "Resources")
    assert (jobs[RUNS].state, jobs[RUNS].took_s) == ("running", 93784.0)
    assert jobs[FOREIGN].state == "done"
    assert jobs["collective.mpi_allreduce"].state == "not submitted"
    assert not look.over
    # What runs is over its limit, so only the two others have time left.
    limits = {
        job["name"]: job["time_limit_s"] for job in json.loads((under_way / "jobs.json").read_text())["jobs"]
    }
    assert look.limit_left_s == limits[WAITS] + limits["collective.mpi_allreduce"]
    assert look.node_hours_used > 2 * 93784 / 3600
    assert "none fails" in look.told["worst cell so far"]
    assert set(look.told) == {"worst cell so far"}


def test_an_attempt_in_the_queue_is_newer_than_the_record_of_the_last(under_way, tmp_path):
    """Catches: a job that is measured again, told as ended; one that completes, told as running."""
    record = json.loads((under_way / "raw" / f"{FOREIGN}.a1/job.json").read_text())
    for job, state in ((record["job"], "done"), ("999999", "running")):
        said = f"{job}|{FOREIGN}|COMPLETING|None|0:07|{under_way}/reframe\n"
        look = looked(under_way, tmp_path / job, said)
        assert {one.name: one.state for one in look.jobs}[FOREIGN] == state


def test_what_fails_so_far_is_told_and_is_no_verdict(recorded_run, tmp_path):
    """Catches: a slow port that nobody hears of before the run has ended; a copy that says otherwise."""
    look = looked(recorded_run("h200_shared_slow_port"), tmp_path / "copy")
    worst = look.told["worst cell so far"]
    assert "nccl_all_reduce busbw" in worst
    assert worst.endswith("(4 cells FAIL; 27 of 27 required cells measured; no verdict yet)")
    assert look.over


def test_nothing_is_read_through_a_link(under_way, tmp_path):
    """Catches: a file of the submit host's user shown, or copied, for a link that a node's root put there; a
    nest of folders copied without end."""
    secret = tmp_path / "secret"
    secret.write_text("the key")
    record = under_way / "raw" / f"{FOREIGN}.a1/job.json"
    (tmp_path / "other.json").write_bytes(record.read_bytes())
    record.unlink()
    record.symlink_to(tmp_path / "other.json")
    (under_way / "raw/config.settings.a1/leak.txt").symlink_to(secret)
    (under_way / "raw/config.settings.a1" / "/".join("d" * 300)).mkdir(parents=True)
    look = looked(under_way, tmp_path / "copy")
    assert {job.name: job.state for job in look.jobs}[FOREIGN] == "not submitted"
    assert "Too many levels of symbolic links" in look.told["share"]
    assert not list((tmp_path / "copy").rglob("leak.txt"))
    assert not (tmp_path / "copy/raw/config.settings.a1/d/d/d/d/d/d").exists()


def test_a_slurm_that_is_away_and_nodes_that_are_out_are_told(under_way, tmp_path):
    """Catches: no queue, told as an empty one; a drained node that nobody hears of."""
    away = looked(under_way, tmp_path / "1", None)
    assert away.told["Slurm"] == "does not say what waits or runs: squeue: slurmctld is away"
    out = looked(under_way, tmp_path / "2", queue(under_way), f"n1|idle|none\nn2|drained|{HOSTILE}")
    assert out.told["nodes out"].startswith("Slurm cannot use n2: it is drained (bad [red]NIC")
    assert "\x1b" not in out.told["nodes out"]


def test_the_page_holds_text_alone_and_renews_itself_until_the_end(under_way, recorded_run, tmp_path):
    """Catches: a reason that a person gave Slurm, run as a script; a page that stands still."""
    out = looked(under_way, tmp_path / "1", queue(under_way), f"n1|idle|none\nn2|drained|{HOSTILE}")
    html = page(out, 30)
    assert "<script" not in html
    assert "[red]NIC&lt;/pre&gt;" in html
    assert '<meta http-equiv="refresh" content="30">' in html
    over = looked(recorded_run("lab_healthy"), tmp_path / "2")
    assert "refresh" not in page(over, 30)


def test_a_log_gets_a_line_for_each_change_and_the_command_ends_with_the_run(
    recorded_run, tmp_path, monkeypatch, shakedown
):
    """Catches: a log that fills with what is known, and a command that outlives its run."""
    run = recorded_run("lab_healthy")
    shutil.move(run / "raw" / f"{WAITS}.a1", tmp_path / "later")
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            shutil.move(tmp_path / "later", run / "raw" / f"{WAITS}.a1")

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setenv("PATH", str(tmp_path))  # without Slurm
    status, printed, _ = shakedown("watch", run, "--every", "9", "--html", tmp_path / "page.html")
    lines = [line.partition(" ")[2] for line in printed.splitlines()]
    assert (status, slept) == (0, [9, 9])
    assert lines.count(f"{WAITS}: done") == lines.count("config.settings: done") == 1
    assert sum("node-hours used" in line for line in lines) == 2
    assert len({line for line in lines if "required cells measured" in line}) == 2  # judged anew
    assert "refresh" not in (tmp_path / "page.html").read_text()


def test_what_ends_is_copied_up_to_a_limit_and_judged_now_and_then(under_way, tmp_path, monkeypatch):
    """Catches: a disk filled by outputs of a node's root; a run judged whole for each job that ends."""
    judged = []
    real = collect.collect
    monkeypatch.setattr(collect, "collect", lambda *given: (judged.append(given), real(*given)))
    copy = tmp_path / "copy"
    copy.mkdir()
    watched = Watched(under_way, copy, Answers())
    before = watched.look().told["worst cell so far"]
    later = under_way / "raw/collective.mpi_pingpong.n1-n2.a1"
    shutil.copytree(later, under_way / "raw/collective.mpi_pingpong.n1-n2.a2")
    assert watched.look().told["worst cell so far"] == before and len(judged) == 1
    watched._judge_next = 0.0
    watched.look()
    assert len(judged) == 2
    watched.look()
    assert len(judged) == 2
    monkeypatch.setattr(command, "_MOST_COPIED", 1 << 20)
    (later / "large.log").write_bytes(bytes(2 << 20))
    look = looked(under_way, tmp_path / "small")
    assert look.told["worst cell so far"].startswith("not judged here: what has ended is more than")
    assert sum(one.stat().st_size for one in (tmp_path / "small/raw").rglob("*") if one.is_file()) < 1 << 20


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_watch_that_is_ended_leaves_nothing(under_way, tmp_path, end):
    """Catches: the copy of a run left in /tmp by a watch that was ended, or lost its connection."""
    (tmp_path / "tmp").mkdir()
    words = [sys.executable, "-m", "shakedown", "watch", under_way, "--every", "60"]
    told = {"env": {**os.environ, "TMPDIR": str(tmp_path / "tmp")}, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, stderr=subprocess.PIPE, **told) as watching:
        watching.stdout.readline()
        assert list((tmp_path / "tmp").iterdir())
        watching.send_signal(end)
        _, err = watching.communicate(timeout=60)
    assert (watching.returncode, err) == (2, b"shakedown: interrupted\n")
    assert not list((tmp_path / "tmp").iterdir())


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    """Catches: an endless watch of nothing."""
    refused(
        "holds no run: No such file.*name the run's folder on the share", looked, tmp_path, tmp_path / "copy"
    )
