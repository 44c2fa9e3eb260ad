"""Who is told to have lost packets, where the receivers that miss them are counted."""

from itertools import combinations

import pytest

from shakedown.judge.losses import Losses
from shakedown.records.base import Stage
from tests.kit import records

FOUR = ("n1", "n2", "n3", "n4")


def reading(kind, node, counter, delta):
    """A counter of a node's NIC, or of the leaf's port of that node."""
    nic = kind == "nic"
    return records.counter(
        test="ib_write_bw" if nic else "switches",
        kind=kind,
        device=node if nic else "leaf0",
        port="mlx5_0" if nic else f"to-{node}",
        rail="rail0",
        peer="leaf0/p" if nic else f"{node}/fab0",
        counter=counter,
        after=delta,
    )


def told(missed, pairs, *others, nodes=FOUR):
    """Say who lost what the nodes missed, with every NIC and port read, and these readings beside."""
    losses = Losses()
    quiet = [
        reading(k, n, c, 0) for n in nodes for k, c in (("nic", "rx_discards"), ("switch_port", "tx_drops"))
    ]
    counted = [reading("nic", node, "out_of_sequence", n) for node, n in missed.items()]
    for one in (*quiet, *counted, *others):
        losses.add(one)
    return losses.told(Stage.FABRIC, "ib_write_bw", "rail0", min(missed), pairs)


ALL = list(combinations(FOUR, 2))


@pytest.mark.parametrize(
    ("missed", "pairs", "begins"),
    [
        (
            {"n1": 9, "n2": 9, "n4": 9},
            ALL,
            "n3 rail0 tx: n1, n2 and n4 missed 27 packets, the leaf dropped none",
        ),
        (
            {"n1": 9},
            ALL,
            "n1 rail0 rx: n1 missed 9 packets, the leaf dropped none: likely n1's NIC or its cable",
        ),
        (
            {"n1": 9, "n2": 9},
            ALL,
            "packets were lost on rail0 between n1..n4 (4 nodes), by which is not told",
        ),
        (
            {"n1": 9},
            [("n1", "n2"), ("n1", "n3")],
            "packets were lost on rail0 between n1, n2 and n3, by which",
        ),
        (
            {"n1": 9, "n2": 9},
            [("n1", "n2")],
            "packets were lost on rail0 between n1 and n2, by which is not told",
        ),
    ],
)
def test_a_node_is_named_only_where_it_is_told_from_its_partners(missed, pairs, begins):
    """Catches: a receiver blamed for its sender, and a sender named that may as well be another."""
    assert told(missed, pairs).startswith(begins)


def test_a_drop_that_explains_little_accuses_nothing():
    """Catches: one packet dropped by a port told as the cause of a hundred missed ones."""
    few = reading("switch_port", "n1", "rx_errors", 1)
    said = told({"n1": 100}, [("n1", "n2")], few)
    assert said.startswith("packets were lost on rail0 between n1 and n2, by which is not told")
    assert said.endswith("not as many were dropped where it was read")
    most = reading("switch_port", "n1", "rx_errors", 90)
    assert told({"n1": 100}, [("n1", "n2")], few, most).startswith(
        "leaf0 port to-n1 dropped packets on rail0"
    )


def between(counter, delta, device="leaf0", port="up1"):
    """A counter of a port between two switches, or of a switch as a whole."""
    return records.counter(
        test="switches",
        kind="switch_port",
        device=device,
        port=port,
        peer="spine1/swp1",
        counter=counter,
        after=delta,
    )


@pytest.mark.parametrize(
    ("reading_of_link", "begins"),
    [
        (between("tx_drops", 9), "leaf0 port up1, between switches, dropped packets: n1 missed 9 packets"),
        (between("roce_lost_packets", 9, "spine1", "switch"), "spine1 lost packets: n1 missed 9 packets"),
    ],
)
def test_what_was_lost_between_switches_accuses_no_host(reading_of_link, begins):
    """Catches a good NIC, cable or host port named for packets that an uplink or a spine dropped."""
    said = told({"n1": 9}, ALL, reading_of_link)
    assert said.startswith(begins), said
    assert "NIC" not in said


def test_symbols_that_fec_mended_are_no_drops():
    """Catches a link's corrected symbols, of which every 400G link has many, told as dropped packets."""
    said = told({"n1": 9}, ALL, between("fec_symbol_errors", 10**6))
    assert said.startswith("n1 rail0 rx: ")


@pytest.mark.parametrize(
    ("dropped", "begins"),
    [(50, "leaf0 port up1 dropped packets: 50 RoCE packets that entered leaf0 never left"), (9, "")],
)
def test_a_switch_that_lost_packets_names_the_port_that_dropped_them(dropped, begins):
    """Catches "lost in the switch" told of a leaf whose own port says that it dropped them."""
    losses = Losses()
    for one in (between("roce_lost_packets", 50, port="switch"), between("tx_drops", dropped)):
        losses.add(one)
    said = losses.of_switch(Stage.FABRIC, "leaf0")
    assert said.startswith(begins) and bool(said) is bool(begins), said
    assert losses.of_switch(Stage.FABRIC, "leaf1") == ""


def dead(*moved):
    """What is told of 20 dropped packets at a port between switches that moved this."""
    losses = Losses()
    for counter, delta in moved:
        losses.add(between(counter, delta))
    return losses.on_dead_link(Stage.FABRIC, "leaf0", "up1", "tx_drops", 20)


def test_a_link_that_is_down_is_told_as_down():
    """Catches: a pulled uplink told as loss, though only the switch itself went on sending there."""
    assert dead(("tx_bytes", 0), ("rx_bytes", 0)) == (
        "the link from leaf0 port up1 to spine1 port swp1 is down: not one byte passed either way in the "
        "fabric stage, and the port counted 20 packets dropped at egress"
    )
    # A link that carries anything is up, and one whose bytes were not read may be.
    assert dead(("tx_bytes", 0), ("rx_bytes", 64)) == dead(("tx_bytes", 0)) == dead() == ""


def sent_and_received(node, sent, received):
    """What a node's NIC counted of Soft-RoCE's packets."""
    return reading("nic", node, "rdma.sent_pkts", sent), reading("nic", node, "rdma.rcvd_pkts", received)


def test_packets_that_all_arrived_were_not_lost_by_anyone():
    """Catches: a good leaf, NIC or cable blamed with loss for packets that only overtook each other."""
    pair = [("n1", "n2")]
    all_here = (*sent_and_received("n1", 500, 565), *sent_and_received("n2", 565, 500))
    inside = reading("switch_port", "n1", "roce_lost_packets", 65)
    for others in (all_here, (*all_here, inside)):
        assert told({"n1": 65}, pair, *others) == (
            "packets overtook each other on rail0 on their way to n1: 65 packets came out of sequence and "
            "none was lost, the NICs received all 1065 that they sent"
        )
    # One packet that is missing is a loss, and so is what a NIC dropped after it had counted it.
    lost = (*sent_and_received("n1", 500, 564), *sent_and_received("n2", 565, 500))
    assert told({"n1": 65}, pair, *lost).startswith("n2 rail0 tx: n1 missed 65 packets")
    in_nic = reading("nic", "n1", "rx_discards", 65)
    assert told({"n1": 65}, pair, *all_here, in_nic).startswith("n1's NIC on rail0 dropped packets")
    # Who was not read may have lost some.
    assert told({"n1": 65}, pair, *all_here[:2]).startswith("n2 rail0 tx: ")
