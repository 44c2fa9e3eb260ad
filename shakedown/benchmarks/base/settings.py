"""Settings that several benchmarks share: types of their options, and the TCP interfaces of a job's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shakedown.intent.site import Fabric, Site
from shakedown.records.base import PlainPath, Record

# Files that a job reads.
Program = PlainPath


def without(settings: Any, *keys: str) -> Any:  # noqa: ANN401  (as the file has it)
    """Return a job's settings without keys that orders of earlier releases had, and that decide nothing."""
    return {k: v for k, v in settings.items() if k not in keys} if isinstance(settings, dict) else settings


# Which TCP interfaces a job's data go over, so that they are looked at before it measures.


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
