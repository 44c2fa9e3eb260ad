"""QEMU's command line: a cable plugged into the wrong socket joins the wrong machines without any error."""

import re
from pathlib import Path

import pytest

from lab import qemu
from lab.image import Image
from lab.paths import LabPaths
from lab.topology import MAX_NODES, Machine, Topology

PATHS = LabPaths("test", Path("/run/lab"), Path("/disks"))
IMAGE = Image(Path("/images/abc"))


def argv(topology: Topology, machine: Machine, load: str = "") -> list[str]:
    """The command line of one machine."""
    return qemu.guest_argv(PATHS, topology, machine, IMAGE, ssh_port=2222, accelerator=qemu.TCG, load=load)


def cables(arguments: list[str]) -> list[tuple[str, str]]:
    """Local and remote socket of every datagram network in a command line."""
    pattern = re.compile(r"local\.path=([^,]+),remote\.type=unix,remote\.path=([^,]+)")
    return [m.groups() for a in arguments if (m := pattern.search(a))]  # type: ignore[misc]


@pytest.mark.parametrize("nodes", [1, 2, MAX_NODES])
def test_every_cable_has_two_ends_that_name_each_other(nodes: int) -> None:
    """Catches an end whose peer sends elsewhere: such a link carries nothing, or carries it one way."""
    topology = Topology(nodes)
    ends = [end for machine in topology.machines for end in cables(argv(topology, machine))]
    ends += cables(qemu.hub_argv(PATHS, topology))
    assert len({here for here, _ in ends}) == len(ends)
    assert {(there, here) for here, there in ends} == set(ends)
    # a cable per node and rail, and one from each machine to the management LAN
    assert len(ends) == 2 * (2 * nodes) + 2 * len(topology.machines)


def test_fabric_cable_joins_the_node_to_the_port_of_the_topology() -> None:
    """Catches rails crossed between the address plan and the wiring."""
    topology = Topology(2)
    wired = set(cables(argv(topology, topology.machine("n2"))))
    assert ("/run/lab/n2.fab1", "/run/lab/leaf0.swp4") in wired


def test_interfaces_of_the_command_line_and_of_the_identity_agree() -> None:
    """Catches an identity that waits for a MAC address no NIC has: the guest would never come up."""
    topology = Topology(4)
    for machine in topology.machines:
        arguments = argv(topology, machine)
        plugged = {m.group(1) for a in arguments if (m := re.search(r"mac=([0-9a-f:]+)", a))}
        words = arguments[arguments.index("-append") + 1].split()
        named = {w.split(",")[1] for w in words if w.startswith("shakedown.nic=")}
        assert plugged == named == {nic.mac for nic in machine.nics}


@pytest.mark.parametrize("nodes", range(1, MAX_NODES + 1))
def test_the_kernel_takes_the_whole_command_line(nodes: int) -> None:
    """Catches a lab so large that x86 cuts the command line at 2048 bytes, and with it a bridge."""
    topology = Topology(nodes)
    for machine in topology.machines:
        assert len(qemu.kernel_words("a" * 24, topology, machine)) < 2048


def test_fabric_nics_carry_the_fabrics_mtu_in_guest_and_hardware() -> None:
    """Catches a virtual NIC that offers less than the guest sets: big packets would vanish."""
    topology = Topology(2)
    for name, nics in (("n1", 2), ("leaf0", 4)):
        arguments = argv(topology, topology.machine(name))
        assert sum("host_mtu=9000" in a for a in arguments) == nics
        assert arguments[arguments.index("-append") + 1].count(",9000") >= nics


def test_machine_ids_differ_between_machines_and_labs() -> None:
    """Catches equal machine-ids, with which DHCP, journald and DBus take two machines for one."""
    ids = {qemu.machine_id(lab, name) for lab in ("a", "b") for name in ("n1", "n2")}
    assert len(ids) == 4
    assert all(re.fullmatch("[0-9a-f]{32}", i) for i in ids)


def test_a_snapshot_is_loaded_paused() -> None:
    """Catches machines that run on while others still load: the moment would not be one moment."""
    topology = Topology(1)
    loading = argv(topology, topology.machine("n1"), load="clean")
    assert loading[-3:] == ["-S", "-loadvm", "clean"]
    assert "-S" not in argv(topology, topology.machine("n1"))


def test_ssh_listens_on_the_loopback_address_only() -> None:
    """Catches a lab whose root SSH is open to the network."""
    topology = Topology(2)
    forwards = [a for m in topology.machines for a in argv(topology, m) if "hostfwd" in a]
    assert len(forwards) == len(topology.machines)
    assert all("hostfwd=tcp:127.0.0.1:2222-" in a for a in forwards)


def test_every_socket_that_qemu_makes_is_cleaned_before_a_start() -> None:
    """Catches a stale socket that makes the next start fail with 'address in use'."""
    topology = Topology(2)
    lines = [a for m in topology.machines for a in argv(topology, m)] + qemu.hub_argv(PATHS, topology)
    made = {Path(p).name for a in lines for p in re.findall(r"(?:local\.|,)path=([^,]+)", a)}
    assert made == set(qemu.sockets(topology))


def test_a_comma_in_a_path_does_not_become_an_option() -> None:
    """Catches a checkout or cache folder with a comma, which QEMU would read as the next option."""
    paths = LabPaths("test", Path("/run/a,b"), Path("/disks/c,readonly=on"))
    topology = Topology(1)
    machine = topology.machine("n1")
    arguments = qemu.guest_argv(paths, topology, machine, IMAGE, ssh_port=1, accelerator=qemu.TCG)
    drive = arguments[arguments.index("-drive") + 1]
    assert "c,,readonly=on" in drive
