"""What is planned of the links between switches, and what is said of a switch that must not be touched."""

from shakedown.benchmarks.planning import site_of
from shakedown.plan.scope import part_of
from shakedown.references.files import load_catalogue
from tests.kit.refusal import refused
from tests.kit.site import WHERE, hosts, plan_site
from tests.unit.intent.test_switch_links import RULE, two_leaves


def planned(inventory):
    """Plan two leaves under two spines, with the config stage and the switches' general references."""
    for host in hosts(inventory):
        if "acceptance" in host:
            host["acceptance"]["config"] = {"targets": ["environment"], "link_speed": False}
    catalogue = load_catalogue(["lab", "roce_switches"])
    # The lab judges the same counters by itself; here the general profile is looked at.
    for name in [name for name in catalogue.entries if name.startswith("lab-leaf")]:
        del catalogue.entries[name]
    plan, _ = plan_site(inventory, catalogue)
    return plan


def ends(plan, test: str, metric: str) -> set[tuple[str, str]]:
    """The (switch, port) of a test's cells."""
    return {
        (nodes[0], str(item.params.get("port")))
        for item in plan.items
        if (item.test, item.metric) == (test, metric)
        for nodes in item.nodes
    }


UPLINKS = {(f"leaf{j}", f"Ethernet{32 + i}") for j in (0, 1) for i in range(4)}
SPINE_PORTS = {(f"spine{i}", f"Ethernet{j}") for i in (0, 1) for j in range(4)}


def test_both_ends_of_every_link_are_read_back_counted_and_compared():
    """Catches a spine of which nothing is asked, and an uplink that is configured and never looked at."""
    plan = planned(two_leaves())
    assert ends(plan, "switch_settings", "wrong") >= UPLINKS | SPINE_PORTS
    assert ends(plan, "switches", "counter.roce_queue_drops") >= UPLINKS | SPINE_PORTS
    compared = {
        (nodes[0], item.params["port"], item.params["what"])
        for item in plan.items
        if item.test == "crosscheck" and "port" in item.params
        for nodes in item.nodes
    }
    assert {(leaf, port) for leaf, port, _ in compared} == UPLINKS
    assert {what for *_, what in compared} == {"mtu", "pfc", "dscp.26", "dscp.48", "cabling"}


def test_each_leafs_uplinks_are_compared_with_each_other():
    """Catches an uplink that is down and that nothing of the plan would find."""
    one_each = RULE | {"leaf_ports": ["Ethernet32", "Ethernet33"], "spine_ports": ["Ethernet0", "Ethernet1"]}
    plan = planned(two_leaves([one_each], routing="adaptive"))
    idle = [item for item in plan.items if item.metric == "counter.idle_uplink"]
    ports = {(f"leaf{j}", f"Ethernet{32 + i}") for j in (0, 1) for i in (0, 1)}
    assert {(nodes[0], item.params["port"]) for item in idle for nodes in item.nodes} == ports
    # Collectives of few nodes need not use every uplink.
    assert {(item.stage.value, item.required) for item in idle} == {("fabric", True)}
    few = planned(two_leaves([one_each], routing="ecmp"))  # a flow of each rail: a hash may leave a link out
    assert not any(item.required for item in few.items if item.metric == "counter.idle_uplink")


def test_what_is_lost_inside_a_switch_with_links_is_of_all_its_ports():
    """Catches packets that came by a port and left by an uplink counted as lost."""
    items = [i for i in planned(two_leaves()).items if i.metric == "counter.roce_lost_packets"]
    found = {(nodes[0], item.rails, item.params["port"]) for item in items for nodes in item.nodes}
    assert found == {(name, (None,), "switch") for name in ("leaf0", "leaf1", "spine0", "spine1")}


def test_a_switch_without_access_stands_in_what_is_not_covered():
    """Catches a spine of another team passed over in silence, or asked of anyway."""
    inventory = two_leaves(access={"spine1": "none"}, routing="adaptive")
    inventory["switches"]["hosts"].remove("spine1")
    plan = planned(inventory)
    (told,) = [one for one in plan.not_covered if "spine1" in one.what]
    assert "its end of 4 links" in told.what and "neither configured nor read" in told.why
    for item in plan.items:
        assert not any("spine1" in nodes for nodes in item.nodes)
    compared = {
        item.params["port"] for item in plan.items if item.test == "crosscheck" and "port" in item.params
    }
    assert compared == {
        "Ethernet32",
        "Ethernet33",
    }  # those to spine0; of spine1 there is nothing to compare with


def test_a_leaf_that_nobody_may_touch_is_refused_where_the_playbooks_would_reach_it():
    """Catches: `access: none` that holds only where links are described: the leaf is configured."""
    inventory = two_leaves([], access={"leaf1": "none"})
    refused("leaf1 is a host of group switches, and .* must not be touched", site_of, inventory, WHERE)


def test_a_part_of_a_site_keeps_the_links_of_its_leaves():
    """Catches three nodes measured by themselves with every uplink and spine port of the site asked for."""
    site = site_of(two_leaves(), WHERE)
    part = part_of(site, ["n1"], ["rail0", "rail1"], ["n1"])
    kept = {(switch.name, link.port) for switch in part.switches for link in switch.uplinks}
    assert {name for name, _ in kept} == {"leaf0", "spine0", "spine1"}
    assert len(kept) == 8  # leaf0's four, and the four spine ports at their other ends


def test_a_watchdog_that_a_system_does_not_read_back_is_told_before_the_run():
    """Catches: settings of an OS10 switch that pass, where the intent has a watchdog that nobody read."""
    for nos, what in (
        ("os10", "PFC watchdog of leaf0"),
        ("nxos", "PFC watchdog times of leaf0"),
        ("eos", ""),
    ):
        for asked in (True, False):
            inventory = two_leaves()
            variables = inventory["_meta"]["hostvars"]
            variables["leaf0"]["roce_switch_nos"] = nos
            times = {"detect_ms": 200, "restore_ms": 200, "action": "drop"}
            for host in variables.values():
                if "fabric" in host:
                    host["fabric"]["roce"]["pfc"]["watchdog"] = times if asked else None
            told = [o.what for o in planned(inventory).not_covered if o.what.startswith("PFC watchdog")]
            assert told == ([what] if what and asked else []), (nos, asked)
