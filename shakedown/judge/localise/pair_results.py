"""The results of pairs of nodes, picked out of all measurements of a run. Without numpy: most have none."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime

from shakedown.benchmarks.perftest.mesh.perftest import CLOCK_UNKNOWN
from shakedown.records.base import Better, Params, Stage
from shakedown.records.plan import PlanItem
from shakedown.records.results import Load, Measurement, RunProblem

# A tail percentile says more about its own luck than about the fabric.
_NOT_LOCALISED = frozenset({"latency_p99"})
# What keeps a measurement from being made, and not from reaching its rate, accuses no hardware by itself.
_NOT_THE_FABRIC = frozenset(
    {"missing-tool", "environment", "setup", "busy", "parse", "counter-reset", "not-run"}
)

# Attempts at one cell agree when the lowest is at least this part of the highest.
_AGREE = 0.9
_FILE = re.compile(r"\A\S+\.\w+(:\d+)?: ")

Place = tuple[str, str, str]  # rail, source, sink


class PlannedPairs:
    """The cells of pairs of nodes in a plan, without writing each of them out.

    Attributes:
        count: how many there are; blocks that the plan itself does not run are not counted.
    """

    def __init__(self, items: Iterable[PlanItem]) -> None:
        self.count = 0
        self._blocks: dict[
            str, list[tuple[frozenset[tuple[str, ...]], frozenset[str | None], frozenset[str | None]]]
        ]
        self._blocks = defaultdict(list)
        for item in items:
            if item.not_run is not None:
                continue
            pairs = frozenset(n for n in item.nodes if is_pair(item.stage, item.metric, n, "rail", "forward"))
            rails = frozenset(item.rails) - {None}
            directions = frozenset(item.directions) & {"forward", "reverse"}
            if pairs and rails and directions:
                self._blocks[_label(item.test, item.metric, item.params)].append((pairs, rails, directions))
                self.count += len(pairs) * len(rails) * len(directions)

    def nodes(self) -> set[str]:
        """Return the nodes of all pairs."""
        return {node for blocks in self._blocks.values() for pairs, *_ in blocks for p in pairs for node in p}

    def rails(self) -> set[str]:
        """Return the rails of all pairs."""
        return {r for blocks in self._blocks.values() for _, rails, _ in blocks for r in rails if r}

    def holds(self, label: str, m: Measurement) -> bool:
        """Whether a measurement belongs to one of the cells."""
        return any(
            m.nodes in pairs and m.rail in rails and m.direction in directions
            for pairs, rails, directions in self._blocks.get(label, ())
        )


class PairResults:
    """What each pair reached in each test; the last attempt counts, and of two alike the worse.

    Args:
        planned: what is taken in; None: every pair.

    Attributes:
        values: by test and parameters: of each place the attempt, its value and when the first attempt began,
            in seconds since 1970; NaN where there is none.
        higher: whether more is better.
        loaded: the worst of what else was at work on a node's CPUs, by node.
        problems: what kept a place from having a value, in the attempt that counts, by test and parameters.
    """

    def __init__(self, planned: PlannedPairs | None = None) -> None:
        self._planned = planned
        self.values: dict[str, dict[Place, tuple[int, float, float]]] = defaultdict(dict)
        self.higher: dict[str, bool] = {}
        self.problems: dict[tuple[str, Place], RunProblem] = {}
        self.loaded: dict[str, Load] = {}
        self._attempts: dict[tuple[str, Place], dict[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self.values)

    def add(self, m: Measurement) -> None:
        """Take a measurement in, if it is one of a pair."""
        if not is_pair(m.stage, m.metric, m.nodes, m.rail, m.direction):
            return
        label = _label(m.test, m.metric, m.params)
        if self._planned is not None and not self._planned.holds(label, m):
            return
        if m.problem is not None and CLOCK_UNKNOWN in m.problem.message:
            return  # all traffic passed and its rate is not known: that is no result missing from a NIC
        assert m.rail is not None
        self.higher[label] = higher = m.better is Better.HIGHER
        source, sink = m.nodes if m.direction == "forward" else (m.nodes[1], m.nodes[0])
        good = m.value is not None and math.isfinite(m.value) and m.value > 0 and m.problem is None
        value = m.value if good and m.value else math.nan
        cells, place = self.values[label], (m.rail, source, sink)
        earlier, begun = cells.get(place), math.nan
        if m.started:
            with suppress(ValueError, OverflowError):
                begun = datetime.fromisoformat(m.started).timestamp()
        for node in dict.fromkeys(load.node for load in m.loaded):
            mine = [load for load in m.loaded if load.node == node]
            said, most = "; ".join(load.said for load in mine), sum(load.most for load in mine)
            load = Load(node=node, said=said[:500], most=min(1.0, most))
            self.loaded[node] = max(load, self.loaded.get(node, load), key=lambda x: (x.most, x.said))
        if earlier is not None:
            if m.attempt != earlier[0]:
                # Kept only for the few that were measured more than once.
                kept = self._attempts.setdefault((label, place), {earlier[0]: earlier[1]})
                kept[m.attempt] = value
            begun = earlier[2] if math.isnan(begun) else min(earlier[2], begun)
        if earlier is None or m.attempt > earlier[0]:
            cells[place] = (m.attempt, value, begun)
            self.problems.pop((label, place), None)
        elif m.attempt == earlier[0]:
            cells[place] = (m.attempt, _worse(earlier[1], value, higher), begun)
        else:
            cells[place] = (*earlier[:2], begun)
            return
        if m.problem is not None:
            # Of two of the same attempt always the same, in whatever order they come.
            known = self.problems.get((label, place), m.problem)
            self.problems[label, place] = min(known, m.problem, key=lambda p: (p.kind, p.message))

    @property
    def measured(self) -> int:
        """How many places have a value."""
        return sum(math.isfinite(v) for cells in self.values.values() for _, v, _ in cells.values())

    @property
    def missing(self) -> int:
        """How many have none: of those planned, or, without a plan, of those that were tried."""
        tried = sum(len(cells) for cells in self.values.values())
        return (tried if self._planned is None else self._planned.count) - self.measured

    @property
    def disagreeing(self) -> int:
        """How many places have attempts with values a tenth or more apart: a retry hides nothing."""
        values = [[v for v in kept.values() if math.isfinite(v)] for kept in self._attempts.values()]
        return sum(bool(found) and min(found) < _AGREE * max(found) for found in values)

    def own_words(self) -> dict[tuple[str, str], str]:
        """Return (node, rail) -> what the node itself said was wrong with its NIC there."""
        said: dict[tuple[str, str], str] = {}
        for (_, place), problem in self.problems.items():
            for key, text in _own_words(place, problem):
                said[key] = min(text, said.get(key, text))
        return said

    def unspoilt(self, label: str) -> Iterator[tuple[Place, float]]:
        """Yield the places of a test with their values, without those that accuse no hardware."""
        for place, (_, value, _) in self.values[label].items():
            if (label, place) not in self.problems or not self._is_spoilt(label, place):
                yield place, value

    def spoilt(self) -> Iterator[tuple[Place, str]]:
        """Yield the places whose problem lies outside of the fabric, and what was said of it."""
        for (label, place), problem in self.problems.items():
            if self._is_spoilt(label, place):
                yield place, problem.message

    def _is_spoilt(self, label: str, place: Place) -> bool:
        problem = self.problems[label, place]
        return problem.kind in _NOT_THE_FABRIC and not any(_own_words(place, problem))


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


def named_in(message: str, place: Place) -> list[str]:
    """Return which ends of a place a problem is about: the one that was lost, or whoever is named.

    What is wrong with an output (the message begins with its name, which holds both in any case) may be
    either end's. A message about the whole job that names neither is about neither.
    """
    _, *ends = place
    lost = [node for node in ends if message.startswith(f"{node} lost: ")]
    text, of_output = _FILE.subn("", message)
    named = [node for node in ends if re.search(rf"(?<![\w.-]){re.escape(node)}(?![\w-])", text)]
    return lost or named or (ends if of_output else [])


def _own_words(place: Place, problem: RunProblem) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield (node, rail) and text of what a node said of its own NIC: `NODE RAIL: text`."""
    rail, *ends = place
    if problem.kind != "setup":
        return
    for node in ends:
        for own in rail.split(">"):
            prefix = f"{node} {own}: "
            if problem.message.startswith(prefix):
                yield (node, own), problem.message.removeprefix(prefix)


def _label(test: str, metric: str, params: Params) -> str:
    return " ".join([test, metric, *(f"{k}={params[k]}" for k in sorted(params))])


def _worse(one: float, other: float, higher: bool) -> float:
    if math.isnan(one) or math.isnan(other):
        return math.nan
    return min(one, other) if higher else max(one, other)
