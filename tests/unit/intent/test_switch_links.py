"""Links between switches, described once: what a rule stands for, and what is refused, with both places."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shakedown.benchmarks.planning import read_site, site_of
from shakedown.intent import links
from shakedown.records.reading import BadInput
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts

RULE = {"leaves": ["leaf0", "leaf1"], "leaf_ports": ["Ethernet32", "Ethernet33", "Ethernet34", "Ethernet35"]}
RULE |= {"spines": ["spine0", "spine1"], "spine_ports": ["Ethernet0", "Ethernet1", "Ethernet2", "Ethernet3"]}


def two_leaves(links_of: list[dict[str, Any]] | None = None, **switches: Any) -> dict[str, Any]:
    """A site of two nodes, one on each of two leaves, under two spines with two cables to each leaf."""
    inventory = document()
    hostvars = inventory["_meta"]["hostvars"]
    fabric = {"leaves": ["leaf0", "leaf1"], "spines": ["spine0", "spine1"]}
    fabric |= {"links": [RULE] if links_of is None else links_of, **switches}
    for number, name in enumerate(("n1", "n2")):
        hostvars[name]["fabric"]["switches"] = fabric
        for nic in hostvars[name]["fabric_nics"]:
            nic |= {"leaf": f"leaf{number}", "leaf_port": f"Ethernet{nic['rail'][-1]}"}
        hostvars[f"leaf{number}"] = {
            "roce_switch_nos": "linux",
            "leaf_ports": [
                {"port": nic["leaf_port"], "host": name, "netdev": nic["netdev"], "rail": nic["rail"]}
                for nic in hostvars[name]["fabric_nics"]
            ],
        }
        hostvars[f"spine{number}"] = {"roce_switch_nos": "linux"}
    inventory["switches"] = {"hosts": ["leaf0", "leaf1", "spine0", "spine1"]}
    return inventory


def test_port_i_of_leaf_j_meets_port_j_of_spine_i():
    """Catches a rule read the other way round: port j of leaf i."""
    fabric = {"link_speed_gbps": 400, "switches": {"links": [RULE]}}
    found = {str(link) for link in links.links(fabric)}
    assert len(found) == 8
    assert "leaf0 Ethernet34 - spine1 Ethernet0" in found  # the first of two cables to the second spine
    assert "leaf1 Ethernet33 - spine0 Ethernet3" in found


def test_either_end_sees_its_links():
    """Catches a spine whose ports nobody configures, and a link seen from the leaf alone."""
    site = site_of(two_leaves(), WHERE)
    ends = {
        switch.name: {(p.role, p.port, p.peer, p.peer_port) for p in switch.uplinks}
        for switch in site.switches
    }
    assert ("uplink", "Ethernet34", "spine1", "Ethernet0") in ends["leaf0"]
    assert ("spine", "Ethernet0", "leaf0", "Ethernet34") in ends["spine1"]
    assert [len(ports) for ports in ends.values()] == [4, 4, 4, 4]


def test_a_link_has_its_own_rate_and_length():
    """Catches 800G uplinks, and long cables to a spine, taken for the hosts' links."""
    own = {"leaf": "leaf0", "leaf_port": "swp9", "spine": "spine0", "spine_port": "swp1", "speed_gbps": 800}
    own |= {"cable_m": 300}
    fabric = {"link_speed_gbps": 400, "roce": {"headroom": {"cable_m": 5}}, "switches": {"links": [own]}}
    (port,) = links.link_ports(fabric, "spine0")
    assert port == {
        "port": "swp1",
        "role": "spine",
        "host": "leaf0",
        "netdev": "swp9",
        "speed_gbps": 800,
        "cable_m": 300,
    }


BY_NAME = {"leaf": "leaf0", "leaf_port": "swp9", "spine": "spine0", "spine_port": "swp1"}
REFUSED = {
    "one end only": (
        [{"leaf": "leaf0", "leaf_port": "Ethernet32", "spine": "spine0"}],
        {},
        r"links\[0\] is named from one end only: it has leaf0 Ethernet32 spine0, and no spine_port",
        ("links", "spines"),
    ),
    "port used twice": (
        [RULE, BY_NAME | {"leaf_port": "Ethernet33"}],
        {},
        r"links\[1\]: leaf0 Ethernet33 is an end of fabric.switches.links\[0\] already",
        ("links", "links"),
    ),
    "port of a host": (
        [RULE | {"leaf_ports": ["Ethernet0", "Ethernet33", "Ethernet34", "Ethernet35"]}],
        {},
        r"leaf_ports: leaf0 Ethernet0 carries n1, and is an end of fabric.switches.links\[0\]",
        ("leaf_ports", "links"),
    ),
    "spine without leaf": (
        None,
        {"spines": ["spine0", "spine1", "spine2"]},
        r"fabric.switches.spines: spine2 has no link to a leaf",
        ("spines", "links"),
    ),
    "number of cables": (
        None,
        {"uplinks_per_leaf_per_spine": 4},
        r"uplinks_per_leaf_per_spine is 4, but fabric.switches.links has 2 between leaf0 and spine0",
        ("uplinks_per_leaf_per_spine", "links"),
    ),
    "oversubscribed": (
        [RULE | {"speed_gbps": 10}],
        {"oversubscription": 1},
        r"is 1 to 1, but leaf0 has 2 host ports of 25 Gb/s and uplinks of 40 Gb/s together: 1.25 to 1",
        ("oversubscription", "links"),
    ),
    "unknown switch": (
        [RULE, BY_NAME | {"spine": "spine7"}],
        {},
        r"links\[1\]: spine7 is none of fabric.switches.spines",
        ("links", "spines"),
    ),
    "pod": (None, {"pods": {"a": ["leaf0"], "b": ["leaf0", "leaf1"]}}, r"leaf0 is in a and in b", ("b", "a")),
    "access of nobody": (
        None,
        {"access": {"spine9": "none"}},
        r"access: spine9 is neither a leaf nor a spine",
        ("spine9", "spines"),
    ),
    "access": (
        None,
        {"access": {"leaf0": "none"}},
        r"leaf0 is a host of group switches, and",
        ("leaf0", "leaf0"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name):
    """Catches a contradiction in the links that planning takes."""
    given, switches, says, _ = REFUSED[name]
    refused(says, site_of, two_leaves(given, **switches), WHERE)


@pytest.mark.slow  # each reads a folder through Ansible
@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_both_places(name, tmp_path):
    """Catches a contradiction of which only one place is named."""
    given, switches, says, (first, other) = REFUSED[name]
    folder = written(tmp_path, two_leaves(given, **switches))
    with pytest.raises(BadInput) as told:
        read_site(folder)
    text = str(told.value)
    assert re.search(says, text), text
    here = re.match(r".*?([\w.]+yml):(\d+): ", text)
    there = re.search(r"\(the other place: ([\w.]+yml):(\d+)\)", text)
    assert here and there, text
    for (file, line), key in ((here.groups(), first), (there.groups(), other)):
        path = next(folder.rglob(file))
        lines = path.read_text().splitlines()
        assert key in "".join(lines[max(0, int(line) - 30) : int(line)]), (key, text)


@pytest.mark.slow  # reads a folder through Ansible
@pytest.mark.parametrize("where", ["fabric", "link"])
def test_a_cable_length_without_buffers_names_the_platforms_place_too(where, tmp_path):
    """Catches a length refused without the place that names the platform, or told once for every switch."""
    inventory = two_leaves([RULE | ({"cable_m": 100} if where == "link" else {})])
    for host in hosts(inventory):
        if "fabric" in host:
            host["fabric"]["roce"]["headroom"] = {"cable_m": 100 if where == "fabric" else 40}
            host["acceptance"]["config"] = {"targets": ["environment"]}
        else:
            host["roce_switch_nos"] = "sonic"
    folder = written(tmp_path, inventory)
    with pytest.raises(BadInput, match=r"cable_m is 100, and sonic") as told:
        read_site(folder)
    assert "leaf0, leaf1, spine0, spine1: " in str(told.value)
    assert str(told.value).count("cable_m is 100") == 1
    there = re.search(r"\(the other place: ([\w.]+yml):(\d+)\)", str(told.value))
    assert there, told.value
    line = next(folder.rglob(there[1])).read_text().splitlines()[int(there[2]) - 1]
    assert "roce_switch_nos" in line, line


@pytest.mark.parametrize("where", ["fabric", "link"])
def test_a_cable_length_without_buffers_is_refused(where):
    """Catches a lossless profile that names a length for which the platform has none."""
    inventory = two_leaves([RULE | ({"cable_m": 100} if where == "link" else {})])
    for host in hosts(inventory):
        if "fabric" in host:
            host["fabric"]["roce"]["headroom"] = {"cable_m": 100 if where == "fabric" else 40}
            host["acceptance"]["config"] = {"targets": ["environment"]}
        else:
            host["roce_switch_nos"] = "sonic"
    says = (
        r"headroom.cable_m is 100, and sonic"
        if where == "fabric"
        else r"links\[0\].cable_m is 100, and sonic"
    )
    refused(says, site_of, inventory, WHERE)
    for host in hosts(inventory):
        host["roce_switch_cable_lengths_m"] = [5, 40, 100]
    site_of(inventory, WHERE)


def test_a_switch_that_is_nowhere_is_refused_and_one_without_access_is_not():
    """Catches a spine that neither the playbooks reach nor the intent excuses."""
    inventory = two_leaves()
    inventory["switches"]["hosts"].remove("spine1")
    refused(r"spine1 is no host of group switches -- .*access: \{spine1: none\}", site_of, inventory, WHERE)
    for name in ("n1", "n2"):
        inventory["_meta"]["hostvars"][name]["fabric"]["switches"]["access"] = {"spine1": "none"}
    assert "spine1" not in {switch.name for switch in site_of(inventory, WHERE).switches}


def written(folder: Path, document_: dict[str, Any]) -> Path:
    """A site's folder on disk, its fabric and hosts in files of their own."""
    hostvars = document_["_meta"]["hostvars"]
    variables = folder / "group_vars" / "all"
    variables.mkdir(parents=True)
    common = hostvars["n1"]
    for key in ("fabric", "acceptance"):
        # One key a line, so that a line says which key it is of.
        (variables / f"{key}.yml").write_text(json.dumps({key: common[key]}, indent=1))
    own = {
        name: {k: v for k, v in host.items() if k not in ("fabric", "acceptance")}
        for name, host in hostvars.items()
    }
    groups = {
        group: {"hosts": {name: own[name] for name in document_[group]["hosts"]}}
        for group in ("compute", "switches")
    }
    (folder / "hosts.yml").write_text(
        json.dumps({"all": {"children": {group: {} for group in groups}}, **groups}, indent=1)
    )
    return folder
