"""The site that the answers describe, which of it is a guess, and what a site's folder says otherwise."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shakedown.benchmarks.config.ordered import delivered
from shakedown.discover.ask import Answers, NicAnswer, NodeAnswer
from shakedown.discover.nics import (
    Cabling,
    NicWithRole,
    Role,
    fabric_gbps,
    is_fellow,
    judge_nics,
    of_lldp,
    pci_device,
    usual_nics,
)
from shakedown.intent.rules import HOST_MTU, LINK_MTU
from shakedown.intent.site import Fabric, Site
from shakedown.nics.families import family_of
from shakedown.physics.ethernet import rdma_mtu_bytes
from shakedown.physics.host_links import by_driver_name
from shakedown.records.base import NicSpec
from shakedown.records.reading import BadInput
from shakedown.records.wording import count, natural_key
from shakedown.topology.host_map import pairs

_SWITCH_MTU = 9216  # the MTU that vendors' guides give a RoCE fabric's switches: room for hosts of 9000 bytes
_UNKNOWN_GBPS = 100  # where no NIC tells its rate
_AMD = "0x1002"
# How the first line on a node begins that differs from most of its kind; `plan` repeats it.
ODD = "Not as its fellows"
_WIDEST = 8  # a subnet wider than this between two NICs of one rail is no rail's


@dataclass(frozen=True)
class FoundNic:
    """A NIC of the fabric. `guess`: what of it is not certain, for the mark; empty: nothing."""

    rail: str
    netdev: str
    rdma_device: str
    ipv4: str
    leaf: str | None = None
    leaf_port: str | None = None
    driver: str = ""  # where the RDMA device's name does not tell it
    guess: str = ""


@dataclass(frozen=True)
class FoundGpu:
    """A GPU with the NIC that it should use, if one is near."""

    index: int
    model: str
    nearest_nic: str | None


@dataclass(frozen=True)
class FoundNode:
    """One node."""

    name: str
    address: str | None
    nics: tuple[FoundNic, ...]
    gpus: tuple[FoundGpu, ...]
    others: tuple[NicWithRole, ...]  # NICs that are not of the fabric, and why
    numa_nodes: int


@dataclass(frozen=True)
class FoundRail:
    """One rail. `guess` as of a NIC."""

    name: str
    subnet: str
    guess: str = ""


@dataclass(frozen=True)
class FoundSite:
    """Everything that the answers tell. `notes` are what a person must know before the first run."""

    nodes: tuple[FoundNode, ...]
    rails: tuple[FoundRail, ...]
    link_speed_gbps: int
    speed_guess: str
    host_mtu: int
    rdma_mtu: int
    mtu_guess: str
    link_mtu: int
    leaves: tuple[str, ...]
    submit: str
    partition: str | None
    max_time: str
    access: Mapping[str, str]  # account, QOS and reservation by key of the `slurm` block
    connections: Mapping[str, Mapping[str, int | str]]
    silent: Mapping[str, str]  # nodes that did not answer, and why
    notes: tuple[str, ...] = field(default_factory=tuple)
    # What the nodes are made of, by the keys of `ordered`, where they tell it.
    made_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def only_memory(self) -> bool:
        """Whether nothing but memory is left to measure. Physics has no floor for it: it is to be learnt."""
        return not any(node.gpus for node in self.nodes) and not (self.rails and len(self.nodes) > 1)

    @property
    def gpu_model(self) -> str | None:
        """The one model of all GPUs, or None."""
        models = {gpu.model for node in self.nodes for gpu in node.gpus}
        return models.pop() if len(models) == 1 else None


def describe(answers: Answers, table: Cabling | None = None) -> FoundSite:
    """Return the site that the answers describe.

    `table`: cabling that a person gave; what LLDP says otherwise is noted. Raises BadInput: the cabling names
    a node that did not answer, or a NIC that the node has not.
    """
    nodes, notes = answers.nodes, list[str]()
    judged = judge_nics(nodes)
    cables = _cables(nodes, table, notes)
    chosen = {
        name: [one.nic for one in judged[name] if one.role is Role.COMPUTE]
        for name in sorted(nodes, key=natural_key)
    }
    gpus = _all_gpus(answers, judged, chosen)
    notes += _odd(answers, judged, gpus)
    notes += _uneven(chosen)
    notes += _left_out(judged, chosen)
    rails, rail_of = _rails(nodes, chosen)
    speed = fabric_gbps(nodes)
    mtus = Counter(nic.mtu_bytes for nics in chosen.values() for nic in nics if nic.mtu_bytes)
    mtu = mtus.most_common(1)[0][0] if mtus else HOST_MTU[1]
    # Twice what the most have: a host outside the bounds of the intent is told, not written.
    host_mtu = min(max(mtu, HOST_MTU[0]), HOST_MTU[1])
    if len(mtus) > 1:
        notes.append(
            f"the fabric's NICs have different MTUs: {', '.join(f'{m} ({n})' for m, n in mtus.most_common())}"
        )
    if slow := [f"{name} {nic.netdev}" for name, nics in chosen.items() for nic in nics if nic.gbps != speed]:
        notes.append(f"no rate, or another than {speed} Gb/s: {', '.join(slow[:8])}") if speed else None
    found = tuple(
        FoundNode(
            name=name,
            address=_address(name, nodes[name], answers),
            nics=tuple(
                _nic(name, one, rail_of[name, one.nic.netdev], cables)
                for one in judged[name]
                if one.role is Role.COMPUTE
            ),
            gpus=gpus[name],
            others=tuple(one for one in judged[name] if one.role is not Role.COMPUTE),
            numa_nodes=max(len(nodes[name].topology.numa), 1),
        )
        for name in chosen
    )
    return FoundSite(
        nodes=found,
        rails=rails,
        link_speed_gbps=speed or _UNKNOWN_GBPS,
        speed_guess="" if speed else "no NIC tells its rate",
        host_mtu=host_mtu,
        rdma_mtu=rdma_mtu_bytes(host_mtu),
        mtu_guess="most of the fabric's NICs have it" if len(mtus) != 1 else "",
        link_mtu=min(max(_SWITCH_MTU, host_mtu), LINK_MTU[1]),
        leaves=tuple(sorted({nic.leaf for node in found for nic in node.nics if nic.leaf}, key=natural_key)),
        submit=answers.submit or "login",
        partition=answers.partition,
        max_time=answers.max_time,
        access={key: name for key in ("account", "qos", "reservation") if (name := getattr(answers, key))},
        connections={name: way.given() for name, way in answers.connections.items()},
        silent=answers.silent,
        notes=tuple(notes),
        made_of={name: delivered(nodes[name].parts) for name in chosen if nodes[name].parts},
    )


def _cables(nodes: Mapping[str, NodeAnswer], table: Cabling | None, notes: list[str]) -> Cabling:
    heard = of_lldp(nodes)
    for (node, netdev), cable in (table or {}).items():
        if node not in nodes:
            raise BadInput(
                f"the cabling names node {node!r}, which did not answer",
                fix="correct it, or leave that line out",
            )
        if netdev not in {nic.netdev for nic in nodes[node].nics}:
            raise BadInput(f"the cabling names {netdev!r} of {node}, which has no such NIC", fix="correct it")
        other = heard.get((node, netdev))
        if other and other != cable:
            notes.append(
                f"{node} {netdev}: the cabling says {cable.leaf} {cable.port},"
                f" LLDP says {other.leaf} {other.port}"
            )
    return {**heard, **(table or {})}


def _nic(node: str, judged: NicWithRole, rail: str, cables: Cabling) -> FoundNic:
    nic = judged.nic
    cable = cables.get((node, nic.netdev))
    guess = "" if len(nic.ipv4) == 1 else f"also has {', '.join(nic.ipv4[1:])}"
    if not judged.sure:
        guess = f"{ODD.lower()}: {judged.why}"
    return FoundNic(
        rail=rail,
        netdev=nic.netdev,
        rdma_device=nic.rdma[0],
        ipv4=nic.ipv4[0],
        leaf=cable.leaf if cable else None,
        leaf_port=cable.port if cable else None,
        driver="" if family_of(None, nic.rdma[0]) else nic.driver,
        guess=guess,
    )


def _gpus(node: NodeAnswer, nics: Sequence[NicAnswer]) -> tuple[FoundGpu, ...]:
    by_pci = {device.bdf: nic.rdma[0] for nic in nics if (device := pci_device(node, nic))}
    kept = tuple(one for one in node.topology.devices if not one.is_nic or one.bdf in by_pci)
    narrowed = node.topology.model_copy(update={"devices": kept})
    near = {pair.gpu.bdf: by_pci.get(pair.nic.bdf) for pair in pairs(narrowed)}
    return tuple(
        FoundGpu(index=int(gpu.index), model=_model(gpu.name), nearest_nic=near.get(gpu.bdf))
        for gpu in sorted(node.topology.gpus, key=lambda one: int(one.index))
    )


def _gpu_count(name: str, answers: Answers) -> int:
    """Return how many GPUs the witness names that sees most: nvidia-smi, PCI or Slurm."""
    topology = answers.nodes[name].topology
    return max(len(topology.gpus), len(topology.gpu_devices()), answers.gres.get(name, 0))


def _all_gpus(
    answers: Answers, judged: Mapping[str, Sequence[NicWithRole]], chosen: Mapping[str, Sequence[NicAnswer]]
) -> dict[str, tuple[FoundGpu, ...]]:
    """Return each node's GPUs; where it lost some, those that a whole node of its kind has."""
    own = {name: _gpus(answers.nodes[name], chosen[name]) for name in chosen}
    for name, wanted in _wanted_gpus(answers, judged).items():
        whole = next((gpus for gpus in own.values() if len(gpus) == wanted), None)
        if len(own[name]) < wanted and whole is not None:
            own[name] = whole
    return own


def _wanted_gpus(answers: Answers, judged: Mapping[str, Sequence[NicWithRole]]) -> dict[str, int]:
    """Return how many GPUs each node should have: as most of its kind, or more where it has more.

    Where as many nodes say one number as another, the larger holds: GPUs are lost, and none is found.
    """
    usual_nic = usual_nics({name: list(own) for name, own in judged.items()})
    counts = {name: _gpu_count(name, answers) for name in judged}
    # Without a fabric nothing but its GPUs tells a node's kind: one that has none is of another.
    kind = [n for n, own in judged.items() if is_fellow(own, usual_nic) and (usual_nic or counts[n])]
    number = Counter(counts[name] for name in kind)
    usual = max(number, key=lambda count: (number[count], count)) if number else 0
    return {name: max(count, usual) if name in kind else count for name, count in counts.items()}


def _odd(
    answers: Answers, judged: Mapping[str, Sequence[NicWithRole]], gpus: Mapping[str, Sequence[FoundGpu]]
) -> Iterator[str]:
    """Yield a line for each node that lacks what most of its kind have, or whose witnesses disagree."""
    wanted, hidden = _wanted_gpus(answers, judged), list[str]()
    for name in sorted(judged, key=natural_key):
        topology, said = answers.nodes[name].topology, list[str]()
        seen = {"nvidia-smi": len(topology.gpus), "PCI": len(topology.gpu_devices())}
        if name in answers.gres:
            seen["Slurm"] = answers.gres[name]
        if seen["PCI"] and not gpus[name]:
            hidden.append(name)
            del seen["nvidia-smi"]
        if {*seen.values()} != {wanted[name]}:
            told = ", ".join(f"{who} {many}" for who, many in seen.items())
            said.append(f"{told} of {wanted[name]} GPUs")
        lost = (one for one in judged[name] if one.role is Role.COMPUTE and not one.sure)
        said += [f"{one.nic.netdev}: {one.why}" for one in lost]
        if said:
            yield f"{ODD}: {name}: {'; '.join(said)}"
    if hidden:
        amd = answers.nodes[hidden[0]].topology.gpu_devices()[0].vendor == _AMD
        why = (
            ": AMD's, which no benchmark here reads; CPU, memory and fabric are"
            if amd
            else " and nvidia-smi does not: a job sees those that it asks for; discover again by --ansible"
        )
        yield (
            f"Not measured: the GPUs of {count(len(hidden), 'node')} ({hidden[0]} and its like), which PCI "
            f"shows{why}"
        )


def _left_out(
    judged: Mapping[str, Sequence[NicWithRole]], chosen: Mapping[str, Sequence[NicAnswer]]
) -> Iterator[str]:
    """Yield why no NIC is of the fabric though there are RDMA devices."""
    if any(chosen.values()):
        return
    why = Counter(one.why for own in judged.values() for one in own if one.nic.rdma)
    for reason, many in why.most_common(3):
        name, nic = next((n, one.nic) for n, own in judged.items() for one in own if one.why == reason)
        yield f"Not measured: {many} RDMA NICs ({name} {nic.netdev} {nic.rdma[0]} and its like): {reason}"


def _model(name: str) -> str:
    model = by_driver_name(name)
    return (
        model.name if model else "-".join(name.replace("/", " ").replace("(", " ").replace(")", " ").split())
    )


def _address(name: str, node: NodeAnswer, answers: Answers) -> str | None:
    if name in answers.addresses:
        return answers.addresses[name]
    way = next((nic for nic in node.nics if nic.netdev in node.default_interfaces and nic.ipv4), None)
    return way.ipv4[0].partition("/")[0] if way else None


def _uneven(chosen: Mapping[str, Sequence[NicAnswer]]) -> Iterable[str]:
    """Yield the nodes that have another number of fabric NICs than most."""
    counts = Counter(len(nics) for nics in chosen.values())
    usual = counts.most_common(1)[0][0]
    for name, nics in chosen.items():
        if len(nics) != usual:
            yield f"{name} has {len(nics)} NICs of the fabric, most nodes have {usual}"


def _rails(
    nodes: Mapping[str, NodeAnswer], chosen: Mapping[str, Sequence[NicAnswer]]
) -> tuple[tuple[FoundRail, ...], dict[tuple[str, str], str]]:
    """Return the rails, and the rail of each node's NIC.

    One subnet with at most one NIC of each node is a rail. Where that does not hold, NIC i of every node, in
    the order of their PCI addresses, is on rail i: a guess.
    """
    subnets: dict[ipaddress.IPv4Network, list[tuple[str, str]]] = {}
    for name, nics in chosen.items():
        for nic in nics:
            subnets.setdefault(ipaddress.IPv4Interface(nic.ipv4[0]).network, []).append((name, nic.netdev))
    by_subnet = all(len({node for node, _ in ends}) == len(ends) for ends in subnets.values())
    shared = len(chosen) == 1 or all(len(ends) > 1 for ends in subnets.values())
    if by_subnet and shared:
        first = {
            end: place for place, end in enumerate(end for ends in _in_order(nodes, chosen) for end in ends)
        }
        order = sorted(subnets, key=lambda net: min(first[end] for end in subnets[net]))
        rail_of = {end: f"rail{i}" for i, net in enumerate(order) for end in subnets[net]}
        return tuple(FoundRail(f"rail{i}", str(net)) for i, net in enumerate(order)), rail_of
    rail_of, members = {}, dict[int, list[ipaddress.IPv4Network]]()
    address = {
        (name, nic.netdev): ipaddress.IPv4Interface(nic.ipv4[0])
        for name, nics in chosen.items()
        for nic in nics
    }
    for ends in _in_order(nodes, chosen):
        for i, end in enumerate(ends):
            rail_of[end] = f"rail{i}"
            members.setdefault(i, []).append(address[end].network)
    why = "NICs in the order of their PCI addresses: their subnets do not tell rails apart"
    return tuple(
        FoundRail(f"rail{i}", str(_around(nets)), why) for i, nets in sorted(members.items())
    ), rail_of


def _in_order(
    nodes: Mapping[str, NodeAnswer], chosen: Mapping[str, Sequence[NicAnswer]]
) -> Iterable[list[tuple[str, str]]]:
    """Yield every node's fabric NICs in the order of their PCI addresses, else of their names."""
    for name, nics in chosen.items():
        place = {nic.netdev: device.bdf for nic in nics if (device := pci_device(nodes[name], nic))}
        yield [
            (name, nic.netdev)
            for nic in sorted(nics, key=lambda n: (place.get(n.netdev, "~"), natural_key(n.netdev)))
        ]


def _around(networks: Sequence[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return the smallest network that holds all of these."""
    around = networks[0]
    while around.prefixlen > _WIDEST and not all(net.subnet_of(around) for net in networks):
        around = around.supernet()
    return around


class Difference(NamedTuple):
    """One thing that the folder says otherwise than the cluster."""

    where: str  # node, or node and NIC
    what: str
    folder: str
    cluster: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: folder {self.folder}, cluster {self.cluster}"


def differences(site: Site, found: FoundSite, answers: Answers) -> list[Difference]:
    """Return what differs, node by node."""
    there = {node.name: node for node in found.nodes}
    made: list[Difference] = []
    for name in sorted({*site.nics, *there}, key=natural_key):
        if name not in there:
            made.append(Difference(name, "node", "listed", answers.silent.get(name, "not there")))
        elif name not in site.nics:
            made.append(Difference(name, "node", "not listed", "answers"))
        else:
            made += _node(site, there[name], answers.nodes[name])
    unknown = answers.silent.keys() - site.nics.keys() - site.absent_nodes.keys()
    made += [Difference(name, "node", "not listed", answers.silent[name]) for name in sorted(unknown)]
    return made


def _node(site: Site, found: FoundNode, answer: NodeAnswer) -> Iterator[Difference]:
    name, mine = found.name, site.nics[found.name]
    tcp = {nic.netdev for nic in site.tcp_nics.get(name, ())}
    for nic in mine:
        yield from _compare_nic(
            name, nic, found, answer, site.fabric if isinstance(site.fabric, Fabric) else None
        )
    for new in found.nics:
        if isinstance(site.fabric, Fabric) and new.netdev not in {nic.netdev for nic in mine} | tcp:
            yield Difference(
                f"{name} {new.netdev}", "NIC of the fabric", "not listed", f"{new.rdma_device}, {new.ipv4}"
            )
    gpus, here = site.gpus.get(name, 0), len(answer.topology.gpus)
    if gpus != here:
        yield Difference(name, "GPUs", str(gpus), str(here))


def _compare_nic(
    name: str, nic: NicSpec, found: FoundNode, answer: NodeAnswer, fabric: Fabric | None
) -> Iterator[Difference]:
    where = f"{name} {nic.netdev}"
    seen = next((one for one in answer.nics if one.netdev == nic.netdev), None)
    if seen is None:
        yield Difference(where, "NIC", "listed", "not there")
        return
    if nic.rdma_device not in seen.rdma:
        yield Difference(where, "rdma_device", nic.rdma_device, ", ".join(seen.rdma) or "none")
    own = [one.partition("/")[0] for one in seen.ipv4]
    if nic.ipv4 not in own:
        yield Difference(where, "ipv4", nic.ipv4, ", ".join(own) or "none")
    if fabric is not None:
        if seen.gbps and seen.gbps != fabric.link_speed_gbps:
            yield Difference(where, "link_speed_gbps", str(fabric.link_speed_gbps), str(seen.gbps))
        if seen.mtu_bytes and seen.mtu_bytes != fabric.mtu_bytes.host:
            yield Difference(where, "mtu_bytes.host", str(fabric.mtu_bytes.host), str(seen.mtu_bytes))
    cabled = next((one for one in found.nics if one.netdev == nic.netdev), None)
    if cabled is None:
        why = next(
            (f"not of the fabric, {one.why}" for one in found.others if one.nic.netdev == nic.netdev), ""
        )
        yield Difference(where, "role", "of the fabric", why)
    elif cabled.leaf and nic.leaf:
        ends = f"{nic.leaf} {nic.leaf_port or ''}".strip(), f"{cabled.leaf} {cabled.leaf_port}"
        if ends[0] != ends[1]:
            yield Difference(where, "cable", *ends)
