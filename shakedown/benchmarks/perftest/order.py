"""What a mesh was ordered to measure, as far as its outputs are held against it.

The whole specification is mesh/spec.py's, which the drivers read with the standard library alone.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class OrderedNic(_Part):
    """A NIC that is measured."""

    ipv4: str


class OrderedNode(_Part):
    """A node and its NICs by rail."""

    rails: dict[str, OrderedNic] = {}


class MeshOrder(_Part):
    """Addresses, RDMA MTU in bytes (None: any), and the GID's index where the site chose it itself."""

    nodes: dict[str, OrderedNode] = {}
    mtu: int | None = None
    gid_index: int | None = None
