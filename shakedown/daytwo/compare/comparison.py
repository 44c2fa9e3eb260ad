"""What a comparison of runs says: of each metric, of each node that stands out, and as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shakedown.records.base import Record

Decision = Literal["better", "equivalent", "worse", "undecided"]


@dataclass(frozen=True)
class Settings:
    """How a comparison decides."""

    margin: float = 0.01  # equivalence margin, a fraction
    q: float = 0.05  # false discovery rate over all metrics, and over all nodes of all metrics


class NodeShift(Record):
    """One node that stands out. `shift` is a fraction, positive for an improvement."""

    node: str
    shift: float


class MetricComparison(Record):
    """What became of one metric. Shifts are fractions of A, positive for an improvement."""

    metric: str  # stage/test/metric/parameters
    unit: str
    decision: Decision
    reason: str
    pairs: int
    controls: int
    shift: float | None = None  # median over the nodes, controls taken out
    low: float | None = None  # its 95 % interval (order statistics of the nodes, or Student of the runs)
    high: float | None = None
    control_shift: float | None = None
    p_difference: float | None = None
    p_equivalence: float | None = None
    smallest_node_loss: float | None = None  # of one node, found in nine of ten cases
    worse: tuple[NodeShift, ...] = ()
    better: tuple[NodeShift, ...] = ()
    unpaired: tuple[str, ...] = ()  # nodes with a usable value on one side only


class Comparison(Record):
    """What became of all metrics (`shakedown compare --json`)."""

    schema_version: Literal[1] = 1
    a: str
    b: str
    changed: str | None
    nodes: tuple[str, ...]  # those that were changed
    controls: tuple[str, ...]
    margin: float
    q: float
    decision: Decision
    metrics: tuple[MetricComparison, ...]
    newly_failing: tuple[str, ...]  # cells that passed in A and fail in B, counters and settings included
    notes: tuple[str, ...]
    runs: tuple[int, int] = (1, 1)  # of A and of B
