"""Faults of the switch: each is caught, and the switch and the port are named, and no other port."""

import time

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

# lldpd says what is at its ports every 30 s (tx-interval), and at once after a start.
LLDP_S = 40


def failed_cells(verdict):
    """Reasons of the failed cells, by cell."""
    return {c["cell"]: c["reason"] for c in verdict["cells"] if c["outcome"] == "FAIL"}


def settings_of(port, rail):
    """The cell of a port's settings."""
    return f"config/switch_settings/wrong/leaf0/{rail}/-/port={port}"


def test_wrong_settings_of_four_ports_are_each_named(fresh):
    """Catches: a switch that drifted from the intent and forwards all the same.

    ECN off, a wrong DSCP map, a small MTU and a shaped port, one on each port: swp1 and swp2 are rail0 of n1
    and n2, swp3 and swp4 their rail1.
    """
    fresh.lab.fault_ecn_off("n1", "rail0")
    fresh.lab.fault_wrong_dscp_map("n2", "rail0")
    fresh.lab.fault_port_mtu("n1", "rail1", 1500)
    fresh.lab.fault_rate("n2", "rail1", 40)
    status, verdict, _ = fresh.accept("switch-settings", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = failed_cells(verdict)
    for port, rail, words in (
        ("swp1", "rail0", "roce.ecn false -> true"),
        ("swp2", "rail0", '"traffic_class": 1'),
        ("swp3", "rail1", "mtu: 1500 -> 9000"),
        ("swp4", "rail1", "fa17:"),
    ):
        assert words in failed.get(settings_of(port, rail), ""), (port, failed)
        assert f"leaf0 {port}: " in failed[settings_of(port, rail)]
    # Both ends of the cable, where the host has a setting to hold against the port's.
    mtu = failed["config/crosscheck/wrong/n1/rail1/-/what=mtu"]
    assert "n1/fab1 has 9000 bytes, leaf0/swp3 has 1500 bytes" in mtu
    dscp = failed["config/crosscheck/wrong/n2/rail0/-/what=dscp.26"]
    assert "n2/fab0 has class 3, leaf0/swp2 has class 1" in dscp
    expected = 4 + 2
    assert len([c for c in failed if "switch_settings" in c or "crosscheck" in c]) == expected, failed
    assert fresh.lab.fault_clear()
    status, verdict, _ = fresh.accept("switch-settings-cleared", "config")
    assert not failed_cells(verdict), verdict["reason"]


def arrives(direction, rail):
    """The cell of what one node receives from the other."""
    params = "rails_at_once=all,size_bytes=65536"
    return f"config/traffic_class/share/n1,n2/{rail}/{direction}/{params}"


def not_passed(verdict, stage):
    """Return the required cells of a stage that did not pass."""
    cells = [c for c in verdict["cells"] if c["cell"].startswith(stage)]
    return [c["cell"] for c in cells if not c["reason"].endswith("(not required)")]


def test_a_port_that_changes_what_it_sends_is_found_by_the_receiver(fresh):
    """Catches: a switch whose every setting reads as wanted, and that sends RoCE on as something else.

    rail0 of n2 gets DSCP 0, rail1 of n1 gets Not-ECT; both other ways stay whole. No other cell of the stage
    notices, so without these two the stage would pass.
    """
    fresh.lab.fault_rewrite_dscp("n2", "rail0")
    fresh.lab.fault_bleach_ecn("n1", "rail1")
    status, verdict, _ = fresh.accept("rewritten", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = failed_cells(verdict)
    assert set(failed) == {arrives("forward", "rail0"), arrives("reverse", "rail1")}, failed
    rewritten = (
        "n2/rail0 receives n1's RoCE with DSCP 0, wanted 26: rewritten on the way, leaf0 swp1 to leaf0 swp2, "
        "whose settings read as wanted"
    )
    assert rewritten in failed[arrives("forward", "rail0")]
    assert (
        "n1/rail1 receives n2's RoCE with DSCP 26 and Not-ECT, wanted ECT(0)"
        in (failed[arrives("reverse", "rail1")])
    )
    assert set(not_passed(verdict, "config/")) == set(failed)
    assert fresh.lab.fault_clear()


def test_swapped_cables_and_a_port_that_is_shut_are_named(fresh):
    """Catches: two cables that changed places, which every bandwidth test passes, and a port that is shut."""
    fresh.lab.fault_miswire("n1", "n2", "rail0")
    fresh.lab.fault_port_down("n2", "rail1")
    time.sleep(LLDP_S)
    status, verdict, _ = fresh.accept("miswired", "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = failed_cells(verdict)
    for node, port, other in (("n1", "swp1", "n2"), ("n2", "swp2", "n1")):
        reason = failed[f"config/crosscheck/wrong/{node}/rail0/-/what=cabling"]
        assert f"cabling of {node}/fab0 and leaf0/{port} by plan" in reason
        assert f"leaf0/{port} has {other}/fab0 at its other end" in reason
    shut = "config/crosscheck/wrong/n2/rail1/-/what=cabling"
    reasons = {c["cell"]: c["reason"] for c in verdict["cells"]}
    assert "leaf0/swp4 heard no LLDP neighbour" in reasons[shut], reasons.get(shut)
    assert not [c for c in failed if c.startswith("config/crosscheck") and "/n1/rail1/" in c]


def test_roce_outside_the_roce_queue_is_counted_at_its_port(fresh):
    """Catches: RoCE bytes in a lossy queue, which no rate shows on an idle fabric. By counters."""
    fresh.lab.fault_wrong_dscp_map("n1", "rail0")
    status, verdict, _ = fresh.accept("wrong-queue", "fabric")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = failed_cells(verdict)
    for counter in ("roce_misclassified_rx_packets", "roce_rx_packets"):
        assert f"fabric/switches/counter.{counter}/leaf0/rail0/-/port=swp1" in failed, failed
    assert not [c for c in failed if "misclassified" in c and "port=swp1" not in c], failed


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
