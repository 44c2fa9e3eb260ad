"""The results of pairs of nodes, picked out of all measurements of a run. Without numpy: most have none."""

from __future__ import annotations

import math
from collections import defaultdict

from shakedown.core.records import Better, Measurement, Params, Stage
from shakedown.parsers.perftest_clock import CLOCK_UNKNOWN

# A tail percentile says more about its own luck than about the fabric.
_NOT_LOCALISED = frozenset({"latency_p99"})

Place = tuple[str, str, str]  # rail, source, sink


class PairResults:
    """What each pair reached in each test; the last attempt counts, and of two alike the worse.

    Attributes:
        values: by test and parameters: (attempt, value) of each place; NaN where there is none.
        higher: whether more is better.
        said: (node, rail) -> what the node itself said was wrong with its rail.
        lost: node -> what its partners said when it did not answer any more.
        lost_places: the places that have no value for that reason, by test and parameters.
    """

    def __init__(self) -> None:
        self.values: dict[str, dict[Place, tuple[int, float]]] = defaultdict(dict)
        self.higher: dict[str, bool] = {}
        self.said: dict[tuple[str, str], str] = {}
        self.lost: dict[str, str] = {}
        self.lost_places: set[tuple[str, Place]] = set()

    def __bool__(self) -> bool:
        return bool(self.values)

    def add(self, m: Measurement) -> None:
        """Take a measurement in, if it is one of a pair."""
        if not is_pair(m.stage, m.metric, m.nodes, m.rail, m.direction):
            return
        if m.problem is not None and CLOCK_UNKNOWN in m.problem.message:
            return  # all traffic passed and its rate is not known: that is no result missing from a NIC
        assert m.rail is not None
        label = _label(m.test, m.metric, m.params)
        self.higher[label] = higher = m.better is Better.HIGHER
        source, sink = m.nodes if m.direction == "forward" else (m.nodes[1], m.nodes[0])
        good = m.value is not None and math.isfinite(m.value) and m.value > 0 and m.problem is None
        value = m.value if good and m.value else math.nan
        cells, place = self.values[label], (m.rail, source, sink)
        earlier = cells.get(place)
        if earlier is None or m.attempt > earlier[0]:
            cells[place] = (m.attempt, value)
        elif m.attempt == earlier[0]:
            cells[place] = (m.attempt, _worse(earlier[1], value, higher))
        self._listen(m, label, place)

    def _listen(self, m: Measurement, label: str, place: Place) -> None:
        """Take over what nodes said: `NODE RAIL: ` of their own rail, `NODE lost: ` of a partner."""
        if m.problem is None or m.problem.kind not in {"setup", "environment"}:
            return
        for node in m.nodes:
            if m.problem.message.startswith(f"{node} lost: "):
                self.lost[node] = min(m.problem.message, self.lost.get(node, m.problem.message))
                self.lost_places.add((label, place))
            for rail in (m.rail or "").split(">"):
                prefix = f"{node} {rail}: "
                if m.problem.message.startswith(prefix):
                    text = m.problem.message.removeprefix(prefix)
                    self.said[node, rail] = min(text, self.said.get((node, rail), text))


def is_pair(
    stage: Stage, metric: str, nodes: tuple[str, ...], rail: str | None, direction: str | None
) -> bool:
    """Whether a cell tells of the path between two nodes."""
    return (
        stage is Stage.FABRIC
        and len(nodes) == 2
        and rail is not None
        and direction in {"forward", "reverse"}
        and metric not in _NOT_LOCALISED
        and not metric.startswith("counter.")
    )


def _label(test: str, metric: str, params: Params) -> str:
    return " ".join([test, metric, *(f"{k}={params[k]}" for k in sorted(params))])


def _worse(one: float, other: float, higher: bool) -> float:
    if math.isnan(one) or math.isnan(other):
        return math.nan
    return min(one, other) if higher else max(one, other)
