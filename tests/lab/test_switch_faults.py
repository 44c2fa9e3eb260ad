"""Faults of the switch: each is caught, and the switch and the port are named, and no other port."""

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]


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
    site.clear()
    site.lab.fault_rewrite_dscp("n2", "rail0")
    site.lab.fault_bleach_ecn("n1", "rail0")
    site.lab.fault_miswire("n1", "n2", "rail1")
    site.tell_neighbours()
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


@pytest.fixture(scope="module")
def counted(site):
    """One run with three faults at three ports: its failed cells, and its report.

    Loss into n1 on rail0 (swp1), RoCE of n2 in another queue on rail0 (swp2), and a port to n1 on rail1 that
    holds everything back (swp3): for twice what a ping-pong may take one way.
    """
    site.clear()
    site.lab.fault_loss("n1", "rail0", 2)
    site.lab.fault_wrong_dscp_map("n2", "rail0")
    site.lab.fault_delay("n1", "rail1", 220)
    status, verdict, run = site.accept("counted", "config", "fabric", short=True)
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    return failed_cells(verdict), (run / "report.html").read_text(encoding="utf-8")


def of(failed, *words):
    """The failed cells with all of these words in their names."""
    return {cell for cell in failed if all(word in cell for word in words)}


def test_loss_on_a_leaf_port_is_found(counted):
    """Catches: loss that retransmission hides from every bandwidth figure."""
    failed, report = counted
    assert of(failed, "counter.rdma.out_of_seq_request/n1/rail0"), failed
    assert of(failed, "counter.tx_drops") == {"fabric/switches/counter.tx_drops/leaf0/rail0/-/port=swp1"}
    assert not of(failed, "counter.", "/rail1/"), failed
    assert "n1" in report
    assert "rail0" in report


def test_roce_outside_the_roce_queue_is_counted_at_its_port(counted):
    """Catches: RoCE bytes in a lossy queue, which no rate shows on an idle fabric. By counters."""
    failed, _ = counted
    for counter in ("roce_misclassified_rx_packets", "roce_rx_packets"):
        mine = {f"fabric/switches/counter.{counter}/leaf0/rail0/-/port=swp2"}
        assert of(failed, f"counter.{counter}/") == mine, failed


def test_what_is_counted_and_what_is_set_name_the_same_ports(counted):
    """Catches: settings that are read back from another port than the one whose counters move."""
    failed, _ = counted
    ports = {f"rail{rail}/-/port={port}" for rail, port in ((0, "swp1"), (0, "swp2"), (1, "swp3"))}
    assert of(failed, "config/switch") == {f"config/switch_settings/wrong/leaf0/{port}" for port in ports}
    assert of(failed, "config/crosscheck") == {"config/crosscheck/wrong/n2/rail0/-/what=dscp.26"}


def test_a_dead_pace_is_seen_at_its_rail(counted):
    """Catches: a port that holds everything back and loses nothing, beside one that loses."""
    failed, _ = counted
    slow = of(failed, "latency_typical")
    assert slow and all("/rail1/" in cell for cell in slow), failed
