"""The lab of leaves and spines: its cables, its addresses, its inventory, and where its faults land."""

import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lab import faults, image, planting, qemu
from lab.errors import LabError
from lab.fabric.topology import LEAVES, SPINES, FabricTopology
from lab.image import read_recipe
from lab.paths import CHECKOUT, LabPaths, lab_paths
from lab.processes import Process
from lab.sites import topology_of
from lab.state import Guest, State
from lab.topology import Topology
from tests.kit.cases import cases
from tests.kit.run import python

FOLDER = CHECKOUT / "inventories" / "lab_fabric"


@pytest.fixture
def fabric() -> FabricTopology:
    """Two nodes, two leaves, two spines."""
    return FabricTopology(2)


def inventory(short_path: Any, *, site: str = "lab_fabric") -> subprocess.CompletedProcess[str]:
    """Run an inventory script without site packages."""
    return python(
        "-S",
        CHECKOUT / "inventories" / site / "hosts.py",
        "--list",
        env={
            **os.environ,
            "XDG_RUNTIME_DIR": str(short_path),
            "XDG_STATE_HOME": str(short_path / "state"),
            "SHAKEDOWN_LAB": "unit",
        },
    )


def test_every_leaf_meets_every_spine_and_nothing_is_given_twice(fabric: FabricTopology) -> None:
    """Catches: a leaf with one way up (no second path to choose), and two machines that share an address."""
    assert {(t.leaf, t.spine) for t in fabric.trunks} == {(a, b) for a in LEAVES for b in SPINES}
    nics = [(m.name, n) for m in fabric.machines for n in m.nics]
    assert len({nic.mac for _, nic in nics}) == len(nics)
    addresses = [nic.ip for _, nic in nics if nic.address]
    assert len(set(addresses)) == len(addresses)
    ends = [(e.switch, e.port) for e in fabric.trunk_ends] + [(k.leaf, k.port) for k in fabric.links]
    ports = [(m, n.name) for m, n in nics if n.name.startswith("swp")]
    assert sorted(ends) == sorted(ports)
    assert len(set(ends)) == len(ends)


def test_nodes_of_two_leaves_reach_each_other_only_by_routing(fabric: FabricTopology) -> None:
    """Catches: one subnet over both leaves, in which nothing would ever need a spine."""
    for rail in ("rail0", "rail1"):
        networks = {ipaddress.ip_interface(fabric.link(n, rail).ipv4).network for n in ("n1", "n2")}
        assert len(networks) == 2
    for node, number in (("n1", 0), ("n2", 1)):
        words = qemu.kernel_words("unit", fabric, fabric.machine(node)).split()
        assert f"shakedown.route=10.10.0.0/16,10.10.{number}.254" in words
        assert f"shakedown.route=10.11.0.0/16,10.11.{number}.254" in words
        leaf = qemu.kernel_words("unit", fabric, fabric.machine(LEAVES[number])).split()
        assert f"shakedown.gateway=br-rail1,10.11.{number}.254/24" in leaf
        assert f"shakedown.announce=10.10.{number}.0/24" in leaf
        assert f"shakedown.router={65101 + number},10.255.0.{2 + number},swp3+swp4" in leaf
        assert "shakedown.bridge=br-rail0,9000,swp1" in leaf
    spine = qemu.kernel_words("unit", fabric, fabric.machine("spine1")).split()
    assert "shakedown.router=65000,10.255.0.5,swp1+swp2" in spine
    assert not [word for word in spine if word.startswith(("shakedown.bridge", "shakedown.announce"))]


def test_both_ends_of_a_cable_name_each_others_socket(fabric: FabricTopology, short_path: Any) -> None:
    """Catches: an uplink that ends at the wrong spine, which routing would hide."""
    paths = LabPaths("unit", short_path, short_path)
    made = image.Image(short_path)
    wires = set()
    for machine in fabric.machines:
        argv = qemu.guest_argv(paths, fabric, machine, made, ssh_port=2200, accelerator=qemu.TCG)
        for word in argv:
            if word.startswith("dgram,id=swp"):
                options = dict(part.split("=", 1) for part in word.split(",")[1:])
                wires.add(tuple(options[f"{end}.path"].rpartition("/")[2] for end in ("local", "remote")))
    assert ("leaf1.swp3", "spine0.swp2") in wires
    assert {(b, a) for a, b in wires if "fab" not in b} == {w for w in wires if "fab" not in w[1]}


def test_the_lab_of_one_leaf_is_as_it_was() -> None:
    """Catches: an image that is built anew, or guests that get other words, for a site that is not theirs."""
    own = topology_of("own", 2)
    assert type(own) is Topology
    assert (own.trunks, own.switches) == ((), ("leaf0",))
    words = " ".join(qemu.kernel_words("unit", own, machine) for machine in own.machines)
    assert not [w for w in ("route", "gateway", "announce", "router") if f"shakedown.{w}=" in words]
    plain, fabric = read_recipe(), read_recipe(*image.SITES["fabric"])
    assert set(fabric.packages) - set(plain.packages) == {"frr"}
    assert not [name for name, _, _ in plain.files if "fabric" in name]
    assert fabric.hooks[: len(plain.hooks)] == plain.hooks


@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_another_size_than_the_inventorys_is_refused(nodes: int) -> None:
    """Catches: a leaf whose uplinks have other names than the inventory gives them."""
    with pytest.raises(LabError, match="has 2 compute nodes"):
        FabricTopology(nodes)


def test_the_inventory_has_every_switch_and_the_intents_links_are_the_labs(
    fabric: FabricTopology, short_path: Any
) -> None:
    """Catches: a rule in group_vars that names other ports than the lab's: LLDP would blame good cables."""
    listed = json.loads(inventory(short_path).stdout)
    assert listed["switches"]["children"] == ["leaf", "spine"]
    assert listed["spine"]["hosts"] == ["spine0", "spine1"]
    ports = {p["port"]: p["host"] for p in listed["_meta"]["hostvars"]["leaf1"]["leaf_ports"]}
    assert ports == {"swp1": "n2", "swp2": "n2"}
    assert "leaf_ports" not in listed["_meta"]["hostvars"]["spine0"]
    from shakedown.intent import links

    intent = yaml.safe_load((FOLDER / "group_vars/all/fabric.yml").read_text())["fabric"]
    described = {(k.leaf, k.leaf_port, k.spine, k.spine_port) for k in links.links(intent)}
    assert described == {(t.leaf, t.leaf_port, t.spine, t.spine_port) for t in fabric.trunks}


@pytest.mark.parametrize(("site", "folder"), [("fabric", "lab"), ("own", "lab_fabric")])
def test_an_inventory_refuses_the_other_labs_machines(short_path, monkeypatch, site, folder):
    """Catches: playbooks that configure one lab by the description of another."""
    for key, value in (("XDG_RUNTIME_DIR", short_path), ("XDG_STATE_HOME", short_path / "state")):
        monkeypatch.setenv(key, str(value))
    paths = lab_paths("unit")
    paths.create()
    guests = {m.name: Guest(Process(1, 1), 2200) for m in topology_of(site, 2).machines}
    State("unit", 2, "/images/a", "tcg", Process(1, 1), guests, ready=True, site=site).save(paths.state)
    done = inventory(short_path, site=folder)
    assert done.returncode == 2
    assert f"is up as the site '{site}'" in done.stderr


class Lab:
    """A lab of leaves and spines that notes what its switches are asked, and whose cables are pulled."""

    def __init__(self, topology: FabricTopology) -> None:
        self.topology = topology
        self.state = SimpleNamespace(faults={})
        self.asked: list[tuple[str, list[str]]] = []
        self.pulled: dict[tuple[str, str], bool] = {}

    def ssh(self, machine: str, command: Sequence[str], timeout_s: float) -> Any:
        """Take a command for a machine; whatever it is, nothing had to be changed."""
        assert timeout_s > 0
        self.asked.append((machine, list(command)))
        return subprocess.CompletedProcess(command, 0, "", "")

    def save_state(self) -> None:
        """Nothing is kept."""

    def boot_what_is_off(self) -> list[str]:
        """Everything is on."""
        return []

    @contextmanager
    def monitor(self, machine: str) -> Iterator[Any]:
        """A monitor that notes which NIC has no carrier."""

        def command(_what: str, *, name: str, up: bool) -> None:
            self.pulled[machine, name] = not up

        yield SimpleNamespace(command=command)


@pytest.fixture
def lab(fabric: FabricTopology) -> Any:
    """It, of two nodes."""
    return Lab(fabric)


def test_a_fault_of_an_uplink_lands_on_its_switch_and_port(lab: Any) -> None:
    """Catches: a fault on leaf0 whatever switch was named, which a test would find there and call right."""
    said = planting.port_fault(lab, "leaf1", "swp4", faults.loss(2))
    assert (lab.asked[-1][0], lab.asked[-1][1][4]) == ("leaf1", "swp4")
    assert said == "loss 2 % on leaf1 swp4, into spine1 swp2"
    planting.setting_fault(lab, "spine0", "swp1", faults.ecn_off())
    assert (lab.asked[-1][0], lab.asked[-1][1][-1]) == ("spine0", "swp1")
    planting.port_fault(lab, "n2", "rail1", faults.loss(2))
    assert (lab.asked[-1][0], lab.asked[-1][1][4]) == ("leaf1", "swp2")
    assert set(lab.state.faults) == {"leaf1 swp4", "spine0 swp1", "n2 rail1"}


@cases(
    "machine, port, said",
    ("leaf0", "swp1", "is no port between switches; use one of swp3, swp4"),
    ("spine0", "rail0", "use one of swp1, swp2"),
    ("leaf7", "swp1", "the lab has no machine"),
)
def test_what_is_no_port_is_refused(lab: Any, machine: str, port: str, said: str) -> None:
    """Catches: a fault on a host's port by the leaf's name, told as one of an uplink."""
    with pytest.raises(LabError) as refused:
        planting.port_fault(lab, machine, port, faults.loss(2))
    assert said in str(refused.value)
    assert lab.asked == []


def test_swapped_uplinks_and_a_pulled_one_come_back(lab: Any) -> None:
    """Catches: a clear that leaves an uplink unplugged at one end, or two ports with each other's names."""
    said = planting.miswire(lab, "leaf0", "swp3", "swp4")
    assert (lab.asked[-1][0], lab.asked[-1][1][-2:]) == ("leaf0", ["swp3", "swp4"])
    assert said == "spine0 swp1 is on leaf0 swp4, spine1 swp1 on swp3"
    planting.link_down(lab, "leaf1", "swp3")
    assert lab.pulled == {("leaf1", "nic-swp3"): True, ("spine0", "nic-swp2"): True}
    done = planting.clear(lab)
    assert lab.state.faults == {}
    assert not any(lab.pulled.values())
    assert "leaf1 swp3 plugged in" in done
    swaps = [(machine, command[-2:]) for machine, command in lab.asked if command[3] == "swap"]
    assert swaps == [("leaf0", ["swp3", "swp4"])] * 2
    cleared = [machine for machine, command in lab.asked if command[3] == "clear"]
    assert cleared == [*LEAVES, *SPINES]


def test_cables_of_two_switches_do_not_change_places(lab: Any) -> None:
    """Catches: a swap by name of ports that are not on one switch."""
    with pytest.raises(LabError, match="no two cables of one switch"):
        planting.miswire(lab, "n1", "n2", "rail0")
    with pytest.raises(LabError, match="no two cables of one switch"):
        planting.miswire(lab, "leaf0", "swp3", "swp3")
    assert lab.asked == []
