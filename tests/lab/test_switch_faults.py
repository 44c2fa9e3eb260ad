"""Faults of the switch: each is caught, and the switch and the port are named, and no other port."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

# lldpd says what is at its ports every 30 s (tx-interval), and at once after a start.
LLDP_S = 40


def failed_cells(verdict):
    """Reasons of the failed cells, by cell."""
    return {c["cell"]: c["reason"] for c in verdict["cells"] if c["outcome"] == "FAIL"}


def arrives(direction, rail):
    """The cell of what one node receives from the other."""
    params = "rails_at_once=all,size_bytes=65536"
    return f"config/traffic_class/share/n1,n2/{rail}/{direction}/{params}"


def not_passed(verdict, stage):
    """Return the required cells of a stage that did not pass."""
    cells = [c for c in verdict["cells"] if c["cell"].startswith(stage)]
    return [c["cell"] for c in cells if not c["reason"].endswith("(not required)")]


@pytest.fixture(scope="module")
def rewritten(site):
    """One run of the config stage: rail0 rewritten, each direction otherwise, and rail1's cables swapped.

    n2 gets DSCP 0, n1 gets Not-ECT. Swapped cables carry everything.
    """
    site.restore()
    site.lab.fault_rewrite_dscp("n2", "rail0")
    site.lab.fault_bleach_ecn("n1", "rail0")
    site.lab.fault_miswire("n1", "n2", "rail1")
    time.sleep(LLDP_S)
    status, verdict, _ = site.accept("rewritten", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    return verdict


def test_a_port_that_changes_what_it_sends_is_found_by_the_receiver(rewritten):
    """Catches: a switch whose every setting reads as wanted, and that sends RoCE on as something else.

    No other cell of the stage notices, so without these two the stage would pass.
    """
    failed = failed_cells(rewritten)
    found = {cell for cell in not_passed(rewritten, "config/") if "/rail1/" not in cell}
    assert found == {arrives("forward", "rail0"), arrives("reverse", "rail0")}, found
    assert (
        "n2/rail0 receives n1's RoCE with DSCP 0, wanted 26: rewritten on the way, leaf0 swp1 to leaf0 swp2, "
        "whose settings read as wanted"
    ) in failed[arrives("forward", "rail0")]
    bleached = failed[arrives("reverse", "rail0")]
    assert "n1/rail0 receives n2's RoCE with DSCP 26 and Not-ECT, wanted ECT(0)" in bleached


def test_swapped_cables_are_named(rewritten):
    """Catches: two cables that changed places, which every bandwidth test passes."""
    failed = failed_cells(rewritten)
    cells = {f"config/crosscheck/wrong/{node}/rail1/-/what=cabling" for node in ("n1", "n2")}
    assert {cell for cell in not_passed(rewritten, "config/") if "/rail1/" in cell} == cells
    for node, port, other in (("n1", "swp3", "n2"), ("n2", "swp4", "n1")):
        reason = failed[f"config/crosscheck/wrong/{node}/rail1/-/what=cabling"]
        assert f"cabling of {node}/fab1 and leaf0/{port} by plan" in reason
        assert f"leaf0/{port} has {other}/fab1 at its other end" in reason


def test_loss_and_a_dead_pace_are_seen_at_their_rail(fresh):
    """Catches: loss that retransmission hides, and a port that holds everything back."""
    fresh.lab.fault_loss("n2", "rail0", 2)
    fresh.lab.fault_delay("n1", "rail1", 220)  # twice what a ping-pong may take one way
    status, verdict, _ = fresh.accept("loss-and-delay", "fabric")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = failed_cells(verdict)
    assert "fabric/switches/counter.tx_drops/leaf0/rail0/-/port=swp2" in failed, failed
    assert [c for c in failed if "latency_typical" in c and "/rail1/" in c], failed
    assert not [c for c in failed if "counter.tx_drops" in c and "port=swp2" not in c], failed
