"""The lab's cabling and addresses, computed from the number of compute nodes.  Pure: no input, no output.

::

    adm0   one user-mode network per machine (SSH from the host)      10.30.<machine>.15/24
    mgmt0  one LAN for Slurm, MPI start-up and NFS                    10.20.0.<host>/24
    fab0   rail0, node i to leaf0 port swp<i>                         10.10.0.<i>/24
    fab1   rail1, node i to leaf0 port swp<N+i>                       10.10.1.<i>/24
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lab.errors import LabError

RAILS = ("rail0", "rail1")
HEAD = "head"
LEAF = "leaf0"
DEFAULT_NODES = 2
# Memory bounds the size (a guest holds about 0.6 GB), and the leaf needs a PCI slot for every port.
MAX_NODES = 8
# Standard for Ethernet; the fabric's is what host and switch agree on (virtio's host_mtu must be as large).
MGMT_MTU = 1500
FABRIC_MTU = 9000

_ROLE_HEAD, _ROLE_COMPUTE, _ROLE_LEAF = "head", "compute", "leaf"


@dataclass(frozen=True)
class Nic:
    """One network interface of a guest; ``address`` is in CIDR form, or empty for a switch port."""

    name: str
    mac: str
    mtu: int
    address: str = ""
    gateway: str = ""

    @property
    def ip(self) -> str:
        """The address alone."""
        return self.address.partition("/")[0]


@dataclass(frozen=True)
class Link:
    """One cable from a compute node's fabric NIC to a leaf port."""

    node: str
    netdev: str
    rail: str
    rdma_device: str
    ipv4: str
    leaf: str
    port: str


@dataclass(frozen=True)
class Trunk:
    """One cable from a leaf to a spine."""

    leaf: str
    leaf_port: str
    spine: str
    spine_port: str


@dataclass(frozen=True)
class End:
    """One end of a cable between switches, and what is at the other."""

    switch: str
    port: str
    other: str
    other_port: str


@dataclass(frozen=True)
class Port:
    """A switch's port, what is at its other end, and the machines' interfaces that lose carrier with it."""

    switch: str
    name: str
    toward: str
    pulled: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Machine:
    """One virtual machine: its role, its place in the address plan and its interfaces."""

    name: str
    role: str
    index: int
    nics: tuple[Nic, ...]

    def nic(self, name: str) -> Nic:
        """The interface of that name, or :class:`LabError`."""
        for nic in self.nics:
            if nic.name == name:
                return nic
        raise LabError(
            f"{self.name} has no interface {name!r}", fix=f"use one of {', '.join(n.name for n in self.nics)}"
        )

    @property
    def mgmt_ip(self) -> str:
        """Its address on the management LAN."""
        return self.nic("mgmt0").ip


@dataclass(frozen=True)
class Topology:
    """The whole lab of ``nodes`` compute nodes.  Raises :class:`LabError` when the size is out of bounds."""

    nodes: int = DEFAULT_NODES

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES:
            raise LabError(
                f"a lab has 1 to {MAX_NODES} compute nodes, not {self.nodes}", fix="change --nodes"
            )

    @cached_property
    def compute_names(self) -> tuple[str, ...]:
        """n1 to nN."""
        return tuple(f"n{i}" for i in range(1, self.nodes + 1))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every cable, rail by rail: node i on rail r sits on port swp<r*N+i>."""
        return tuple(
            Link(
                node=node,
                netdev=f"fab{r}",
                rail=rail,
                rdma_device=f"rxe{r}",
                ipv4=f"10.10.{r}.{i}/24",
                leaf=LEAF,
                port=f"swp{r * self.nodes + i}",
            )
            for r, rail in enumerate(RAILS)
            for i, node in enumerate(self.compute_names, start=1)
        )

    @cached_property
    def trunks(self) -> tuple[Trunk, ...]:
        """Every cable between switches: none, with one leaf."""
        return ()

    @cached_property
    def trunk_ends(self) -> tuple[End, ...]:
        """Both ends of every cable between switches."""
        down = [End(t.leaf, t.leaf_port, t.spine, t.spine_port) for t in self.trunks]
        return (*down, *(End(end.other, end.other_port, end.switch, end.port) for end in down))

    def ports_of(self, switch: str) -> tuple[str, ...]:
        """The ports of a switch: those with hosts, then those with switches."""
        hosts = [link.port for link in self.links if link.leaf == switch]
        return (*hosts, *(end.port for end in self.trunk_ends if end.switch == switch))

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """Every machine that forwards."""
        return tuple(m.name for m in self.machines if m.role not in (_ROLE_HEAD, _ROLE_COMPUTE))

    def words_of(self, machine: Machine) -> list[str]:
        """Further words of a machine's kernel command line."""
        return []

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """Head, compute nodes, leaf."""
        head = Machine(HEAD, _ROLE_HEAD, 1, (adm(1), mgmt(1, 10)))
        computes = tuple(self._compute(i, name) for i, name in enumerate(self.compute_names, start=1))
        ports = tuple(Nic(link.port, mac(2, 3, n), FABRIC_MTU) for n, link in enumerate(self.links, start=1))
        leaf = Machine(LEAF, _ROLE_LEAF, 2, (adm(2), mgmt(2, 200), *ports))
        return (head, *computes, leaf)

    def _compute(self, i: int, name: str) -> Machine:
        index = 10 + i
        fabric = tuple(
            Nic(link.netdev, mac(index, 2, RAILS.index(link.rail)), FABRIC_MTU, link.ipv4)
            for link in self.links
            if link.node == name
        )
        return Machine(name, _ROLE_COMPUTE, index, (adm(index), mgmt(index, 10 + i), *fabric))

    def machine(self, name: str) -> Machine:
        """The machine of that name, or :class:`LabError`."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise LabError(
            f"the lab has no machine {name!r}", fix=f"use one of {', '.join(m.name for m in self.machines)}"
        )

    def link(self, node: str, rail: str) -> Link:
        """The cable of ``node`` on ``rail``, or :class:`LabError`."""
        if rail not in RAILS:
            raise LabError(f"the lab has no rail {rail!r}", fix=f"use one of {', '.join(RAILS)}")
        for link in self.links:
            if link.node == node and link.rail == rail:
                return link
        raise LabError(
            f"{node!r} has no fabric NIC", fix=f"use a compute node: {', '.join(self.compute_names)}"
        )

    def port(self, machine: str, rail: str) -> Port:
        """The switch port that a node and a rail, or a switch and its port, stand for.

        Raises:
            LabError: there is none.
        """
        if self.machine(machine).name not in self.switches:
            link = self.link(machine, rail)
            return Port(link.leaf, link.port, f"{link.node} {link.netdev}", ((link.node, link.netdev),))
        for end in self.trunk_ends:
            if (end.switch, end.port) == (machine, rail):
                # Without a carrier at both ends: a cable that is pulled is pulled for both.
                ends = ((end.switch, end.port), (end.other, end.other_port))
                return Port(end.switch, end.port, f"{end.other} {end.other_port}", ends)
        own = [end.port for end in self.trunk_ends if end.switch == machine]
        raise LabError(
            f"{machine} {rail} is no port between switches",
            fix=f"use one of {', '.join(own)}" if own else "name a compute node and its rail",
        )

    @cached_property
    def bridges(self) -> dict[str, tuple[str, ...]]:
        """The leaf's Linux bridges: one per rail, with its ports."""
        return {f"br-{rail}": tuple(link.port for link in self.links if link.rail == rail) for rail in RAILS}

    def bridges_of(self, machine: str) -> dict[str, tuple[str, ...]]:
        """The Linux bridges of a machine: one per rail on a leaf, none elsewhere."""
        return self.bridges if machine == LEAF else {}

    @cached_property
    def hosts(self) -> dict[str, str]:
        """Name to address for /etc/hosts: plain names are management, ``<node>-<rail>`` are fabric."""
        table = {machine.name: machine.mgmt_ip for machine in self.machines}
        table.update({f"{link.node}-{link.rail}": link.ipv4.partition("/")[0] for link in self.links})
        return table


def mac(machine: int, kind: int, number: int) -> str:
    """The address of an interface."""
    # 52:54:00 is QEMU's locally administered prefix; the rest names machine, kind of NIC and number.
    return f"52:54:00:{machine:02x}:{kind:02x}:{number:02x}"


def adm(index: int) -> Nic:
    """A machine's way to the host that runs it."""
    # A subnet of its own for every machine: user-mode networks answer for foreign addresses, which makes
    # MPI hang when two machines appear to share one.
    net = f"10.30.{index}"
    return Nic("adm0", mac(index, 0, 0), MGMT_MTU, f"{net}.15/24", f"{net}.2")


def mgmt(index: int, host: int) -> Nic:
    """A machine's place on the management LAN."""
    return Nic("mgmt0", mac(index, 1, 0), MGMT_MTU, f"10.20.0.{host}/24")
