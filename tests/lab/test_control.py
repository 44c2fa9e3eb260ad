"""What ends, cuts off or doubles a run in the virtual cluster: a dead slurmctld, a killed playbook."""

import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import NAME, converged, inventory_with

from lab.acceptance import BIN, environment
from lab.paths import CHECKOUT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

SILENT_S = 60
ACCEPTANCE = {
    # Long enough to be met in its middle, and to run still when the next start looks, a minute later.
    "perftest": [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 12000}],
    "mpi": {"transport": "tcp", "pingpong": {"min_bytes": 16384, "max_bytes": 65536, "iterations": 10}},
    "measurement_timeout_s": 300,
    "qp_timeout": 19,
    "waits": {"slurm_silent_s": SILENT_S, "queue_s": 600},
}


@pytest.fixture(scope="module")
def control_site(tmp_path_factory):
    """A lab of two nodes where Slurm may be silent for a minute."""
    folder = tmp_path_factory.mktemp("control")
    inventory = inventory_with(folder, acceptance={"acceptance": ACCEPTANCE})
    with converged(2, NAME, folder, inventory) as made:
        yield made


@pytest.fixture
def lab_site(control_site):
    """That lab as it was right after the playbook, with slurmctld up whatever a test did."""
    control_site.restore()
    return control_site


def when_a_job_runs(site, act, *, after_s: float = 5) -> threading.Thread:
    """Do something once, so many seconds into the first fabric job."""

    def watch() -> None:
        look = ["squeue", "--noheader", "--states=RUNNING", "--format=%j"]
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline:
            if site.lab.ssh("head", look).stdout.startswith("fabric."):
                time.sleep(after_s)
                act()
                return
            time.sleep(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def kill_slurmctld(site) -> None:
    """As a crash does; systemd is kept from starting it again."""
    mask = ["systemctl", "mask", "--runtime", "slurmctld"]
    assert site.lab.ssh("head", mask).returncode == 0
    assert site.lab.ssh("head", ["pkill", "-KILL", "slurmctld"]).returncode == 0


def start_slurmctld(site) -> None:
    """As an administrator does."""
    assert site.lab.ssh("head", ["systemctl", "unmask", "--runtime", "slurmctld"]).returncode == 0
    assert site.lab.ssh("head", ["systemctl", "restart", "slurmctld"]).returncode == 0


def test_a_dead_slurmctld_ends_the_run(lab_site):
    """Catches: ReFrame that spins for ever, a traceback, or nodes blamed, where slurmctld died midway."""
    killer = when_a_job_runs(lab_site, lambda: kill_slurmctld(lab_site))
    status, verdict, run = lab_site.accept("dead", "fabric")
    killer.join(10)
    start_slurmctld(lab_site)
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    said = f"Slurm has not answered for {SILENT_S} s"
    assert any(said in cell["reason"] for cell in verdict["cells"]), verdict["cells"][:5]
    assert said in (run / "report.html").read_text(encoding="utf-8")
    assert "Traceback" not in (run / "raw/reframe.fabric.txt").read_text(encoding="utf-8")


# On a node: holds the step that reads counters, whose end the job's next step waits for; lets it go on.
_COUNTERS = "onnode[.]counters before"
_HOLD = f"for i in $(seq 300); do pkill -STOP -f '{_COUNTERS}' && exit; sleep 0.2; done; exit 1"


def test_a_slurmctld_that_comes_back_costs_nothing(lab_site):
    """Catches: a good job lost to 20 s without slurmctld, at its next step too, or the next one to nodes that
    it has not heard."""

    def away() -> None:
        assert lab_site.lab.ssh("n2", ["sh", "-c", _HOLD]).returncode == 0
        time.sleep(10)  # Slurm saves what it knows of the job
        kill_slurmctld(lab_site)
        assert lab_site.lab.ssh("n2", ["pkill", "-CONT", "-f", _COUNTERS]).returncode == 0
        time.sleep(20)
        start_slurmctld(lab_site)

    killer = when_a_job_runs(lab_site, away, after_s=0)
    status, verdict, run = lab_site.accept("back")
    killer.join(120)
    assert (status, verdict["outcome"]) == (0, "PASS"), (verdict["reason"], verdict["cells"][:5])
    said = "".join(path.read_text(encoding="utf-8") for path in run.glob("raw/fabric.*/rfm_job.err"))
    assert "shakedown: waiting for Slurm" in said, "no step began while slurmctld was away"


def _start(site, run: str) -> subprocess.Popen[bytes]:
    argv = [BIN / "ansible-playbook", "-i", site.inventory, "playbooks/acceptance.yml"]
    options = ["-e", f"run_root={site.folder}", "-e", f"run_id={run}"]
    with (site.folder / f"{run}.killed.log").open("wb") as log:
        return subprocess.Popen(
            [*map(str, argv), *options],
            cwd=CHECKOUT,
            env=environment(site.lab.name, site.wheels),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _kill(child: subprocess.Popen[bytes]) -> None:
    """As the kernel does where memory is short: ansible-playbook alone."""
    os.kill(child.pid, signal.SIGKILL)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does: every process of the terminal."""
    os.killpg(child.pid, signal.SIGINT)


def _again(site, run: str, *more: str) -> tuple[bool, str]:
    options = ["-e", f"run_root={site.folder}", *(w for m in more for w in ("-e", m))]
    well, said = site.play("acceptance.yml", run_id=run, options=tuple(options))
    return well, " ".join(said.split())


def _queue(site) -> str:
    return site.lab.ssh("head", ["squeue", "--noheader", "--format=%i"]).stdout.strip()


def test_a_killed_playbook_is_gone_on_with_or_ended(lab_site):
    """Catches: two runs on one cluster, a run lost to a kill or Ctrl-C, a cancelled one that measures on."""
    for first, second, end in (("first", "second", _kill), ("third", "fourth", _interrupt)):
        run, other = lab_site.unused(first), lab_site.unused(second)
        child = _start(lab_site, run)
        killer = when_a_job_runs(lab_site, lambda child=child, end=end: end(child))
        assert child.wait(timeout=1200) != 0
        killer.join(10)
        well, said = _again(lab_site, other)
        assert not well
        for words in (f"run {run} of ", f"-e run_id={run} -e run_under_way=resume", "run_under_way=cancel"):
            assert words in said, said[-3000:]
        if first == "first":
            well, said = _again(lab_site, run, "run_under_way=resume")
            assert well, said[-3000:]
            assert "PASS" in said
        else:
            well, said = _again(
                lab_site, lab_site.unused("fifth"), "run_under_way=cancel", "acceptance_stages=collective"
            )
            assert well, said[-3000:]
            assert f"run {run} of " in said
            assert "was ended" in said
            assert "PASS collective only: not an acceptance of the site" in said
        assert _queue(lab_site) == ""
        assert lab_site.lab.ssh("head", ["test", "-e", "/shared/shakedown/run.lock"]).returncode == 1
        left = lab_site.lab.ssh("head", ["pgrep", "-f", "shakedown/run[s]/.*/reframe"])
        assert left.stdout == ""
