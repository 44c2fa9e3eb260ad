"""What acceptance asks of the proof of the traffic class."""

from __future__ import annotations

from pydantic import Field

from shakedown.records.base import Record


class TrafficClass(Record):
    """How much RoCE is sent between two nodes while its class is counted where it arrives."""

    # Seconds of traffic from each node to each of its two neighbours in the ring of all nodes.
    duration_s: int = Field(default=2, ge=1, le=60)
    # Of one message, in bytes.
    size_bytes: int = Field(default=65536, gt=0)
