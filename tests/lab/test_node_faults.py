"""Faults of a node, and a leaf that cannot be reached: the right verdict, and the right name first."""

import re
import shutil
import subprocess
import time

import pytest

from lab.acceptance import BIN
from shakedown.judge.judged import judge_folder

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

SWITCHES = "raw/switches.config"


def cells_of(verdict, *outcomes):
    """Reasons of the cells of these outcomes, by cell."""
    return {c["cell"]: c["reason"] for c in verdict["cells"] if c["outcome"] in outcomes}


@pytest.mark.parametrize(
    ("seconds", "way", "munge"), [(3600, "ahead of", "Expired credential"), (-90, "behind", None)]
)
def test_a_clock_that_is_off_is_named(fresh, seconds, way, munge):
    """Catches: Slurm's state of the node, or nothing, told of a node whose clock is off."""
    fresh.lab.fault_clock("n2", seconds)
    status, verdict, _ = fresh.accept(f"clock{seconds}", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = cells_of(verdict, "FAIL")
    assert list(failed) == ["config/clock/offset/n2/-/-/-"], failed
    assert verdict["reason"].startswith("n2's clock is "), verdict["reason"]
    assert f" s {way} head's" in verdict["reason"]
    off = float(verdict["reason"].removeprefix("n2's clock is ").partition(" ")[0])
    assert abs(off - abs(seconds)) < 5
    if munge:
        assert munge in failed["config/clock/offset/n2/-/-/-"]
    assert fresh.lab.fault_clear()


def test_a_stage_that_is_read_only_names_its_node_and_spares_the_others(fresh):
    """Catches: `n1 settings ... found "106", wanted "106"` in place of n2's read-only stage."""
    fresh.lab.fault_stage_readonly("n2")
    status, verdict, _ = fresh.accept("readonly", "config")
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    bad = cells_of(verdict, "FAIL", "INCONCLUSIVE")
    assert bad
    assert all("n2" in cell.split("/")[3].split(",") for cell in bad), bad
    assert all("Read-only file system" in reason for reason in bad.values()), bad
    assert "n2: cannot write its outputs" in verdict["reason"]
    assert "Read-only file system" in verdict["reason"]
    not_run = cells_of(verdict, "NOT-RUN").items()
    of_n1 = [c for c, why in not_run if c.startswith("config/") and "/n1/" in c and "not required" not in why]
    assert not of_n1
    assert fresh.lab.fault_clear()


def test_a_second_owner_of_an_address_is_named(fresh):
    """Catches: an address with two owners, which passes, or is a connection that is refused now and then."""
    fresh.lab.fault_duplicate_address("n2", "rail0")
    bridge = fresh.lab.ssh("leaf0", ["cat", "/sys/class/net/br-rail0/address"]).stdout.strip()
    status, verdict, _ = fresh.accept("duplicate", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = cells_of(verdict, "FAIL")
    words = "10.10.0.2 on rail0 is owned by n2 (52:54:00:0c:02:00) and by " + bridge
    assert verdict["reason"].startswith(words), verdict["reason"]
    assert "config/settings/wrong/n2/rail0/-/setting=ipv4.duplicates" in failed, failed
    assert all(words in reason for reason in failed.values()), failed
    assert fresh.lab.fault_clear()


def test_loss_that_a_node_sends_names_that_node(fresh):
    """Catches: the receiver blamed, whose NIC only counts what the sender lost."""
    netem = "tc qdisc replace dev fab0 root netem loss 2%"
    assert fresh.lab.ssh("n2", ["sh", "-c", netem]).returncode == 0
    status, verdict, _ = fresh.accept("lost-by-sender", "fabric")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    assert re.match(r"n2 rail0 tx: n1 missed \d+ packets, the leaf dropped none", verdict["reason"]), verdict[
        "reason"
    ]


def test_a_second_machine_of_one_name_is_named(fresh):
    """Catches: good cables blamed because a second machine calls itself n1."""
    impostor = ["lldpcli", "configure", "system", "hostname", "n1"]
    assert fresh.lab.ssh("n2", impostor).returncode == 0
    assert fresh.lab.ssh("n2", ["lldpcli", "update"]).returncode == 0
    time.sleep(10)  # until the leaf has what lldpd sends at once
    status, verdict, _ = fresh.accept("two-of-one-name", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    assert verdict["reason"].startswith("n1 is heard on "), verdict["reason"]
    assert "two machines with one name" in verdict["reason"]


def test_a_leaf_that_cannot_be_reached_is_not_run_whatever_was_read_before(fresh):
    """Catches: PASS from what an earlier run read of the leaf, when today it cannot be reached."""
    _, verdict, earlier = fresh.accept("leaf-there", "config")
    assert not cells_of(verdict, "FAIL", "INCONCLUSIVE"), verdict["reason"]
    assert (earlier / SWITCHES / "leaf0.after.json").exists()
    fresh.lab.fault_kill("leaf0")
    _, verdict, run = fresh.accept("leaf-away", "config")
    assert verdict["outcome"] in ("INCONCLUSIVE", "NOT-RUN"), verdict["reason"]
    assert "leaf0" in verdict["reason"]
    bad = {c["cell"]: c["outcome"] for c in verdict["cells"] if c["cell"].startswith("config/")}
    # Nothing crosses a leaf that is off: no class arrives, and no neighbour answers; all else is what it
    # was asked.
    unsent = {cell for cell in bad if "/traffic_class/" in cell}
    assert {bad[cell] for cell in unsent} <= {"INCONCLUSIVE"}, bad
    unheard = {cell for cell in bad if cell.endswith("setting=ipv4.neighbours")}
    assert {bad[cell] for cell in unheard} <= {"NOT-RUN"}, bad
    unread = set(bad) - unsent - unheard
    assert {cell for cell in unread if "/leaf0/" in cell}
    assert {bad[cell] for cell in unread} == {"NOT-RUN"}, bad
    assert all("/leaf0/" in cell or "/crosscheck/" in cell for cell in unread), bad
    assert not list(run.glob(f"{SWITCHES}/leaf0.*")), "nothing was read, and nothing lies there"
    # The earlier run's counters, laid there by hand, are of another time.
    (run / SWITCHES).mkdir(parents=True, exist_ok=True)
    for when in ("before", "after"):
        shutil.copy(earlier / SWITCHES / f"leaf0.{when}.json", run / SWITCHES)
    shakedown = [BIN / "shakedown", "collect", run]
    assert subprocess.run(shakedown, check=False, capture_output=True).returncode == 0
    assert judge_folder(run).outcome != "PASS"
