"""The lab's inventory: what the plan and every role believe about the cabling."""

import ipaddress
import json
import os
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from lab import state
from lab.errors import LabError
from lab.paths import UNIX_PATH_MAX, default_name, lab_paths
from lab.processes import Process
from lab.qemu import sockets
from lab.topology import LEAF, MAX_NODES, RAILS, Topology
from tests.kit.run import python

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
    assert listed["submit"]["hosts"] == ["head"]
    assert listed["compute"]["hosts"] == ["n1", "n2"]
    assert listed["leaf"]["hosts"] == ["leaf0"]
    assert listed["slurm"]["children"] == ["submit", "compute"]
    assert listed["switches"]["children"] == ["leaf"]
    n1 = listed["_meta"]["hostvars"]["n1"]
    assert n1["ansible_port"] == 0
    assert "ansible_ssh_private_key_file" not in n1


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
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_two_checkouts_of_one_name_get_different_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a name taken from the folder alone: 'down' in one checkout would end the other's lab."""
    monkeypatch.delenv("SHAKEDOWN_LAB", raising=False)
    first, second = default_name(Path("/home/a/shakedown")), default_name(Path("/home/b/shakedown"))
    assert first != second
    assert default_name(Path("/home/a/shakedown")) == first
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


def test_a_run_folder_made_by_somebody_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
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
