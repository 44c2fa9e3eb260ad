"""Both ends of every cable against each other."""

import json
from pathlib import Path

import pytest

from shakedown.nos.crosscheck import End, SwitchCable, cross_check
from shakedown.nos.lldp import neighbours
from tests.kit.cases import cases
from tests.kit.refusal import refused

CABLES = [
    SwitchCable(host="n1", netdev="fab0", switch="leaf0", port="swp1", rail="rail0"),
    SwitchCable(host="n2", netdev="fab0", switch="leaf0", port="swp2", rail="rail0"),
]
ALIKE = {"mtu_bytes": 9000, "pfc_priorities": frozenset({3}), "dscp_map": {26: 3, 48: 6}, "speed_gbps": 400.0}
ALIKE |= {"fec": "rs"}


def check(host=None, switch=None, **other):
    """Two cables whose ends fit, but for what is changed on the first one."""
    hosts = {
        ("n1", "fab0"): End(**{**ALIKE, "neighbours": ("leaf0/swp1",), **(host or {})}),
        ("n2", "fab0"): End(**ALIKE, neighbours=("leaf0/swp2",)),
    }
    switches = {
        ("leaf0", "swp1"): End(**{**ALIKE, "neighbours": ("n1/fab0",), **(switch or {})}),
        ("leaf0", "swp2"): End(**{**ALIKE, "neighbours": ("n2/fab0",), **other}),
    }
    return list(cross_check(CABLES, hosts, switches, (26, 48)))


def wrong(checks):
    """The sentences about what does not fit."""
    return [check.text for check in checks if check.fits is False]


def test_two_ends_that_fit_are_compared_and_fine():
    """Catches good cables blamed, and a check that compares nothing."""
    checks = check()
    assert [c.fits for c in checks] == [True] * 14
    whats = ["mtu", "pfc", "dscp.26", "dscp.48", "speed", "fec", "cabling"]
    assert [c.what for c in checks] == whats * 2


@pytest.mark.parametrize(
    ("host", "switch", "words"),
    [
        ({}, {"mtu_bytes": 1500}, "MTU: n1/fab0 has 9000 bytes, leaf0/swp1 has 1500 bytes"),
        ({"pfc_priorities": frozenset()}, {}, "PFC priorities: n1/fab0 has none, leaf0/swp1 has 3"),
        ({}, {"pfc_priorities": frozenset({3, 4})}, "PFC priorities: n1/fab0 has 3, leaf0/swp1 has 3,4"),
        ({}, {"dscp_map": {26: 1, 48: 6}}, "class of DSCP 26: n1/fab0 has class 3, leaf0/swp1 has class 1"),
        ({"dscp_map": {26: 3}}, {}, "class of DSCP 48: n1/fab0 has class 0, leaf0/swp1 has class 6"),
        ({"speed_gbps": 200.0}, {}, "speed: n1/fab0 has 200 Gb/s, leaf0/swp1 has 400 Gb/s"),
        ({"fec": "none"}, {}, "FEC: n1/fab0 has none, leaf0/swp1 has rs"),
        (
            {"neighbours": ("leaf0/swp2",)},
            {},
            "cabling of n1/fab0 and leaf0/swp1 by plan: n1/fab0 has leaf0/swp2 at its other end",
        ),
        (
            {},
            {"neighbours": ("n2/fab1",)},
            "cabling of n1/fab0 and leaf0/swp1 by plan: leaf0/swp1 has n2/fab1 at its other end",
        ),
        ({}, {"neighbours": ("n1/fab0", "n2/fab1")}, "leaf0/swp1 has n2/fab1 at its other end"),
        ({}, {"neighbours": ("n2.example.org/52:54:00:00:00:02",)}, "leaf0/swp1 has n2/52:54"),
    ],
)
def test_two_ends_that_do_not_fit_are_both_named(host, switch, words):
    """Catches a mismatch unseen, or named at one end only."""
    found = wrong(check(host, switch))
    assert len(found) == 1
    assert words in found[0]


def test_a_switch_that_takes_larger_frames_fits():
    """Catches good switches blamed: most are set to 9216 bytes and more."""
    assert wrong(check(switch={"mtu_bytes": 9216})) == []


@cases("heard", ("n1.example.org/fab0",), ("n1/fab0", "b8:3f:d2:00:00:01/b8:3f:d2:00:00:01"))
def test_full_names_and_agents_in_nics_are_no_miswiring(heard):
    """Catches good cables blamed for a domain in a name, or for the LLDP agent in a NIC's firmware."""
    assert all(c.fits for c in check(switch={"neighbours": heard}))


def test_what_one_end_does_not_tell_is_not_fine():
    """Catches an end without PFC, FEC or LLDP, or with a stranger at its end, counted as compared."""
    checks = check(switch={"pfc_priorities": None, "neighbours": ()}, host={"neighbours": None})
    assert wrong(checks) == []
    untold = {c.what: c.text for c in checks if c.fits is None}
    assert untold == {
        "pfc": "PFC priorities of n1/fab0 and leaf0/swp1: leaf0/swp1 told none",
        "cabling": "cabling of n1/fab0 and leaf0/swp1: n1/fab0 was not asked for LLDP neighbours and "
        "leaf0/swp1 heard no LLDP neighbour",
    }
    stranger = check(switch={"neighbours": ("b8:3f:d2:00:00:01/x",)}, host={"neighbours": None})
    assert "leaf0/swp1 heard only b8:3f" in next(c.text for c in stranger if c.fits is None)


def test_two_swapped_cables_are_both_named():
    """Catches a pair of swapped cables: each end sees the wrong other end."""
    silent = {"neighbours": None}
    found = wrong(check(silent, {"neighbours": ("n2/fab0",)}, neighbours=("n1/fab0",)))
    assert ["leaf0/swp1 has n2/fab0" in found[0], "leaf0/swp2 has n1/fab0" in found[1]] == [True, True]


def test_two_machines_with_one_name_blame_no_good_cable():
    """Catches: a second machine that calls itself n1 told as n2's wrong cable, or n1 passed all the same."""
    silent = {"neighbours": None}
    checks = check(silent, {}, neighbours=("n1/fab0",))
    cabling = {c.cable.host: (c.fits, c.text) for c in checks if c.what == "cabling"}
    words = "n1 is heard on swp1 and swp2: two machines with one name"
    assert cabling["n1"] == (False, words)
    assert cabling["n2"] == (None, f"cabling of n2/fab0 and leaf0/swp2 is not proven: {words}")
    beside = check(silent, {}, neighbours=("n2/fab0", "n1.example.org/fab0"))  # n2 is heard there, too
    assert [c.fits for c in beside if c.what == "cabling"] == [False, None]


def test_frames_that_are_repeated_are_no_second_machine():
    """Catches: two machines with one name claimed where a box on the way repeats what all ports send."""
    both = ("n1/fab0", "n2/fab0")
    found = wrong(check({"neighbours": None}, {"neighbours": both}, neighbours=both))
    assert ["leaf0/swp1 has n2/fab0" in found[0], "leaf0/swp2 has n1/fab0" in found[1]] == [True, True]


def test_all_cables_of_a_shared_name_fail_and_ports_are_in_their_order():
    """Catches: a cable of n1 that passes although either of two machines may be at it; swp10 before swp9."""
    ports = {("n1", "fab0"): "swp9", ("n1", "fab1"): "swp11", ("n2", "fab0"): "swp10"}
    ports |= {("n2", "fab1"): "swp12"}
    cables = [SwitchCable(host=h, netdev=d, switch="leaf0", port=p, rail="r") for (h, d), p in ports.items()]
    heard = {"swp9": "n1/fab0", "swp10": "n1/fab0", "swp11": "n1/fab1", "swp12": "n2/fab1"}
    switches = {("leaf0", port): End(neighbours=(name,)) for port, name in heard.items()}
    found = {c.cable.port: c for c in cross_check(cables, {}, switches, ()) if c.what == "cabling"}
    assert {port: c.fits for port, c in found.items()} == {
        "swp9": False,
        "swp10": None,
        "swp11": False,
        "swp12": True,
    }
    assert "n1 is heard on swp9 and swp10:" in found["swp11"].text


def test_lldp_of_a_real_leaf_names_hosts_and_interfaces():
    """Catches a neighbour's MAC address taken for its interface."""
    reading = json.loads((Path(__file__).parent / "readings/leaf0.after.json").read_text())
    found = neighbours(reading["outputs"]["neighbours"]["stdout"])
    assert found == {
        "swp1": [("n1", "fab0")],
        "swp2": [("n2", "fab0")],
        "swp3": [("n1", "fab1")],
        "swp4": [("n2", "fab1")],
    }


def test_lldp_of_something_else_is_refused():
    """Catches an error message read as no neighbours."""
    refused("json0", neighbours, '{"error": "unable to connect"}')


LINKS = [
    SwitchCable(host=f"spine{i}", netdev="Ethernet1/1", switch="leaf0", port=f"Ethernet3{i}/1", role="uplink")
    for i in (0, 1)
]


def linked(leaf=(), spine=(), heard=("spine0/Ethernet1/1", "spine1/Ethernet1/1")):
    """What does not fit of two uplinks of one leaf; what changes is of the first."""
    spines = {
        (f"spine{i}", "Ethernet1/1"): End(**ALIKE | (dict(spine) if i == 0 else {}), neighbours=())
        for i in (0, 1)
    }
    ports = {
        ("leaf0", f"Ethernet3{i}/1"): End(
            **ALIKE | (dict(leaf) if i == 0 else {}), neighbours=(heard[i],) if heard[i] else ()
        )
        for i in (0, 1)
    }
    return list(cross_check(LINKS, spines, ports, (26, 48)))


def test_a_links_two_switches_are_compared_with_each_other():
    """Catches an uplink whose ends differ, named without the other switch; and good links blamed."""
    assert [c.fits for c in linked()] == [True] * 14
    assert wrong(linked(spine={"dscp_map": {26: 0, 48: 6}})) == [
        "class of DSCP 26: spine0/Ethernet1/1 has class 0, leaf0/Ethernet30/1 has class 3"
    ]
    # Either would drop what the other sends: a smaller MTU at the leaf counts like one at the spine.
    for ends in ({"leaf": {"mtu_bytes": 9216}}, {"spine": {"mtu_bytes": 9216}}):
        assert len(wrong(linked(**ends))) == 1


def test_swapped_uplinks_are_named_with_both_switches_and_ports():
    """Catches two uplinks in each other's ports, over which every packet still arrives."""
    found = wrong(linked(heard=("spine1/Ethernet1/1", "spine0/Ethernet1/1")))
    assert len(found) == 2
    assert "leaf0/Ethernet30/1 has spine1/Ethernet1/1 at its other end" in found[0]


def test_an_uplink_that_hears_nobody_is_open():
    """Catches a link taken for cabled as planned because neither switch runs LLDP."""
    checks = [c for c in linked(heard=("", "spine1/Ethernet1/1")) if c.what == "cabling"]
    assert [c.fits for c in checks] == [None, True]
