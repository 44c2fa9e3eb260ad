"""The cables of a lab of namespaces, as commands of iproute2.  Pure.

The leaf's namespace holds one Linux bridge per rail and one for management; every cable is a pair of virtual
Ethernet devices that is made in the two namespaces at once, so the host's own network is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lab.errors import LabError
from lab.topology import FABRIC_MTU, LEAF, MGMT_MTU, Machine, Topology

MGMT_BRIDGE = "br-mgmt"
_MGMT_LINK = "mg{index}"
# TCP of the nodes, which any network namespace may choose. It keeps a shaped port full from a connection's
# start; BBR and CUBIC look for its rate first, and repeats of one measurement differ by 10 % and more.
_CONTROL = "reno"
# What `--gpus` says for one GPU that all nodes have.
SHARED = "shared"


def make(topology: Topology, pids: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the commands that the host runs: the cables, each end in its machine's network."""
    for machine in topology.machines:
        if machine.name != LEAF:
            port = _MGMT_LINK.format(index=machine.index)
            yield _cable(pids[LEAF], port, pids[machine.name], "mgmt0")
    for link in topology.links:
        yield _cable(pids[LEAF], link.port, pids[link.node], link.netdev)


def _cable(leaf: int, port: str, node: int, netdev: str) -> list[str]:
    ends = ["name", port, "netns", str(leaf), "type", "veth", "peer", "name", netdev, "netns", str(node)]
    return ["ip", "link", "add", *ends]


def leaf_script(topology: Topology) -> str:
    """What the leaf runs: its bridges, and its ports in them."""
    lines = ["set -eu", "ip link set lo up"]
    bridges = {name: (ports, FABRIC_MTU) for name, ports in topology.bridges.items()}
    management = [_MGMT_LINK.format(index=m.index) for m in topology.machines if m.name != LEAF]
    bridges[MGMT_BRIDGE] = (tuple(management), MGMT_MTU)
    for bridge, (ports, mtu) in bridges.items():
        # Without spanning tree: a port forwards at once.
        lines.append(f"ip link add {bridge} mtu {mtu} type bridge stp_state 0 forward_delay 0")
        for port in ports:
            lines.append(f"ip link set {port} mtu {mtu} master {bridge} up")
        lines.append(f"ip link set {bridge} up")
    lines.append(f"ip address add {topology.machine(LEAF).nic('mgmt0').address} dev {MGMT_BRIDGE}")
    return "\n".join(lines)


def ports_of(topology: Topology, machine: str) -> Iterator[tuple[str, str, int]]:
    """Yield the leaf's ports that lead to a machine, with their bridge and MTU."""
    yield _MGMT_LINK.format(index=topology.machine(machine).index), MGMT_BRIDGE, MGMT_MTU
    for link in topology.links:
        if link.node == machine:
            yield link.port, f"br-{link.rail}", FABRIC_MTU


def node_script(machine: Machine, *, verbs: Sequence[tuple[str, str]] = ()) -> str:
    """What head and nodes run: their addresses; ``verbs`` are RDMA devices to make, and their interfaces."""
    lines = ["set -eu", "ip link set lo up", f"echo {_CONTROL} > /proc/sys/net/ipv4/tcp_congestion_control"]
    for nic in machine.nics:
        if nic.name != "adm0":  # QEMU's own way in
            # Its own hardware address: after a restart the others still find it where they knew it.
            lines.append(f"ip link set {nic.name} address {nic.mac} mtu {nic.mtu}")
            lines.append(f"ip address add {nic.address} dev {nic.name}")
            lines.append(f"ip link set {nic.name} up")
    lines += [f"rdma link add {device} type rxe netdev {netdev}" for device, netdev in verbs]
    return "\n".join(lines)


def gpus_of_nodes(asked: str, nodes: int, minors: Sequence[int]) -> list[list[int]]:
    """Which GPUs each node gets: ``asked`` is a number for all nodes, one for each (``1,0``), or ``shared``.

    ``shared`` gives every node the host's first GPU: nodes that NCCL takes for two, on one GPU.

    Args:
        asked: what the user gave.
        nodes: how many compute nodes there are.
        minors: the host's GPUs, by the number of their device files.

    Raises:
        LabError: it is no such list, or the host has too few GPUs.
    """
    if asked == SHARED:
        if not minors:
            raise LabError(
                f"--gpus {SHARED} needs a GPU, this host has none", fix="--gpus 0 makes nodes without GPUs"
            )
        return [[minors[0]] for _ in range(nodes)]
    words = asked.split(",")
    if not all(word.strip().isdecimal() for word in words) or len(words) not in (1, nodes):
        raise LabError(
            f"--gpus {asked!r} is no number of GPUs",
            fix=f"give one, {nodes} with commas between, or {SHARED}",
        )
    counts = [int(word) for word in words] * (nodes if len(words) == 1 else 1)
    if sum(counts) > len(minors):
        raise LabError(
            f"--gpus asks for {sum(counts)} GPUs in all, this host has {len(minors)}",
            fix="give fewer; 0 makes nodes without GPUs",
        )
    left = list(minors)
    return [[left.pop(0) for _ in range(count)] for count in counts]


def cpus_of_nodes(nodes: int, cpus: Sequence[int]) -> list[list[int]]:
    """Which CPUs each node's processes run on; none named where a node would get fewer than two."""
    share = len(cpus) // nodes
    if share < 2:
        return [[] for _ in range(nodes)]
    return [list(cpus[number * share : (number + 1) * share]) for number in range(nodes)]
