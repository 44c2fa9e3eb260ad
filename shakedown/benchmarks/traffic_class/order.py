"""What a job is ordered to prove: the mesh's specification, and how its packets must arrive."""

from __future__ import annotations

from pydantic import Field

from shakedown.benchmarks.perftest.order import MeshOrder
from shakedown.records.base import Record


class Wanted(Record):
    """How data of RoCE must arrive, and where each NIC is connected.

    Attributes:
        dscp: its DSCP.
        ecn: the two bits beside it as they are sent: 2 is ECT(0), 0 is Not-ECT (RFC 3168).
        priority: the priority of the receiving NIC in which it is counted.
        ports: (leaf, port) by node and rail, where the inventory names them.
    """

    dscp: int
    ecn: int
    priority: int
    ports: dict[str, dict[str, tuple[str, str]]] = Field(default_factory=dict)


class TrafficClassOrder(MeshOrder):
    """The mesh's own order, and what must arrive."""

    wanted: Wanted
