"""Leaves and spines: each fault between switches is named with switch and port, and no host is blamed.

`make test-fabric` plants every fault three times, in one lab. A leaf's swp3 goes to spine0 and its swp4 to
spine1; a spine's swp1 goes to leaf0 and its swp2 to leaf1 (docs/how-to/lab-of-leaves-and-spines.md).
"""

import json
import re
import time

import pytest
import yaml
from conftest import NAME, converged, inventory_with

from lab.acceptance import INVENTORIES

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

LLDP_S = 40  # lldpd says what is at its ports every 30 s (tx-interval), and at once after a start
# BGP's timers there are 10 and 30 s; a restored snapshot may have to make its sessions anew.
ROUTES_S = 180
LEAVES = ("leaf0", "leaf1")


@pytest.fixture(scope="module")
def fabric_site(tmp_path_factory):
    """The lab of two nodes, two leaves and two spines, booted and converged once."""
    folder = tmp_path_factory.mktemp("fabric")
    with converged(2, f"{NAME}f", folder, INVENTORIES["fabric"], site="fabric") as made:
        yield made


@pytest.fixture
def fabric(fabric_site):
    """That lab as it was right after the playbook, with both ways up at both leaves."""
    fabric_site.restore()
    deadline = time.monotonic() + ROUTES_S
    while ways(fabric_site) != [2, 2]:
        assert time.monotonic() < deadline, f"ways over spines at {LEAVES}: {ways(fabric_site)}"
        time.sleep(2)
    return fabric_site


def ways(site):
    """How many next hops each leaf has to rail0 of the other."""
    found = []
    for leaf, other in ((LEAVES[0], 1), (LEAVES[1], 0)):
        told = site.lab.ssh(leaf, ["ip", "-j", "route", "show", f"10.10.{other}.0/24"]).stdout
        routes = json.loads(told or "[]")
        found.append(sum(len(route.get("nexthops", [route])) for route in routes))
    return found


def settings_of(switch, port):
    """The cell of the settings of a port between switches."""
    return f"config/switch_settings/wrong/{switch}/-/-/port={port}"


def cable_of(leaf, port, what):
    """The cell of both ends of an uplink's cable."""
    return f"config/crosscheck/wrong/{leaf}/-/-/port={port},what={what}"


def reasons(verdict, outcome="FAIL"):
    """Reasons of the required cells of an outcome, by cell."""
    return {
        c["cell"]: c["reason"]
        for c in verdict["cells"]
        if c["outcome"] == outcome and not c["reason"].endswith("(not required)")
    }


def test_a_healthy_fabric_passes_as_a_whole(fabric):
    """Catches: a good part blamed, and ways over spines held to what pairs under one leaf reach."""
    status, verdict, _ = fabric.accept("healthy")
    assert (status, verdict["outcome"]) == (0, "PASS"), verdict["reason"]
    assert not verdict.get("causes")


# How each is planted, and the failed cells that it must leave, all of them, with words of each.
FAULTS = {
    "ecn-off": (
        lambda lab: lab.fault_ecn_off("spine0", "swp1"),
        {settings_of("spine0", "swp1"): ("spine0 swp1: ", "roce.ecn false -> true")},
    ),
    "wrong-dscp-map": (
        lambda lab: lab.fault_wrong_dscp_map("leaf1", "swp3"),
        {
            settings_of("leaf1", "swp3"): ("leaf1 swp3: ", '"traffic_class": 1'),
            cable_of("leaf1", "swp3", "dscp.26"): ("leaf1/swp3 has class 1", "spine0/swp2 has class 3"),
        },
    ),
    "half-rate": (
        lambda lab: lab.fault_rate("spine1", "swp1", 60),
        {settings_of("spine1", "swp1"): ("spine1 swp1: ", "fa17:")},
    ),
    "swapped": (
        lambda lab: lab.fault_miswire("leaf0", "swp3", "swp4"),
        {
            cable_of("leaf0", port, "cabling"): (
                f"cabling of {planned}/swp1 and leaf0/{port} by plan",
                f"leaf0/{port} has {there}/swp1 at its other end",
            )
            for port, planned, there in (("swp3", "spine0", "spine1"), ("swp4", "spine1", "spine0"))
        },
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_setting_or_cable_between_switches_is_named_alone(fabric, fault):
    """Catches: a spine or an uplink that is not as the intent says and forwards all the same."""
    plant, wanted = FAULTS[fault]
    plant(fabric.lab)
    if fault == "swapped":
        time.sleep(LLDP_S)
    status, verdict, _ = fabric.accept(fault, "config")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    failed = reasons(verdict)
    assert failed.keys() == wanted.keys(), failed
    for cell, words in wanted.items():
        assert all(word in failed[cell] for word in words), failed[cell]


DOWN = (("leaf1", "swp4"), ("spine1", "swp2"))  # both ends of the cable that is pulled


def test_an_uplink_that_is_down_is_named_though_nothing_is_lost(fabric):
    """Catches: half of a leaf's capacity gone, which routing hides and no counter of errors shows."""
    fabric.lab.fault_link_down("leaf1", "swp4")
    time.sleep(LLDP_S)
    status, verdict, run = fabric.accept("uplink-down", "config", "fabric")
    # No test loses a packet, and no host or NIC is to blame. What the switches themselves go on sending
    # there, as BGP does to find its neighbour, their ports count as dropped.
    ends = {f"fabric/switches/counter.tx_drops/{end}/-/-/port={port}" for end, port in DOWN}
    assert reasons(verdict).keys() == ends, reasons(verdict)
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    assert re.match(
        r"the link from (leaf1 port swp4 to spine1 port swp2|spine1 port swp2 to leaf1 port swp4) is down: ",
        verdict["reason"],
    ), verdict["reason"]
    undecided = reasons(verdict, "INCONCLUSIVE")
    cable = cable_of("leaf1", "swp4", "cabling")
    assert undecided.keys() == {cable}, undecided
    assert "leaf1/swp4 heard no LLDP neighbour" in undecided[cable]
    # By load: of leaf1's two uplinks this one carried nothing.
    lines = map(json.loads, (run / "counters.jsonl").read_text().splitlines())
    idle = {
        line["port"]: line["after"] - line["before"]
        for line in lines
        if (line["device"], line["counter"], line["stage"]) == ("leaf1", "idle_uplink", "fabric")
    }
    assert idle == {"swp3": 0, "swp4": 1}


def test_loss_on_an_uplink_is_told_as_the_uplinks(fabric):
    """Catches: packets that an uplink drops charged to the NIC that misses them, or to its rail."""
    fabric.lab.fault_loss("leaf0", "swp3", 2)
    status, verdict, _ = fabric.accept("uplink-loss", "fabric")
    assert (status, verdict["outcome"]) == (1, "FAIL"), verdict["reason"]
    dropped = {cell for cell in reasons(verdict) if "counter.tx_drops" in cell}
    assert dropped == {"fabric/switches/counter.tx_drops/leaf0/-/-/port=swp3"}, dropped
    # By whichever counted the most: the port, the switch as a whole, or the NIC that misses the packets.
    assert re.search(r"leaf0 (counted \d+ packets dropped at egress on )?port swp3\b", verdict["reason"]), (
        verdict["reason"]
    )


# In tc's place, once: the machine restarts behind the first thing that is changed.
RESTARTS = """#!/bin/sh
case "$*" in *-batch*)
    rm /usr/local/sbin/tc; sync; /usr/sbin/tc "$@"; echo b > /proc/sysrq-trigger; sleep 60;;
esac
exec /usr/sbin/tc "$@"
"""


def test_a_spine_that_restarts_on_trial_comes_back_as_it_was(fabric, tmp_path):
    """Catches: half of a change on a switch that restarted, or a run that calls it as wanted."""

    def marks():
        shown = fabric.lab.ssh("spine0", ["tc", "qdisc", "show"]).stdout
        return sorted(re.findall(r"^qdisc red .* limit .*", re.sub(r"red [0-9a-f]+:", "red", shown), re.M))

    asked = yaml.safe_load((INVENTORIES["fabric"] / "group_vars/all/fabric.yml").read_text())
    asked["fabric"]["roce"]["ecn"]["min_bytes"] += 200_000  # RED takes no range that is much wider
    other = inventory_with(tmp_path, INVENTORIES["fabric"], fabric=asked)
    alone = ("--tags", "switches", "--limit", "spine0")
    before = marks()
    write = "cat > /usr/local/sbin/tc && chmod 755 /usr/local/sbin/tc"
    assert fabric.lab.ssh("spine0", ["sh", "-c", write], input_text=RESTARTS).returncode == 0
    well, printed = fabric.play("site.yml", on=other, options=alone)
    assert not well
    said = (
        "spine0: it restarted, or its connection broke, while it was changed. The old configuration is back."
    )
    assert said in " ".join(printed.split()), printed[-4000:]
    assert before and marks() == before
    well, printed = fabric.play("site.yml", on=other, options=alone)
    assert well, printed[-4000:]
    assert marks() != before
