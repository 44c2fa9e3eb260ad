"""Two starts of the acceptance playbook on one submit host, and a start after one that was killed."""

import json
import os
import signal

import pytest
from submit_host import SubmitHost

from shakedown.run.lock import end, with_argument

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def site(tmp_path):
    """A submit host, of which nothing is left at the end."""
    made = SubmitHost(tmp_path)
    yield made
    for run in (made.home / "runs").iterdir():
        end(with_argument(f"--prefix={run}/reframe"))


def broken_off(site: SubmitHost, *, asking: bool = False) -> None:
    """Start run `one`, kill its playbook in the fabric stage; `asking`: after others wanted to start."""
    site.plan("one")
    site.plan("two")
    site.hang("fabric")
    child = site.start("one")
    site.until(lambda: site.text("queue"), "the fabric stage does not begin")
    assert json.loads(site.text("run.lock"))["pid"] == child.pid
    if asking:
        refused_while_it_runs(site, child.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()


def refused_while_it_runs(site: SubmitHost, pid: int) -> None:
    """Hold that no other run may start, nor may this one be ended for it."""
    status, said = site.play("two")
    assert status != 0
    assert f"is under way since {json.loads(site.text('run.lock'))['since']}: wait for it, or end it" in said
    assert f"kill {pid}; then to go on with it" in said
    status, said = site.play("two", "-e", "run_under_way=cancel")
    assert status != 0
    assert f"its ansible-playbook still runs: end it first, on {os.uname().nodename}: kill {pid}" in said


def test_a_run_that_was_broken_off_goes_on(site):
    """Catches: two runs on one host; a killed run that cannot be gone on with, or that is begun anew."""
    broken_off(site, asking=True)
    reframe = with_argument(f"--prefix={site.home}/runs/one/reframe")
    assert reframe
    status, said = site.play("two")
    assert status != 0
    refused = (site.runs / "two" / "refused.txt").read_text()
    assert refused.count("\n") == 1
    for words in (
        "run one of ",
        "its ansible-playbook has ended, still running: ReFrame (process",
        "Slurm job 70",
        "-e run_id=one -e run_under_way=resume",
        "-e run_under_way=cancel",
    ):
        assert words in refused
        assert words in said
    assert site.text("queue").startswith("70|")
    status, said = site.play("one")  # without a word it is a run id that was used
    assert status != 0
    assert "give another run_id" in said

    (site.home / "hangs").unlink()
    whole = site.home / "runs/one/raw/config.settings.a1/job.json"
    kept = whole.stat().st_mtime_ns
    status, said = site.play("one", "-e", "run_under_way=resume")
    assert site.text("stages").split() == ["config", "fabric", "fabric", "collective"], said[-3000:]
    assert whole.stat().st_mtime_ns == kept
    assert (site.text("queue"), site.text("cancelled")) == ("", "70\n")
    assert not any(map(with_argument, [f"--prefix={site.home}/runs/one/reframe"]))
    states = {p.parent.name: json.loads(p.read_text())["state"] for p in site.runs.glob("one/raw/*/job.json")}
    jobs = json.loads((site.runs / "one/jobs.json").read_text())["jobs"]
    assert states == {f"{job['name']}.a1": "COMPLETED" for job in jobs}
    assert "Report:" in said  # its verdict was made
    assert not (site.home / "run.lock").exists()
    status, said = site.play("one", "-e", "run_under_way=resume")
    assert status != 0
    assert "is complete, and its outputs were fetched" in said


def test_a_run_that_was_broken_off_is_ended_for_another(site):
    """Catches: a cancelled run whose ReFrame or jobs measure on beside the new one, and a blocked night."""
    broken_off(site)
    (site.home / "hangs").unlink()
    with (site.home / "queue").open("a") as queue:
        queue.write("5|mine|/home/alice\n")
    _, said = site.play("two", "-e", "run_under_way=cancel")
    assert "Report:" in said, said[-3000:]
    assert not with_argument(f"--prefix={site.home}/runs/one/reframe")
    assert (site.text("queue"), site.text("cancelled")) == ("5|mine|/home/alice\n", "70\n")
    assert not (site.home / "run.lock").exists()


def test_a_run_of_which_nothing_lives_blocks_nobody(site):
    """Catches: an unattended night that last week's crash keeps from running, or that says nothing of it."""
    broken_off(site)
    (site.home / "hangs").unlink()
    end(with_argument(f"--prefix={site.home}/runs/one/reframe"))
    (site.home / "queue").write_text("")
    status, said = site.play("two")
    assert "was broken off and nothing of it runs any more: this run takes its place" in said, said[-3000:]
    assert "Report:" in said
    assert status != 0  # its verdict: the cells have no values


@pytest.mark.parametrize("limit", ["n1", "!n2", "localhost,head,n1"])
def test_a_limit_is_refused_in_a_sentence(site, limit):
    """Catches: --limit n1 answered with Ansible's internals, or a run that measures half of its plan."""
    site.plan("one")
    status, said = site.play("one", "--limit", limit)
    assert status != 0
    assert f"--limit {limit} leaves out" in said
    assert "acceptance needs all hosts of the inventory, so call it without --limit" in said
    assert "hostvars" not in said.lower()
    assert not (site.home / "run.lock").exists()


def test_what_only_the_controller_writes_is_not_taken_from_the_share_by_night_either(site):
    """Catches: a PASS over drops, as somebody on the share replaced the reading; watts that get lost; a night
    refused, for its limit to its own plan's nodes or for its two files in raw/."""
    site.plan("one")
    assert json.loads((site.runs / "one/plan.json").read_text())["nodes"] == ["n1", "n2"]
    for name in ("nightly.json", "playbook.txt"):
        (site.runs / "one/raw" / name).write_text("{}")
    own = {"server_power/n1.jsonl": "watts", "switches.fabric/leaf0.after.json": "the controller's"}
    (site.runs / "one/raw/server_power").mkdir()
    (site.runs / "one/raw/server_power/n1.jsonl").write_text(own["server_power/n1.jsonl"])
    reframe = site.home / "venv/bin/reframe"
    reframe.write_text(
        reframe.read_text()
        + """
for place in (run, Path(CONTROLLER)):
    for name in ("switches.fabric/leaf0.after.json", "server_power/n1.jsonl", "paths.jsonl"):
        if place == run or name.startswith("switches"):
            file = place / "raw" / name
            file.parent.mkdir(exist_ok=True)
            file.write_text("forged" if place == run else "the controller's")
""".replace("CONTROLLER", repr(str(site.runs / "one")))
    )
    nights = ("--limit", "localhost,submit,switches,n1,n2", "-e", "stage_limit_s=600")
    _, said = site.play("one", *nights)
    assert "Report:" in said, said[-3000:]
    raw = site.runs / "one/raw"
    assert {name: (raw / name).read_text() for name in own} == own
    assert not (raw / "paths.jsonl").exists()
    assert {path.name for path in raw.iterdir()} >= {"playbook.txt", "nightly.json"}
    verdict = json.loads((site.runs / "one/verdict.json").read_text())
    assert verdict["problems"][0].startswith(
        "somebody put paths.jsonl, server_power, switches.fabric on the share"
    )
    assert verdict["outcome"] != "PASS"
