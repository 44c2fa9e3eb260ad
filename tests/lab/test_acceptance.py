"""The whole path in the virtual cluster, healthy and with planted faults."""

import re
import threading
import time

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]


def unchanged(site, **options):
    """Play site.yml again and hold that it changed nothing; return the hosts that it looked at."""
    well, printed = site.play("site.yml", **options)
    assert well, printed[-4000:]
    recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", printed, re.MULTILINE)
    changed = re.findall(r"^TASK \[(.*)\] \*+$(?:\n(?!TASK).*)*?\n(changed: .*)$", printed, re.MULTILINE)
    assert all(count == "0" for _, count in recap), (recap, changed)
    return {host for host, _ in recap}


def test_second_converge_changes_nothing(site):
    """Catches: a task that changes something on every run."""
    assert unchanged(site) >= {"head", "n1", "n2", "leaf0"}


def test_second_converge_over_plain_ssh_changes_nothing(site):
    """Catches: what only Mitogen forgives. Sites use plain SSH; here for the settings of one node alone."""
    options = ("--tags", "hosts", "--limit", "head,n1,leaf0")
    assert unchanged(site, plain_ssh=True, options=options) >= {"head", "n1"}


def test_healthy_lab_passes(fresh):
    """Catches: any part of the path that does not work, or a cell that is planned and not measured."""
    status, verdict, run = fresh.accept("healthy")
    bad = verdict["cells"][:10]
    assert (status, verdict["outcome"]) == (0, "PASS"), (verdict["reason"], bad)
    assert verdict["coverage"]["measured"] == verdict["coverage"]["planned"] > 0
    for said in (run / "raw").glob("reframe.*.txt"):
        assert "(0 failure(s)" in said.read_text(encoding="utf-8"), said
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "PASS" in report
    assert (run / "junit.xml").exists()


def test_rail_that_is_down_is_found(fresh):
    """Catches: a dead link passed over because the other rail carries everything."""
    fresh.lab.fault_link_down("n2", "rail1")
    status, verdict, run = fresh.accept("rail-down", "config", "fabric", short=True)
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = [cell for cell in verdict["cells"] if cell["outcome"] == "FAIL"]
    assert any("n2" in cell["reason"] and "rail1" in cell["reason"] for cell in failed), failed
    assert not [cell for cell in failed if "/n1/" in cell["cell"]], failed
    assert "rail1" in (run / "report.html").read_text(encoding="utf-8")


def test_killed_job_is_inconclusive(fresh):
    """Catches: a job cancelled in its middle taken for a good one, or for bad hardware."""
    cancelled: list[str] = []

    def cancel() -> None:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and not cancelled:
            answer = fresh.lab.ssh("head", ["squeue", "--noheader", "--states=RUNNING", "--format=%i %j"])
            for line in answer.stdout.splitlines():
                job, _, name = line.partition(" ")
                if name.startswith("fabric."):
                    time.sleep(5)
                    fresh.lab.ssh("head", ["scancel", job])
                    cancelled.append(job)
                    break
            time.sleep(1)

    killer = threading.Thread(target=cancel, daemon=True)
    killer.start()
    status, verdict, _ = fresh.accept("killed", "fabric", short=True)
    killer.join()
    assert cancelled, "no perftest job was seen running"
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    assert any("CANCELLED" in cell["reason"] for cell in verdict["cells"]), verdict["cells"][:5]


def test_node_that_is_down_before_the_run_is_named(fresh):
    """Catches: a run that waits for ever for a node that Slurm cannot use, or blames its hardware."""
    # Any answer of its daemon takes a node back that is down (ReturnToService=2), also one that was under way
    # when the daemon was stopped: Slurm must have asked once in vain before the node is called down.
    assert fresh.lab.ssh("n2", ["systemctl", "stop", "slurmd"]).returncode == 0
    fresh.wait_for_nodes("n2", lambda state: state.endswith("*"), "Slurm does not see that n2 is silent")
    update = ["scontrol", "update", "nodename=n2", "state=down", "reason=planted"]
    assert fresh.lab.ssh("head", update).returncode == 0
    status, verdict, _ = fresh.accept("node-down", "config", "fabric", short=True)
    assert status == 3, verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    reasons = {
        cell["reason"]
        for cell in verdict["cells"]
        if cell["cell"].startswith("fabric/") and "/n1,n2/" in cell["cell"]
    }
    assert reasons
    down = re.compile(r"n2: it is down( and does not respond)? \(planted\)")
    others = sorted(reason for reason in reasons if not down.search(reason))
    assert not others, others
