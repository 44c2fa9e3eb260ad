"""The values of each run by metric and cell, and what they make of each node: deviations run by run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Outcome
from shakedown.records.plan import PlanItem
from shakedown.statistics.paired import Sides
from shakedown.statistics.robust import median


@dataclass
class Values:
    """One metric of one run: values by cell, with the nodes of each."""

    item: PlanItem
    cells: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)


@dataclass
class Draft:
    """One metric of both sides."""

    key: str
    item: PlanItem
    sides: Sides
    unpaired: tuple[str, ...]
    exact: bool  # zero is due: every difference is one of fact, not of noise
    whole: bool  # measured over more nodes than a pair: no node can be told


def values_of(judged: Judged) -> dict[str, Values]:
    """Return the usable values by metric: measured, finite, possible, and not spoiled or retried."""
    found: dict[str, Values] = {}
    for block in judged.items:
        item = block.item
        if item.metric.startswith("counter."):
            continue  # counters decide by their own gate: see `newly_failing`
        tail = ",".join(f"{k}={item.params[k]}" for k in sorted(item.params)) or "-"
        values = found.setdefault(f"{item.stage}/{item.test}/{item.metric}/{tail}", Values(item))
        for (cell, nodes, _, _), verdict in zip(item.cells(), block.cells, strict=True):
            usable = verdict.outcome in (Outcome.PASS, Outcome.FAIL) and verdict.rule != "impossible"
            if usable and verdict.value is not None and math.isfinite(verdict.value):
                values.cells[cell] = (nodes, verdict.value)
    return found


def pair(
    key: str,
    before: Sequence[Mapping[str, Values]],
    after: Sequence[Mapping[str, Values]],
    treated: frozenset[str],
    controls: frozenset[str],
) -> Draft:
    """Return the deviations of one metric by run and node: the median over the cells that a node is in."""
    item = next(run[key].item for run in before if key in run)
    sign = 1.0 if item.better is Better.HIGHER else -1.0
    old, new = (
        [run[key].cells if key in run and run[key].item.unit == item.unit else {} for run in side]
        for side in (before, after)
    )
    places = {cell: nodes for run in (*new, *old) for cell, (nodes, _) in run.items()}
    shares = [Counter(cell for run in side for cell in run) for side in (old, new)]
    shared = {c for c in places if shares[0][c] and shares[1][c]}
    levels = {c: median([run[c][1] for run in old if c in run]) for c in shared}
    exact = all(run[c][1] == 0 for run in old for c in run.keys() & shared)
    lost = {
        node
        for cell, nodes in places.items()
        # Fewer values after than before: a node that gives none any more, or none now and then.
        if cell not in shared
        or (levels[cell] == 0 and not exact)
        or shares[1][cell] * len(old) < shares[0][cell] * len(new)
        for node in nodes
    }
    owners = {c: nodes if len(nodes) <= 2 else ("all nodes",) for c, nodes in places.items()}
    usable = {
        # An untouched node's value over a cable to an upgraded one is no longer untouched.
        c: [n for n in owners[c] if n not in controls or controls.issuperset(places[c])]
        for c in shared
        if levels[c] != 0 or exact
    }

    def deviations(run: Mapping[str, tuple[tuple[str, ...], float]]) -> dict[str, float]:
        by_node: dict[str, list[float]] = {}
        for cell in usable.keys() & run.keys():
            away = sign * (run[cell][1] - levels[cell])
            for node in usable[cell]:
                by_node.setdefault(node, []).append(away if exact else away / abs(levels[cell]))
        return {node: median(values) for node, values in by_node.items()}

    whole = any(len(nodes) > 2 for nodes in places.values())
    first = [levels[cell] for cell in sorted(shared)[:64] if levels[cell]]
    sides = Sides(
        [deviations(run) for run in old],
        [deviations(run) for run in new],
        treated | {"all nodes"} if whole else treated,
        controls,
        max((10.0 ** -_decimals(value) / abs(value) for value in first), default=0.0),
    )
    return Draft(key, item, sides, tuple(sorted(lost)), exact, whole)


def _decimals(value: float) -> int:
    text = repr(value)
    return 9 if "e" in text else len(text.partition(".")[2].rstrip("0"))
