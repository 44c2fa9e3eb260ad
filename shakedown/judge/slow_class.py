"""The gate of a whole class: what half of its cells must reach, so that a fleet that is slow as one fails."""

from __future__ import annotations

from shakedown.judge.cells import Bound, Rule
from shakedown.records.base import Outcome
from shakedown.records.verdict import CellVerdict
from shakedown.records.wording import apart, number, where
from shakedown.statistics.robust import median, median_interval


def with_slow_class(cells: list[CellVerdict], bound: Bound) -> list[CellVerdict]:
    """Fail the worse half of a class whose median is worse than its reference allows.

    Chance is given its due: the better end of the median's 95 % interval must be worse (below six values that
    is the best of them).
    """
    tolerance, reference = bound.reference.class_tolerance, bound.reference
    if tolerance is None:
        return cells
    decided = [v for v in cells if v.value is not None and v.rule not in (Rule.IMPOSSIBLE, Rule.REFERENCE)]
    values = [v.value for v in decided if v.value is not None]
    if not values:
        return cells
    limit = reference.value * (1 - tolerance if bound.higher else 1 + tolerance)
    low, high, _ = median_interval(values)
    if (high >= limit) if bound.higher else (low <= limit):
        return cells
    centre, side = median(values), "at least" if bound.higher else "at most"
    for i, verdict in enumerate(cells):
        value = verdict.value
        worse = value is not None and (value <= centre if bound.higher else value >= centre)
        if worse and verdict.outcome is Outcome.PASS:
            cells[i] = verdict.model_copy(
                update={
                    "outcome": Outcome.FAIL,
                    "rule": Rule.CLASS.value,
                    "reason": f"{where(verdict.cell)}: within its own gate, but the median of its class of "
                    f"{len(values)} is {apart(centre, limit)} {reference.unit}, "
                    f"{side} {number(limit)} wanted",
                }
            )
    return cells
