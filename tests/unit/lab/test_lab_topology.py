"""The lab's cabling and addresses: two machines that share one would look like a fault of the fabric."""

import ipaddress
from itertools import chain

import pytest

from lab.errors import LabError
from lab.topology import LEAF, MAX_NODES, RAILS, Topology

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
