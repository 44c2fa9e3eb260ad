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
    netdev: str | None = None
    rdma_device: str | None = None


class OrderedNode(_Part):
    """A node and its NICs by rail."""

    rails: dict[str, OrderedNic] = {}


class OrderedOperation(_Part):
    """One test: so many iterations on each queue pair, or so many seconds."""

    test: str
    size_bytes: int
    duration_s: int | None = None
    iterations: int | None = None
    qps: int = 1
    rdma_cm: bool = False
    sizes: tuple[int, ...] = ()  # of a sweep


class MeshOrder(_Part):
    """What is measured between whom.

    And the RDMA MTU in bytes and the traffic class (None: any), and the GID's index where the site chose it
    itself.
    """

    nodes: dict[str, OrderedNode] = {}
    operations: tuple[OrderedOperation, ...] = ()
    mtu: int | None = None
    tclass: int | None = None
    gid_index: int | None = None

    def operation(self, test: str, size_bytes: object, qps: object) -> OrderedOperation | None:
        """Return what was ordered of a test with messages of one size; None if nothing was.

        `size_bytes` None: the sweep of all sizes.
        """
        asked = (test, size_bytes, qps)
        for op in self.operations:
            if (op.test, None if op.sizes else op.size_bytes, op.qps) == asked:
                return op
        return None
