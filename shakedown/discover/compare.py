"""What a site's folder says otherwise than its machines. What nothing answered is not compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shakedown.discover.answers import Answers, NodeAnswer
from shakedown.discover.draft_site import FoundNode, FoundSite
from shakedown.intent.site import Fabric, NicSpec, Site
from shakedown.records.names import natural_key


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
    return made


def _node(site: Site, found: FoundNode, answer: NodeAnswer) -> Iterator[Difference]:
    name, mine = found.name, site.nics[found.name]
    tcp = {nic.netdev for nic in site.tcp_nics.get(name, ())}
    for nic in mine:
        yield from _nic(name, nic, found, answer, site.fabric if isinstance(site.fabric, Fabric) else None)
    for new in found.nics:
        if isinstance(site.fabric, Fabric) and new.netdev not in {nic.netdev for nic in mine} | tcp:
            yield Difference(
                f"{name} {new.netdev}", "NIC of the fabric", "not listed", f"{new.rdma_device}, {new.ipv4}"
            )
    gpus, here = site.gpus.get(name, 0), len(found.gpus)
    if gpus != here:
        yield Difference(name, "GPUs", str(gpus), str(here))


def _nic(
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
