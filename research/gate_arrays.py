"""The verdict on a simulated mesh, on arrays: 30 ms for 32,256 cells instead of a second.

The same rules as `shakedown.judge.verdict`, for what a healthy mesh or one with a slow part has: values,
cells without one, and their re-measurements. Whatever else is there (a value above the ceiling, a cell that
stays undecided) is left to the verdict itself. `bench_gate.py` has the verdict judge every so many runs as
well and stops where the two differ.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np

from shakedown.judge.cells import Rule
from shakedown.judge.several_cells import classes_of_lines
from shakedown.records.plan import Plan, Remeasure
from shakedown.simulate.fabric import Simulated
from shakedown.simulate.run import attempts
from shakedown.statistics import robust
from shakedown.statistics.robust import SMALLEST_CLASS, CellTally, Samples, median, worse_outliers

# The same three numbers of cells in every run.
most_by_chance = cache(robust.most_by_chance)


@dataclass(frozen=True)
class Judgement:
    """What the table counts of a verdict: outcome, cells that passed when measured again, broken rules."""

    outcome: str
    transients: int
    rules: dict[str, int]


def judge_arrays(sim: Simulated, plan: Plan) -> Judgement | None:
    """Return the verdict on the plan's only block; None: the verdict itself must be asked.

    So it must where a cell is not settled by the re-measurements that were simulated.
    """
    reference, rule = next(iter(plan.references.values())), plan.remeasure
    assert reference.ceiling is not None
    rails, nodes = len(plan.rails), len(plan.nodes)
    off = np.broadcast_to(~np.eye(nodes, dtype=bool), (rails, nodes, nodes))
    values = np.round(sim.matrix.values, 2)
    every = [values, *(np.round(again, 2) for again in sim.again)]
    measured = np.isfinite(values) | sim.matrix.failed
    if rule is None or not (measured == off).all() or any(np.nanmax(v) > reference.ceiling for v in every):
        return None
    samples: dict[tuple[int, int, int], list[float]] = {}
    doubtful = off & ~(values >= reference.gate)
    for r, a, b, _, value in attempts(sim, reference.gate, only=doubtful):
        samples.setdefault((r, a, b), []).append(value)
    rules = np.full(values.shape, "", dtype=object)
    for cell, found in samples.items():
        known = [v for v in found if not np.isnan(v)]
        outside = sum(v < reference.gate for v in known)
        says = CellTally(len(found), len(known), outside).says(rule.again)
        if says is Samples.TRANSIENT:
            rules[cell] = (Rule.TRANSIENT if outside else Rule.LATE).value
            values[cell] = median(known)
        elif says is Samples.PERSISTS:
            rules[cell] = Rule.GATE.value
        else:
            return None
    _fail_piles(rules, rule)
    if reference.fleet_min_effect is not None:
        for line in _slow_lines(values, off, reference.fleet_min_effect):
            good = off[line] & np.isin(rules[line], ("", Rule.TRANSIENT.value, Rule.LATE.value))
            rules[line] = np.where(good, Rule.OUTLIER.value, rules[line])
    counted = Counter(rules[rules != ""].tolist())
    passed = counted.pop(Rule.TRANSIENT.value, 0) + counted.pop(Rule.LATE.value, 0)
    return Judgement("FAIL" if counted else "PASS", passed, dict(counted))


def _fail_piles(rules: np.ndarray, rule: Remeasure) -> None:
    rails, nodes, _ = rules.shape
    cells = rails * nodes * (nodes - 1)
    elements = 2 * rails * nodes + nodes
    of_nic, of_node = nodes - 1, 2 * (nodes - 1) * rails
    for kind, rate in ((Rule.TRANSIENT.value, rule.budget), (Rule.LATE.value, rule.late_budget)):
        mine = rules == kind
        if mine.sum() > most_by_chance(cells, rate, rule.risk):
            rules[mine] = Rule.PILED_UP.value
            continue
        nic, node = (most_by_chance(n, rate, rule.risk / elements) for n in (of_nic, of_node))
        sends, receives = mine.sum(axis=2) > nic, mine.sum(axis=1) > nic
        either = mine.sum(axis=(0, 2)) + mine.sum(axis=(0, 1)) > node
        piled = sends[:, :, None] | receives[:, None, :] | either[None, :, None] | either[None, None, :]
        rules[mine & piled] = Rule.PILED_UP.value


def _slow_lines(
    values: np.ndarray, off: np.ndarray, effect: float
) -> list[tuple[int, int, slice] | tuple[int, slice, int]]:
    """Return the rows and columns of the NICs whose median is worse than their class's."""
    lines = np.where(off, values, np.nan)
    both = ((lines, 2), (lines, 1))
    medians = np.stack([np.nanmedian(part, axis=axis) for part, axis in both])
    known = np.stack([np.isfinite(part).sum(axis=axis) for part, axis in both]) >= SMALLEST_CLASS
    places = [(way, r, i) for way, r, i in np.argwhere(known).tolist()]
    found: set[tuple[int, int, int]] = set()
    for _, names, q in classes_of_lines({place: str(place[1]) for place in places}):
        of_class = [float(medians[place]) for place in names]
        odd = worse_outliers(of_class, higher=True, min_effect=effect, q=q)
        found.update(place for place, is_odd in zip(names, odd, strict=True) if is_odd)
    return [(r, slice(None), i) if way else (r, i, slice(None)) for way, r, i in sorted(found)]
