"""The topology of each site that a lab can play."""

from __future__ import annotations

from lab.fabric.topology import FabricTopology
from lab.topology import Topology

FABRIC = "fabric"


def topology_of(site: str, nodes: int) -> Topology:
    """The machines and cables of a site of so many compute nodes. Raises LabError for a size it has not."""
    return FabricTopology(nodes) if site == FABRIC else Topology(nodes)
