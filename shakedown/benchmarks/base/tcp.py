"""Which TCP interfaces a job's data go over, so that they are looked at before it measures."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.intent.site import Fabric, Site
from shakedown.records.base import Record


class TcpPath(Record):
    """A node's interface in a TCP network that a job uses.

    Attributes:
        rail: the network, as `tcp_fabrics` names it.
        mtu_bytes: of the interface and the way between the nodes.
    """

    rail: str
    netdev: str
    ipv4: str
    mtu_bytes: int


TcpPaths = dict[str, tuple[TcpPath, ...]]


def tcp_paths(site: Site, interfaces: Mapping[str, tuple[str, ...]]) -> TcpPaths:
    """Return the interfaces among these, by node, that are of TCP networks; none of a node by itself."""
    mtu = {fabric.name: fabric.mtu_bytes for fabric in site.tcp_fabrics}
    paths = {
        node: tuple(
            TcpPath(rail=nic.fabric, netdev=nic.netdev, ipv4=nic.ipv4, mtu_bytes=mtu[nic.fabric])
            for nic in site.tcp_nics.get(node, ())
            if nic.netdev in names
        )
        for node, names in interfaces.items()
    }
    return paths if len(paths) > 1 and all(paths.values()) else {}


def all_tcp_paths(site: Site, nodes: tuple[str, ...]) -> TcpPaths:
    """Return every TCP interface of these nodes, where the site has no other network between them."""
    if isinstance(site.fabric, Fabric):
        return {}
    return tcp_paths(site, {n: tuple(nic.netdev for nic in site.tcp_nics.get(n, ())) for n in nodes})
