"""Leaves and spines: RoCE that is routed over equal-cost ways, healthy and with faults between the switches.

`make test-fabric` runs it (`python -m lab up --site fabric`, inventories/lab_fabric). n1 is under leaf0, n2 under
leaf1, so whatever one sends the other crosses a spine. leaf swp3 goes to spine0, swp4 to spine1; a spine's swp1
goes to leaf0, its swp2 to leaf1. `--repetitions=3` plants each fault three times.
"""

from __future__ import annotations

import re
import time

import pytest
from conftest import NAME, converged
from test_switch_faults import LLDP_S, failed_cells, not_passed

from lab.paths import CHECKOUT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(7200)]

INVENTORY = CHECKOUT / "inventories" / "lab_fabric"
SWITCHES = {"leaf0", "leaf1", "spine0", "spine1"}
# The hold time of BGP, and a reconnection after it (lab/fabric/guest, shakedown-fabric).
ROUTING_S = 90


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    """Two nodes, two leaves and two spines, booted and converged once."""
    folder = tmp_path_factory.mktemp("fabric")
    with converged(2, f"{NAME}-fabric", folder, INVENTORY, site="fabric") as made:
        yield made


@pytest.fixture
def fresh(fabric):
    """It as it was right after the playbook, without faults, both ways open."""
    fabric.restore()
    wait_for_routes(fabric.lab)
    return fabric


@pytest.fixture
def repetitions(request):
    """How often each fault is planted."""
    return range(request.config.getoption("--repetitions"))


def ways(lab, leaf):
    """Return the uplinks by which a leaf reaches the other leaf's rail0, as the kernel forwards."""
    other = {"leaf0": "10.10.1.0/24", "leaf1": "10.10.0.0/24"}[leaf]
    return set(re.findall(r"dev (swp\d+)", lab.ssh(leaf, ["ip", "route", "show", other]).stdout))


def wait_for_routes(lab):
    """Wait until both leaves have two ways to each other."""
    deadline = time.monotonic() + ROUTING_S
    found = {}
    while time.monotonic() < deadline:
        found = {leaf: ways(lab, leaf) for leaf in ("leaf0", "leaf1")}
        if all(each == {"swp3", "swp4"} for each in found.values()):
            return
        time.sleep(2)
    pytest.fail(f"a leaf has not two ways up: {found}")


def places(cells):
    """Return (switch or node, port) of cells, '' where a cell is of no port."""
    parts = [cell.split("/") for cell in cells]
    ports = [re.search(r"port=([^,]+)", part[-1]) for part in parts]
    return {(part[3], found[1] if found else "") for part, found in zip(parts, ports, strict=True)}


def test_flows_take_both_ways_and_second_converge_changes_nothing(fabric):
    """Catches: a fabric in which one spine carries everything, and a task that changes something on every run."""
    wait_for_routes(fabric.lab)
    well, printed = fabric.play("site.yml", plain_ssh=True)
    assert well, printed[-4000:]
    recap = dict(re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", printed, re.MULTILINE))
    assert set(recap) >= {"head", "n1", "n2", *SWITCHES}
    assert set(recap.values()) == {"0"}, recap


def test_healthy_fabric_passes(fresh, repetitions):
    """Catches: any part of the path that does not work over spines, and a cell planned and not measured."""
    for number in repetitions:
        status, verdict, _ = fresh.accept(f"healthy-{number}", "config", "fabric")
        assert (status, verdict["outcome"]) == (0, "PASS"), (verdict["reason"], failed_cells(verdict))


def test_wrong_settings_of_spines_and_uplinks_are_each_named(fresh, repetitions):
    """Catches: a switch beyond the leaf's host ports that drifted from the intent and forwards all the same.

    No ECN on spine0, one uplink of leaf1 in another class, a port of spine1 at a part of its rate.
    """
    wanted = {
        ("spine0", "swp1"): "roce.ecn false -> true",
        ("spine0", "swp2"): "roce.ecn false -> true",
        ("leaf1", "swp3"): '"traffic_class": 1',
        ("spine1", "swp1"): "fa17:",
    }
    for number in repetitions:
        fresh.lab.fault_ecn_off("spine0", "swp1")
        fresh.lab.fault_ecn_off("spine0", "swp2")
        fresh.lab.fault_wrong_dscp_map("leaf1", "swp3")
        fresh.lab.fault_rate("spine1", "swp1", 60)
        status, verdict, _ = fresh.accept(f"settings-{number}", "config")
        assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
        failed = failed_cells(verdict)
        of_settings = [cell for cell in failed if cell.startswith("config/switch_settings/")]
        assert places(of_settings) == set(wanted), failed
        for (switch, port), words in wanted.items():
            reason = failed[f"config/switch_settings/wrong/{switch}/-/-/port={port}"]
            assert f"{switch} {port}: " in reason, reason
            assert words in reason, reason
        assert {switch for switch, _ in places(failed)} <= SWITCHES, failed
        assert fresh.lab.fault_clear()
    status, verdict, _ = fresh.accept("settings-cleared", "config")
    assert not not_passed(verdict, "config/"), verdict["reason"]


def test_swapped_uplinks_and_one_that_is_down_are_named(fresh, repetitions):
    """Catches: cables between switches that changed places, and less capacity: routing goes round both."""
    for number in repetitions:
        fresh.lab.fault_miswire("leaf0", "swp3", "swp4")
        time.sleep(LLDP_S)
        status, verdict, _ = fresh.accept(f"swapped-{number}", "config")
        assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
        failed = failed_cells(verdict)
        for port, other in (("swp3", "spine1"), ("swp4", "spine0")):
            reason = failed[f"config/crosscheck/wrong/leaf0/-/-/port={port},what=cabling"]
            assert f"leaf0/{port} has {other}/swp1 at its other end" in reason, reason
        assert {switch for switch, _ in places(failed)} <= SWITCHES, failed
        assert fresh.lab.fault_clear()
        wait_for_routes(fresh.lab)
        fresh.lab.fault_link_down("leaf1", "swp4")
        time.sleep(4 * LLDP_S)  # until what was heard before is forgotten (tx-hold, 4 × 30 s)
        status, verdict, _ = fresh.accept(f"down-{number}", "config")
        assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
        reasons = {c["cell"]: c["reason"] for c in verdict["cells"]}
        down = reasons["config/crosscheck/wrong/leaf1/-/-/port=swp4,what=cabling"]
        assert "leaf1/swp4" in down, down
        assert {switch for switch, _ in places(failed_cells(verdict))} <= SWITCHES, verdict["reason"]
        assert fresh.lab.fault_clear()
        wait_for_routes(fresh.lab)


def test_loss_on_an_uplink_is_named_by_its_port(fresh, repetitions):
    """Catches: loss between switches that retransmission hides, taken for one of a host's NIC."""
    for number in repetitions:
        fresh.lab.fault_loss("leaf0", "swp3", 2)
        status, verdict, _ = fresh.accept(f"loss-{number}", "fabric")
        assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
        failed = failed_cells(verdict)
        drops = places(cell for cell in failed if "counter.tx_drops" in cell)
        assert drops == {("leaf0", "swp3")}, failed
        assert "leaf0 swp3" in verdict["reason"], verdict["reason"]
        assert fresh.lab.fault_clear()
