"""Faults of links and NICs that only counters tell: each is named by its counter, at its node and rail."""

from __future__ import annotations

import json
import threading
import time

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]

FRAMES = 500


def failed_counters(verdict):
    """(counter, node, rail) of the failed cells that are a NIC's counter, and the other failed cells."""
    found, others = set(), []
    for cell in verdict["cells"]:
        if cell["outcome"] == "FAIL":
            _, _, metric, node, rail, *_ = cell["cell"].split("/")
            if metric.startswith("counter."):
                found.add((metric.removeprefix("counter."), node, rail))
            else:
                others.append(cell["cell"])
    return found, others


def grown(run, node, rail, counter):
    """How far a counter of a NIC grew over all jobs of a run."""
    lines = (run / "counters.jsonl").read_text().splitlines()
    return sum(
        reading["after"] - reading["before"]
        for reading in map(json.loads, lines)
        if (reading["kind"], reading["device"], reading["rail"]) == ("nic", node, rail)
        and reading["counter"] == counter
        and None not in (reading["before"], reading["after"])
    )


def in_mid_test(site, act):
    """Do something once, a few seconds into the first fabric job; returns the thread and what it gave."""
    done = []

    def watch() -> None:
        look = ["squeue", "--noheader", "--states=RUNNING", "--format=%j"]
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline and not done:
            if site.lab.ssh("head", look).stdout.startswith("fabric."):
                time.sleep(5)
                done.append(act())
            time.sleep(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread, done


def test_packets_out_of_order_are_named_by_the_receivers_counter(fresh):
    """Catches: reordering that costs a rate and is told as slow; the other rail blamed beside."""
    fresh.lab.fault_reorder("n1", "rail0", 25)
    status, verdict, _ = fresh.accept("reordered", "fabric")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    found, _ = failed_counters(verdict)
    assert ("rdma.out_of_seq_request", "n1", "rail0") in found, found
    assert {rail for _, _, rail in found} == {"rail0"}, found
    assert fresh.lab.fault_clear()


def test_a_flap_of_two_seconds_in_mid_test_is_named_by_link_downed(fresh):
    """Catches: a link that was down for a moment, which retries hide and no rate shows."""
    thread, done = in_mid_test(fresh, lambda: fresh.lab.fault_flap("n1", "rail0", 2.0))
    status, verdict, _ = fresh.accept("flap", "fabric")
    thread.join(timeout=30)
    assert done, "no fabric job was seen running"
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    found, _ = failed_counters(verdict)
    assert ("rdma.link_downed", "n1", "rail0") in found, found
    assert {(node, rail) for counter, node, rail in found if counter == "rdma.link_downed"} == {
        ("n1", "rail0")
    }, found


def test_a_small_receive_ring_is_named_at_its_nic_or_costs_nothing(fresh):
    """Catches: loss for want of receive buffers that is laid on the sender or on the other rail."""
    small = fresh.lab.ssh("n1", ["ethtool", "-G", "fab0", "rx", "16"])
    if small.returncode != 0:
        pytest.skip(f"the guest's NIC takes no ring size: {small.stderr.strip()}")
    fresh.lab.fault_small_rx_ring("n1", "rail0", 16)
    _, verdict, run = fresh.accept("small-ring", "fabric")
    found, others = failed_counters(verdict)
    # Where the machine's NIC waits for a buffer, nothing is lost; where it drops, these count it.
    names = ("rdma.out_of_seq_request", "netdev.rx_dropped")
    lost = {name: grown(run, "n1", "rail0", name) for name in names}
    if not any(lost.values()):
        assert not found and not others, (found, others)
    assert {rail for _, _, rail in found} <= {"rail0"}, found
    assert bool(found) is bool(lost["rdma.out_of_seq_request"]), (found, lost)
    assert fresh.lab.fault_clear()


def test_pause_frames_are_counted_where_they_arrive_and_blame_nobody(fresh):
    """Catches: frames of a neighbour that sends PFC, which a NIC without it drops, taken for lost RoCE."""
    thread, done = in_mid_test(fresh, lambda: fresh.lab.fault_pause_frames("n1", "rail0", FRAMES))
    status, verdict, run = fresh.accept("paused", "fabric")
    thread.join(timeout=30)
    assert done, "no fabric job was seen running"
    assert (status, verdict["outcome"]) == (0, "PASS"), verdict["reason"]
    # virtio-net knows no pause: the kernel finds no protocol for the frames, and says so of this NIC alone.
    assert grown(run, "n1", "rail0", "netdev.rx_dropped") >= FRAMES
    assert grown(run, "n1", "rail1", "netdev.rx_dropped") < FRAMES
