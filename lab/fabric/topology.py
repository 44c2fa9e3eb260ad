"""Leaves and spines: every leaf has hosts of its own, and what leaves it crosses a spine. Pure.

::

    n1 .. --- leaf0 ---- spine0          rail r of leaf k: 10.<10+r>.<k>.0/24, the leaf is .254
                 X                       host ports first: swp<1..>, then an uplink to each spine
    n2 .. --- leaf1 ---- spine1          port k of a spine goes to leaf k

Switches route: BGP without numbered links, and equal-cost ways over both spines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lab.errors import LabError
from lab.topology import FABRIC_MTU, HEAD, RAILS, Link, Machine, Nic, Topology, Trunk, adm, mac, mgmt

LEAVES = ("leaf0", "leaf1")
SPINES = ("spine0", "spine1")
# One under each leaf: inventories/lab_fabric names the uplinks' ports, which come after the hosts'.
NODES = 2
# What a leaf has toward its hosts, as the last part of the address.
_GATEWAY = 254
# Private AS numbers (RFC 6996): one for the spines, one for each leaf.
_SPINES_ASN, _FIRST_LEAF_ASN = 65000, 65101


@dataclass(frozen=True)
class FabricTopology(Topology):
    """Two leaves under two spines. Raises :class:`LabError` for a number of hosts that is not its own."""

    def __post_init__(self) -> None:
        if self.nodes != NODES:
            raise LabError(f"the fabric site has {NODES} compute nodes", fix=f"use --nodes {NODES}")

    def _leaf_of(self, number: int) -> int:
        """The number of the leaf of node `number`, which counts from 1."""
        return (number - 1) * len(LEAVES) // self.nodes

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every cable of a host, rail by rail; a leaf's ports are counted in that order."""
        used = dict.fromkeys(LEAVES, 0)
        found = []
        for r, rail in enumerate(RAILS):
            for i, node in enumerate(self.compute_names, start=1):
                k = self._leaf_of(i)
                leaf = LEAVES[k]
                used[leaf] += 1
                address, port = f"10.{10 + r}.{k}.{i}/24", f"swp{used[leaf]}"
                found.append(Link(node, f"fab{r}", rail, f"rxe{r}", address, leaf, port))
        return tuple(found)

    @cached_property
    def trunks(self) -> tuple[Trunk, ...]:
        """Every cable between a leaf and a spine."""
        hosts = {leaf: sum(link.leaf == leaf for link in self.links) for leaf in LEAVES}
        return tuple(
            Trunk(leaf, f"swp{hosts[leaf] + 1 + i}", spine, f"swp{k + 1}")
            for k, leaf in enumerate(LEAVES)
            for i, spine in enumerate(SPINES)
        )

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """Head, compute nodes, leaves, spines."""
        head = Machine(HEAD, "head", 1, (adm(1), mgmt(1, 10)))
        computes = tuple(self._compute(i, name) for i, name in enumerate(self.compute_names, start=1))
        switches = tuple(
            self._switch(name, role, 2 + number, host)
            for number, (name, role, host) in enumerate(
                [(leaf, "leaf", 200 + k) for k, leaf in enumerate(LEAVES)]
                + [(spine, "spine", 210 + i) for i, spine in enumerate(SPINES)]
            )
        )
        return (head, *computes, *switches)

    def _switch(self, name: str, role: str, index: int, host: int) -> Machine:
        ports = tuple(
            Nic(port, mac(index, 3, number), FABRIC_MTU)
            for number, port in enumerate(self.ports_of(name), start=1)
        )
        return Machine(name, role, index, (adm(index), mgmt(index, host), *ports))

    def bridges_of(self, machine: str) -> dict[str, tuple[str, ...]]:
        """A leaf's bridges: one for each rail, with its host ports."""
        return {
            f"br-{rail}": ports
            for rail in RAILS
            if (ports := tuple(k.port for k in self.links if (k.leaf, k.rail) == (machine, rail)))
        }

    def words_of(self, machine: Machine) -> list[str]:
        """What shakedown-fabric reads of the kernel command line."""
        words = [
            f"shakedown.route=10.{10 + r}.0.0/16,10.{10 + r}.{self._leaf_of(machine.index - 10)}.{_GATEWAY}"
            for r in range(len(RAILS))
            if machine.role == "compute"
        ]
        if machine.name in LEAVES:
            k = LEAVES.index(machine.name)
            for r, rail in enumerate(RAILS):
                words += [
                    f"shakedown.gateway=br-{rail},10.{10 + r}.{k}.{_GATEWAY}/24",
                    f"shakedown.announce=10.{10 + r}.{k}.0/24",
                ]
        ports = [end.port for end in self.trunk_ends if end.switch == machine.name]
        if ports:
            asn = _FIRST_LEAF_ASN + LEAVES.index(machine.name) if machine.name in LEAVES else _SPINES_ASN
            words.append(f"shakedown.router={asn},10.255.0.{machine.index},{'+'.join(ports)}")
        return words
