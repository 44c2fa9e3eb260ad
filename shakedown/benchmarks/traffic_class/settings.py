"""What acceptance asks of the proof of the traffic class, and the settings of its job."""

from pydantic import Field

from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.records.base import Record


class TrafficClass(Record):
    """How much RoCE is sent between two nodes while its class is counted where it arrives."""

    # Seconds of traffic from each node to each of its two neighbours in the ring of all nodes.
    duration_s: int = Field(default=2, ge=1, le=60)
    size_bytes: int = Field(default=65536, gt=0)  # of one message, in bytes


class WantedClass(Record):
    """How data of RoCE must arrive, and where each NIC is connected."""

    dscp: int  # its DSCP
    ecn: int  # the two bits beside it as they are sent: 2 is ECT(0), 0 is Not-ECT (RFC 3168)
    priority: int  # the priority of the receiving NIC in which it is counted
    # (leaf, port) by node and rail, where the inventory names them.
    ports: dict[str, dict[str, tuple[str, str]]] = Field(default_factory=dict)


class TrafficClassSettings(MeshSettings):
    """The mesh's own order, and what must arrive."""

    wanted: WantedClass
