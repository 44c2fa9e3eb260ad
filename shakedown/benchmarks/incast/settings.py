"""What acceptance asks of incast, and the settings of a job: the mesh's, and who sends to whom."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from shakedown.benchmarks.incast.job import Round, rounds_of
from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.records.base import Record
from shakedown.records.wording import natural_key

Pattern = Literal["incast", "all_to_all"]


class Incast(Record):
    """Several nodes that send to one NIC at once, and groups in which every node sends to all others."""

    # Many nodes to one, and every node of a group to all others.
    patterns: tuple[Pattern, ...] = Field(default=("incast",), min_length=1)
    # ib_write_bw or ib_send_bw: what the senders run.
    operation: Literal["write", "send"] = "write"
    # So many nodes send to one at once, fewer where the site is smaller; a group of all-to-all has one more.
    senders: int = Field(default=7, ge=2, le=63)
    # So many nodes of the site receive in incast, one after the other, spread over all of them.
    receivers: int = Field(default=8, ge=1, le=1024)
    # Of one message, in bytes.
    size_bytes: int = Field(default=1048576, ge=4096, le=1 << 30)
    # Seconds of each measurement; perftest counts the middle half of it.
    duration_s: int = Field(default=10, ge=2, le=600)

    @field_validator("patterns")
    @classmethod
    def _each_once(cls, named: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(named)) < len(named):
            raise ValueError("names one twice; once is enough")
        return named


class Crowd(Record):
    """Who sends to whom.

    Attributes:
        patterns, senders, receivers: as the site asks.
        priority: of RoCE, whose pause frames count.
    """

    patterns: tuple[Pattern, ...]
    senders: int
    receivers: int
    priority: int


class IncastSettings(MeshSettings):
    """The mesh's own order, and who sends to whom."""

    rails: tuple[str, ...] = ()
    crowd: Crowd

    def rounds(self) -> list[Round]:
        """Return the rounds that are ordered."""
        nodes = sorted(self.nodes, key=natural_key)
        crowd = self.crowd
        return rounds_of(nodes, self.rails, crowd.patterns, crowd.senders, crowd.receivers)
