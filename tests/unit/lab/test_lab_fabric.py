"""The lab of leaves and spines, and its inventory: cables, addresses, faults, what every role believes."""

import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lab import faults, image, planting, qemu, state
from lab.errors import LabError
from lab.fabric.topology import LEAVES, SPINES, FabricTopology
from lab.image import read_recipe
from lab.paths import CHECKOUT, UNIX_PATH_MAX, LabPaths, default_name, lab_paths
from lab.processes import Process
from lab.qemu import sockets
from lab.sites import topology_of
from lab.state import Guest, State
from lab.topology import LEAF, MAX_NODES, RAILS, Topology
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


def test_the_inventory_has_every_switch_and_the_intents_links_are_the_labs(fabric, short_path):
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


SCRIPT = Path(__file__).resolve().parents[3] / "inventories" / "lab" / "hosts.py"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the inventory script without site packages."""
    return python("-S", SCRIPT, *arguments, env={**os.environ, **environment})


@pytest.fixture
def folders(short_path: Path) -> dict[str, str]:
    """An environment in which no lab is known."""
    return {
        "XDG_RUNTIME_DIR": str(short_path),
        "XDG_STATE_HOME": str(short_path / "state"),
        "SHAKEDOWN_LAB": "unit",
    }


def test_without_a_lab_the_default_topology_is_there_to_plan_with(folders: dict[str, str]) -> None:
    """Catches planning that needs a running lab, and a script that needs more than the standard library."""
    listed = json.loads(run("--list", **folders).stdout)
    assert listed["submit"]["hosts"] == ["head"] and listed["compute"]["hosts"] == ["n1", "n2"]
    assert listed["leaf"]["hosts"] == ["leaf0"] and listed["slurm"]["children"] == ["submit", "compute"]
    assert listed["switches"]["children"] == ["leaf"]
    n1 = listed["_meta"]["hostvars"]["n1"]
    assert n1["ansible_port"] == 0 and "ansible_ssh_private_key_file" not in n1


def test_both_ends_of_every_cable_say_the_same(folders: dict[str, str]) -> None:
    """Catches a leaf whose port list contradicts the nodes': LLDP would blame good cabling."""
    variables = json.loads(run("--list", **folders).stdout)["_meta"]["hostvars"]
    from_nodes = {
        (nic["leaf_port"], node, nic["netdev"], nic["rail"])
        for node in ("n1", "n2")
        for nic in variables[node]["fabric_nics"]
    }
    from_leaf = {(p["port"], p["host"], p["netdev"], p["rail"]) for p in variables["leaf0"]["leaf_ports"]}
    assert from_nodes == from_leaf
    assert variables["n2"]["fabric_nics"][1] == {
        "rail": "rail1",
        "netdev": "fab1",
        "rdma_device": "rxe1",
        "ipv4": "10.10.1.2/24",
        "leaf": "leaf0",
        "leaf_port": "swp4",
    }


def test_a_running_lab_brings_its_own_size_ports_and_strict_host_keys(folders: dict[str, str]) -> None:
    """Catches an inventory of the default size for a larger lab, and one that accepts any host key."""
    run_folder = Path(folders["XDG_RUNTIME_DIR"]) / f"shakedown-{os.getuid()}" / "unit"
    run_folder.mkdir(parents=True)
    guests = {m.name: state.Guest(Process(1, 1), 2200 + i) for i, m in enumerate(Topology(3).machines)}
    state.State("unit", 3, "/images/abc", "tcg", Process(1, 1), guests, ready=True).save(
        run_folder / "state.json"
    )
    variables = json.loads(run("--list", **folders).stdout)["_meta"]["hostvars"]
    assert sorted(variables) == ["head", "leaf0", "n1", "n2", "n3"]
    assert variables["n3"]["ansible_port"] == 2203
    assert variables["n3"]["ansible_ssh_private_key_file"] == "/images/abc/id_ed25519"
    arguments = variables["n3"]["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in arguments
    assert f"UserKnownHostsFile={run_folder}/known_hosts" in arguments
    assert json.loads(run("--host", "n3", **folders).stdout) == variables["n3"]


def test_a_damaged_state_is_one_line_and_status_2(folders: dict[str, str]) -> None:
    """Catches Ansible running against the default topology while the real lab is another."""
    run_folder = Path(folders["XDG_RUNTIME_DIR"]) / f"shakedown-{os.getuid()}" / "unit"
    run_folder.mkdir(parents=True)
    (run_folder / "state.json").write_text("{")
    done = run("--list", **folders)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_two_checkouts_of_one_name_get_different_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a name taken from the folder alone: 'down' in one checkout would end the other's lab."""
    monkeypatch.delenv("SHAKEDOWN_LAB", raising=False)
    first, second = default_name(Path("/home/a/shakedown")), default_name(Path("/home/b/shakedown"))
    assert first != second and default_name(Path("/home/a/shakedown")) == first
    assert first.startswith("shakedown-")


@pytest.mark.parametrize("folder", ["/", "/x/Über Größe, v2", "/x/" + "y" * 200, "/x/---"])
def test_any_checkout_folder_gives_a_usable_name(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches odd folder names, which would become odd paths and QEMU options."""
    monkeypatch.delenv("SHAKEDOWN_LAB", raising=False)
    assert lab_paths(default_name(Path(folder))).run.name == default_name(Path(folder))


@pytest.mark.parametrize("name", ["../x", "a/b", "", "A", "a b", "-a", "a" * 25, "a\n"])
def test_a_name_that_is_no_single_plain_folder_is_refused(name: str) -> None:
    """Catches a name that escapes the run folder: 'down' removes files there."""
    with pytest.raises(LabError, match="no name for a lab"):
        lab_paths(name)


def test_every_socket_path_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a socket name longer than the one that the length check assumes."""
    base = Path("/" + "r" * 200)
    for length in range(10, 110):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base)[:length])
        try:
            paths = lab_paths("a" * 24)
        except LabError as error:
            assert "XDG_RUNTIME_DIR" in str(error)
            break
        names = [*sockets(Topology(MAX_NODES)), "cm-65535root." + "x" * 16]
        assert max(len(os.fsencode(paths.socket(name))) for name in names) < UNIX_PATH_MAX
    else:
        pytest.fail("no folder was ever too long")


def test_a_run_folder_made_by_somebody_else_is_refused(monkeypatch, short_path):
    """Catches a folder under /tmp prepared by another user, who would then own the lab's sockets."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(short_path / "state"))
    paths = lab_paths("a")
    paths.run.parent.mkdir()
    elsewhere = short_path / "elsewhere"
    elsewhere.mkdir()
    paths.run.symlink_to(elsewhere)
    with pytest.raises(LabError, match="belongs to another user"):
        paths.create()


def test_folders_are_private(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    """Catches a run folder that others may enter: the QEMU monitors in it take any command."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(short_path / "state"))
    paths = lab_paths("a")
    paths.run.parent.mkdir(mode=0o755)
    paths.create()
    for folder in (paths.run.parent, paths.run, paths.disks):
        assert folder.stat().st_mode & 0o077 == 0


ALL_SIZES = [Topology(n) for n in range(1, MAX_NODES + 1)]


@pytest.mark.parametrize("topology", ALL_SIZES, ids=lambda t: f"{t.nodes} nodes")
def test_no_mac_address_is_given_twice(topology: Topology) -> None:
    """Catches a port numbering that overlaps a machine's: the guest would name the wrong interface."""
    macs = [nic.mac for machine in topology.machines for nic in machine.nics]
    assert len(set(macs)) == len(macs)


@pytest.mark.parametrize("topology", ALL_SIZES, ids=lambda t: f"{t.nodes} nodes")
def test_no_address_is_given_twice_and_networks_do_not_overlap(topology: Topology) -> None:
    """Catches two machines in one user-mode subnet (MPI hangs) and rails that overlap (one carries all)."""
    nics = [(machine, nic) for machine in topology.machines for nic in machine.nics if nic.address]
    addresses = [nic.ip for _, nic in nics]
    assert len(set(addresses)) == len(addresses)
    networks = {
        (machine.name if nic.name == "adm0" else "", nic.name): ipaddress.ip_interface(nic.address).network
        for machine, nic in nics
    }
    distinct = list(networks.values())
    assert not any(a.overlaps(b) for i, a in enumerate(distinct) for b in distinct[i + 1 :])


@pytest.mark.parametrize("topology", ALL_SIZES, ids=lambda t: f"{t.nodes} nodes")
def test_every_leaf_port_has_one_cable_and_sits_in_its_rails_bridge(topology: Topology) -> None:
    """Catches a port on the wrong bridge: rails would be joined, and a fault on one would hit the other."""
    ports = [link.port for link in topology.links]
    leaf_ports = [nic.name for nic in topology.machine(LEAF).nics if nic.name.startswith("swp")]
    assert sorted(ports) == sorted(leaf_ports)
    assert sorted(chain.from_iterable(topology.bridges.values())) == sorted(ports)
    for link in topology.links:
        assert link.port in topology.bridges[f"br-{link.rail}"]


def test_ports_are_numbered_rail_by_rail() -> None:
    """Catches a swapped port formula, which would plant every fault on somebody else's cable."""
    ports = {(link.node, link.rail): link.port for link in Topology(3).links}
    assert ports == {
        ("n1", "rail0"): "swp1",
        ("n2", "rail0"): "swp2",
        ("n3", "rail0"): "swp3",
        ("n1", "rail1"): "swp4",
        ("n2", "rail1"): "swp5",
        ("n3", "rail1"): "swp6",
    }


def test_host_names_lead_to_management_and_rail_names_to_the_fabric() -> None:
    """Catches Slurm or NFS traffic on the fabric under measurement."""
    hosts = Topology(2).hosts
    assert {hosts[name] for name in ("head", "n1", "n2", "leaf0")} == {
        "10.20.0.10",
        "10.20.0.11",
        "10.20.0.12",
        "10.20.0.200",
    }
    assert hosts["n2-rail1"] == "10.10.1.2"


@pytest.mark.parametrize("nodes", [0, -1, MAX_NODES + 1])
def test_a_size_out_of_bounds_is_refused(nodes: int) -> None:
    """Catches a lab without compute nodes, in which every test would trivially have nothing to do."""
    with pytest.raises(LabError, match="compute nodes"):
        Topology(nodes)


@pytest.mark.parametrize(
    ("node", "rail"), [("n1", "rail2"), ("n9", "rail0"), ("head", "rail0"), ("leaf0", "rail1")]
)
def test_a_cable_that_is_not_there_is_refused(node: str, rail: str) -> None:
    """Catches a fault accepted for an unknown rail or a machine without a fabric NIC: it would do nothing."""
    with pytest.raises(LabError):
        Topology(2).link(node, rail)


def test_head_has_no_fabric_nic_and_each_node_one_per_rail() -> None:
    """Catches a head node in the mesh."""
    topology = Topology(2)
    assert [nic.name for nic in topology.machine("head").nics] == ["adm0", "mgmt0"]
    for name in topology.compute_names:
        assert [nic.name for nic in topology.machine(name).nics] == ["adm0", "mgmt0", "fab0", "fab1"]
    assert len(RAILS) == 2
