"""Day two on three virtual nodes: nights with a fault that is found, drained, retested and given back; what
changed between two runs; jobs that are preempted or lose their node."""

import calendar
import json
import shlex
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import NAME, converged, inventory_with

from lab.acceptance import BIN, environment
from lab.paths import CHECKOUT
from tests.kit.run import ran

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

NODES = ("n1", "n2", "n3")
ACCEPTANCE = {
    "config": {"link_speed": False, "targets": ["environment", "pinning"]},
    "perftest": [
        {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 300},
        {"test": "ib_write_lat", "size_bytes": 64, "iterations": 200},
    ],
    "measurement_timeout_s": 90,
    "qp_timeout": 19,
}
# Somebody more important, who may take the nightly's nodes at any time.
URGENT = [
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    f"PartitionName=urgent Nodes={','.join(NODES)} PriorityTier=100 MaxTime=00:10:00 State=UP",
]


@pytest.fixture(scope="module")
def day_site(tmp_path_factory):
    """A lab of three compute nodes with a partition that preempts."""
    folder = tmp_path_factory.mktemp("day")
    inventory = inventory_with(
        folder, acceptance={"acceptance": ACCEPTANCE}, urgent={"slurm_extra_options": URGENT}
    )
    with converged(len(NODES), f"{NAME}d", folder, inventory) as made:
        yield made


@pytest.fixture
def day(day_site):
    """That lab as it was right after the playbook."""
    day_site.restore()
    return day_site


class Nights:
    """The timer's service, called by hand."""

    def __init__(self, site, state: Path, **options) -> None:
        self.site, self.state, self.log = site, state, state / "drain.jsonl"
        state.mkdir()
        self.over = site.lab.ssh_argv("head")
        self.config = state / "nightly.json"
        self.config.write_text(
            json.dumps(
                {
                    "schema": 1,
                    "checkout": str(CHECKOUT),
                    "inventory": str(site.inventory),
                    "state": str(state),
                    "over": self.over,
                    "access": ["--nice=10000"],
                    "budget_s": 900,
                    "limit_s": 2400,
                    "deliver": {"file": str(state / "night.txt")},
                    **options,
                }
            )
        )

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command of shakedown as the service does."""
        return ran(
            BIN / "shakedown", *argv, cwd=CHECKOUT, env=environment(self.site.lab.name, self.site.wheels)
        )

    def night(self, *options: str) -> tuple[int, dict]:
        """Make a night; return the exit status and what was delivered."""
        done = self.call("nightly", "run", "--config", str(self.config), *options)
        assert done.returncode in (0, 1, 3), done.stdout + done.stderr
        return done.returncode, json.loads((self.state / "night.json").read_text())

    def drained(self) -> dict[str, str]:
        """Return the drained nodes with their reasons, as Slurm has them."""
        answer = self.site.lab.ssh("head", ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]).stdout
        rows = [line.split("|", 2) for line in answer.splitlines()]
        return {name: reason for name, state, reason in rows if "drain" in state}


def test_three_nights_with_a_fault_in_the_second(day, tmp_path):
    """Catches: the whole of day two. Found in night two, drained, retested with two partners, given back."""
    nights = Nights(day, tmp_path / "state", drain={"act": True})
    status, night = nights.night()
    assert (status, night["outcome"]) == (0, "PASS"), (night["reason"], night["failed"], night["problems"])
    assert tuple(night["nodes"]) == NODES

    day.lab.ssh("n3", ["ip", "link", "set", "fab0", "mtu", "1500"])
    status, night = nights.night()
    assert (status, night["outcome"]) == (1, "FAIL"), night["reason"]
    assert [a["node"] for a in night["actions"] if a["action"] == "drain"] == ["n3"], night["actions"]
    assert list(nights.drained()) == ["n3"]
    assert nights.drained()["n3"].startswith(f"shakedown: {night['run']}")

    status, night = nights.night()
    assert (status, tuple(night["nodes"])) == (0, ("n1", "n2")), night
    assert "n3" in night["not_idle"]

    day.lab.ssh("n3", ["ip", "link", "set", "fab0", "mtu", "9000"])
    common = ("--log", str(nights.log), "--over", shlex.join(nights.over), "--act")
    partners = ("--partner", "n1", "--partner", "n2")
    begun = nights.call("drain", "begin-retest", "n3", *partners, *common)
    assert begun.returncode == 0, begun.stderr
    only = ("--only", "n1", "--only", "n2", "--only", "n3", "--access=--reservation=shakedown_n3")
    status, night = nights.night(*only)
    assert (status, night["outcome"]) == (0, "PASS"), (night["reason"], night["failed"], night["problems"])
    ended = nights.call("drain", "end-retest", "n3", str(nights.state / "runs" / night["run"]), *common)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert nights.drained() == {}
    assert "shakedown_n3" not in day.lab.ssh("head", ["scontrol", "show", "reservation"]).stdout
    shown = nights.call("history", "show", "--store", str(nights.state / "history"), "--node", "n1", "--json")
    assert all(len(s["runs"]) == 4 for s in json.loads(shown.stdout)["series"])


def test_a_change_between_two_runs_is_named(day):
    """Catches: an effect credited to the upgrade while an MTU changed under it."""
    _, _, before = day.accept("before", "config", "fabric")
    day.lab.ssh("n1", ["ip", "link", "set", "fab0", "mtu", "4500"])
    _, _, after = day.accept("after", "config", "fabric")
    done = ran(BIN / "shakedown", "compare", before, after)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "n1 nic fab0 mtu_bytes: 9000 -> 4500" in done.stdout.splitlines()
    assert not [line for line in done.stdout.splitlines() if not line.startswith("n1 ")], done.stdout


def test_a_preempted_night_is_inconclusive_within_a_minute(day, tmp_path):
    """Catches: a preempted job that hangs the night, counts as measured, or is blamed on its nodes."""
    nights = Nights(day, tmp_path / "state", drain={"act": True})
    taken: list[float] = []

    def preempt() -> None:
        if _wait_for_job(day, "fabric."):
            taken.append(time.time())
            urgent = ["srun", "--partition=urgent", f"--nodelist={','.join(NODES)}", "--nodes=3"]
            urgent += ["--exclusive"]
            day.lab.ssh("head", [*urgent, "sleep", "5"], timeout_s=300)

    night = _while(preempt, nights)
    assert taken, "no perftest job was seen running"
    assert (night["outcome"], night["actions"]) == ("INCONCLUSIVE", []), (night["reason"], night["actions"])
    assert nights.drained() == {}
    ended = _ended(nights, night["run"], "PREEMPTED")
    assert ended, "no job was preempted"
    # Slurm gives a job KillWait seconds, and the guard asks every half second.
    assert min(ended) - taken[0] <= 60, min(ended) - taken[0]


def test_a_night_that_loses_a_node_is_inconclusive(day, tmp_path):
    """Catches: jobs that wait for a dead node for ever, its partners' results lost with it, and healthy nodes
    that are drained for it."""
    nights = Nights(day, tmp_path / "state", drain={"act": True})
    killed: list[float] = []

    def kill() -> None:
        if _wait_for_job(day, "fabric."):
            killed.append(time.time())
            day.lab.fault_kill("n3")

    night = _while(kill, nights)
    assert killed, "no perftest job was seen running"
    assert night["outcome"] == "INCONCLUSIVE", night["reason"]
    assert not [a for a in night["actions"] if a["action"] == "drain" and a["node"] != "n3"], night["actions"]
    assert not {"n1", "n2"} & set(nights.drained())
    # The jobs that had not begun. slurmctld gives a silent node SlurmdTimeout, 60 s; then three looks.
    ended = _ended(nights, night["run"], "CANCELLED")
    assert ended
    assert max(ended) - killed[0] <= 60 + 60, max(ended) - killed[0]
    waited = [line for line in night["failed"] if "cancelled while it waited for its nodes" in line]
    assert waited
    assert all("n3 is " in line for line in waited), waited  # down, or allocated* before Slurm calls it so
    # The job under way went on without the node: what the others measured counts, once.
    run = nights.state / "runs" / night["run"]
    verdict = json.loads((run / "verdict.json").read_text())
    assert not [c for c in verdict["cells"] if "measured twice" in c["reason"]]
    assert [r for r in _jobs_of(run) if r["state"] == "COMPLETED" and "ib_write_bw" in r["test"]]
    values = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert [v for v in values if v["test"] == "ib_write_bw" and v["nodes"] == ["n1", "n2"] and v["value"]]


def _wait_for_job(site, name: str) -> bool:
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        answer = site.lab.ssh("head", ["squeue", "--noheader", "--states=RUNNING", "--format=%j"]).stdout
        if name in answer:
            time.sleep(5)
            return True
        time.sleep(1)
    return False


def _while(act, nights: Nights) -> dict:
    """Make a night while something happens to it."""
    actor = threading.Thread(target=act, daemon=True)
    actor.start()
    _, night = nights.night()
    actor.join(timeout=300)
    return night


def _ended(nights: Nights, run: str, state: str) -> list[float]:
    """Return when jobs that ended in a state were noted."""
    return [_moment(record) for record in _jobs_of(nights.state / "runs" / run) if record["state"] == state]


def _jobs_of(run: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in (run / "raw").glob("*/job.json")]


def _moment(record: dict) -> float:
    began = time.strptime(record["started"], "%Y-%m-%dT%H:%M:%SZ")
    return calendar.timegm(began) + (record["duration_s"] or 0.0)
