"""What a job is ordered to do: the mesh's specification, and who sends to whom."""

from __future__ import annotations

from shakedown.benchmarks.incast.options import Pattern
from shakedown.benchmarks.incast.rounds import Round, rounds_of
from shakedown.benchmarks.perftest.order import MeshOrder
from shakedown.records.base import Record
from shakedown.records.names import natural_key


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


class IncastOrder(MeshOrder):
    """The mesh's own order, and who sends to whom."""

    rails: tuple[str, ...] = ()
    crowd: Crowd

    def rounds(self) -> list[Round]:
        """Return the rounds that are ordered."""
        nodes = sorted(self.nodes, key=natural_key)
        crowd = self.crowd
        return rounds_of(nodes, self.rails, crowd.patterns, crowd.senders, crowd.receivers)
