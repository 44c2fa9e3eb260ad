"""What needs neither RDMA nor a kernel of its own: two nodes as namespaces of this host. Needs root."""

import os
import re
import threading
import time

import pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of a whole machine need root"),
    pytest.mark.timeout(1200),
]


def test_second_converge_without_mitogen_changes_nothing(spaces):
    """Catches: a task that changes something on every run, or that only Mitogen forgives."""
    assert spaces.unchanged(plain_ssh=True) >= {"head", "n1", "n2"}


def test_killed_job_is_inconclusive(spaces):
    """Catches: a job cancelled in its middle taken for a good one, or for bad hardware."""
    cancelled: list[str] = []

    def cancel() -> None:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and not cancelled:
            answer = spaces.lab.ssh("head", ["squeue", "--noheader", "--states=RUNNING", "--format=%i %j"])
            for line in answer.stdout.splitlines():
                job, _, name = line.partition(" ")
                if name.startswith("collective."):
                    spaces.lab.ssh("head", ["scancel", job])
                    cancelled.append(job)
                    break
            time.sleep(0.1)

    killer = threading.Thread(target=cancel, daemon=True)
    killer.start()
    status, verdict, _ = spaces.accept("killed")
    killer.join()
    assert cancelled, "no job was seen running"
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    assert any("CANCELLED" in cell["reason"] for cell in verdict["cells"]), verdict["cells"][:5]


def test_a_way_that_strays_in_the_middle_of_a_job_is_named(spaces):
    """Catches: a PASS of a job whose traffic a new route sends around its rail, after its first look."""
    began = "until ls /shared/shakedown/runs/strays*/raw/*/tcp.n1.json >/dev/null 2>&1; do sleep 0.05; done"
    plant = ["timeout", "600", "sh", "-c", f"{began}; ip route add 10.10.0.2/32 dev fab1"]
    planter = threading.Thread(
        target=spaces.lab.ssh, args=("n1", plant), kwargs={"timeout_s": 600}, daemon=True
    )
    planter.start()
    try:
        status, verdict, run = spaces.accept("strays")
    finally:
        spaces.lab.ssh("n1", ["ip", "route", "del", "10.10.0.2/32"])
    assert (run / "raw/collective.mpi_allreduce.a1/rails.json").is_file()
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert "n1 fab0 (rail0): n2's 10.10.0.2 is reached over fab1" in verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]


def test_a_node_whose_rail_went_down_is_drained_by_slurm_and_comes_back(spaces):
    """Catches: a rail that dies between runs on a node that still gets jobs, or never comes back."""
    well, printed = spaces.play("health.yml", options=("-e", "node_health_hold_s=0"))
    assert well, printed[-4000:]
    lines = "HealthCheckProgram=/usr/local/sbin/shakedown-health\\nHealthCheckInterval=5"
    conf, machines = "/etc/slurm/slurm.conf", ("head", "n1", "n2")

    def configure(change: str) -> None:
        for machine in machines:
            assert spaces.lab.ssh(machine, ["sh", "-c", change]).returncode == 0
        assert spaces.lab.ssh("head", ["scontrol", "reconfigure"]).returncode == 0

    configure(f"cp -p {conf} {conf}.was && printf '{lines}\\n' >> {conf}")
    try:
        spaces.lab.fault("link-down", "n2", "rail1")
        spaces.wait_for_nodes("n2", lambda state: state.startswith("drain"), "n2 is not drained")
        said = spaces.lab.ssh("head", ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"]).stdout.split(
            "\n"
        )
        assert "n2|drained|shakedown-health: fab1: link down, up accepted" in said
        assert "n1|idle|none" in said
        spaces.lab.fault_clear()
        spaces.wait_for_nodes("n2", lambda state: state == "idle", "n2 does not come back")
    finally:
        spaces.lab.fault_clear()
        configure(f"mv {conf}.was {conf}")


def test_node_that_is_down_before_the_run_is_named(spaces):
    """Catches: a run that waits for ever for a node that Slurm cannot use, or blames its hardware."""
    # Any answer of its daemon takes a node back that is down (ReturnToService=2).
    assert spaces.lab.ssh("n2", ["pkill", "-KILL", "-x", "slurmd"]).returncode == 0
    update = ["scontrol", "update", "nodename=n2", "state=down", "reason=planted"]
    assert spaces.lab.ssh("head", update).returncode == 0
    status, verdict, _ = spaces.accept("node-down")
    assert status == 3, verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    reasons = {cell["reason"] for cell in verdict["cells"] if "/n1,n2/" in cell["cell"]}
    assert reasons
    down = re.compile(r"n2: it is down( and does not respond)? \(planted\)")
    others = sorted(reason for reason in reasons if not down.search(reason))
    assert not others, others
