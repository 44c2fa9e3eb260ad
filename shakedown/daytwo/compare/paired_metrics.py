"""Two runs before and after one change, paired per node: better, equivalent, worse or undecided.

Every node is its own control: its relative difference B against A is what is tested, so that slow nodes and
fast ones weigh alike. With at least six untouched nodes the upgraded ones are held against their differences
(difference in differences), which takes out whatever drifted for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.daytwo.compare.comparison import Comparison, Decision, MetricComparison, NodeShift, Settings
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Outcome
from shakedown.records.plan import PlanItem
from shakedown.records.wording import count
from shakedown.statistics.paired import Shift, accused, decide_shift
from shakedown.statistics.robust import SMALLEST_CLASS, benjamini_hochberg, median, median_interval


@dataclass
class _Values:
    """One metric on one side: values by cell, with the nodes of each."""

    item: PlanItem
    cells: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)


def compare(
    a: Judged,
    b: Judged,
    *,
    names: tuple[str, str],
    changed: str | None,
    treated: Iterable[str],
    controls: Iterable[str],
    settings: Settings = Settings(),  # noqa: B008  (frozen)
) -> Comparison:
    """Compare run B with run A. `treated` are the nodes that were changed, `controls` those left alone."""
    nodes, untouched = tuple(treated), tuple(controls)
    before, after = _values(a), _values(b)
    drafts = [
        _pair(key, before[key], after.get(key), set(nodes), set(untouched))
        for key in sorted(before)
        if not key.startswith("config/")
    ]
    found = [_Test(draft, decide_shift(draft.treated, draft.controls, settings.margin)) for draft in drafts]
    tested = [t for t in found if t.shift is not None]
    # One threshold over all metrics: twenty metrics at 5 % each would find a change in nothing.
    differs = benjamini_hochberg([t.shift.p_difference for t in tested if t.shift], settings.q)
    alike = benjamini_hochberg([t.shift.p_equivalence for t in tested if t.shift], settings.q)
    for test, one, other in zip(tested, differs, alike, strict=True):
        test.differs, test.alike = one, other
    stand_out = accused(
        [(t.draft.treated, t.draft.controls, t.draft.resolution) for t in found], settings.margin, settings.q
    )
    metrics = tuple(_decide(t, out, settings) for t, out in zip(found, stand_out, strict=True))
    failing = _newly_failing(a, b)
    return Comparison(
        a=names[0],
        b=names[1],
        changed=changed,
        nodes=nodes,
        controls=untouched,
        margin=settings.margin,
        q=settings.q,
        decision=_overall(metrics, failing),
        metrics=metrics,
        newly_failing=failing,
        notes=_notes(untouched, before, after),
    )


@dataclass
class _Draft:
    key: str
    item: PlanItem
    treated: dict[str, float]  # relative difference by node, positive for an improvement
    controls: dict[str, float]
    unpaired: tuple[str, ...]
    resolution: float  # relative step in which the values are printed
    exact: bool  # zero is due: every difference is one of fact, not of noise
    whole: bool  # measured over more nodes than a pair: no node can be told


@dataclass
class _Test:
    draft: _Draft
    shift: Shift | None
    differs: bool = False
    alike: bool = False


def _values(judged: Judged) -> dict[str, _Values]:
    """Return the usable values by metric: measured, finite, possible, and not spoiled or retried."""
    found: dict[str, _Values] = {}
    for block in judged.items:
        item = block.item
        if item.metric.startswith("counter."):
            continue  # counters decide by their own gate: see `newly_failing`
        tail = ",".join(f"{k}={item.params[k]}" for k in sorted(item.params)) or "-"
        values = found.setdefault(f"{item.stage}/{item.test}/{item.metric}/{tail}", _Values(item))
        for (cell, nodes, _, _), verdict in zip(item.cells(), block.cells, strict=True):
            values.planned.add(cell)
            usable = verdict.outcome in (Outcome.PASS, Outcome.FAIL) and verdict.rule != "impossible"
            if usable and verdict.value is not None and math.isfinite(verdict.value):
                values.cells[cell] = (nodes, verdict.value)
    return found


def _pair(key: str, a: _Values, b: _Values | None, treated: set[str], controls: set[str]) -> _Draft:
    """Return the per-node differences of one metric: the median over the cells that a node is part of."""
    sign = 1.0 if a.item.better is Better.HIGHER else -1.0
    other = b.cells if b is not None and b.item.unit == a.item.unit else {}
    shared = a.cells.keys() & other.keys()
    exact = all(a.cells[cell][1] == 0 for cell in shared)
    by_node: dict[str, list[float]] = {}
    lost: set[str] = set()
    resolution = 0.0
    for cell in sorted(a.cells.keys() | other.keys()):
        nodes, old = a.cells.get(cell) or other[cell]
        if cell not in shared or (old == 0 and not exact):
            lost.update(nodes)
            continue
        new = other[cell][1]
        difference = sign * (new - old) if exact else sign * (new - old) / abs(old)
        for node in nodes if len(nodes) <= 2 else ("all nodes",):
            # An untouched node's value over a cable to an upgraded one is no longer untouched.
            if node not in controls or controls.issuperset(nodes):
                by_node.setdefault(node, []).append(difference)
    for value in [a.cells[cell][1] for cell in sorted(shared)[:64]]:
        if value:
            resolution = max(resolution, 10.0 ** -_decimals(value) / abs(value))
    shifts = {node: median(values) for node, values in by_node.items()}
    whole = "all nodes" in shifts
    return _Draft(
        key,
        a.item,
        {n: d for n, d in shifts.items() if n in treated or whole},
        {n: d for n, d in shifts.items() if n in controls},
        tuple(sorted(lost)),
        resolution,
        exact,
        whole,
    )


def _decide(test: _Test, stand_out: Mapping[str, float], settings: Settings) -> MetricComparison:
    draft, shift = test.draft, test.shift
    worse = [n for n, d in sorted(stand_out.items(), key=lambda nd: nd[1]) if d < 0]
    better = [n for n, d in sorted(stand_out.items(), key=lambda nd: -nd[1]) if d > 0]
    decision, reason = _verdict(test, worse, settings)
    # Fewer than six untouched nodes are too few to correct by.
    known = len(draft.controls) >= SMALLEST_CLASS
    centre = median(list(draft.controls.values())) if known else 0.0
    adjusted = [d - centre for d in draft.treated.values()]
    low, high, _ = median_interval(adjusted) if len(adjusted) >= SMALLEST_CLASS else (None, None, 0)
    return MetricComparison(
        metric=draft.key,
        unit=draft.item.unit,
        decision=decision,
        reason=reason,
        pairs=len(draft.treated),
        controls=len(draft.controls),
        shift=median(adjusted) if adjusted and not draft.exact else None,
        low=low,
        high=high,
        control_shift=median(list(draft.controls.values())) if draft.controls else None,
        p_difference=shift.p_difference if shift else None,
        p_equivalence=shift.p_equivalence if shift else None,
        worse=tuple(NodeShift(node=n, shift=draft.treated[n]) for n in worse),
        better=tuple(NodeShift(node=n, shift=draft.treated[n]) for n in better),
        unpaired=draft.unpaired,
    )


def _verdict(test: _Test, worse: Sequence[str], settings: Settings) -> tuple[Decision, str]:  # noqa: PLR0911
    """One return per rule, first that holds."""
    draft, shift = test.draft, test.shift
    if draft.exact and draft.treated:
        bad = sorted(node for node, d in draft.treated.items() if d < 0)
        if bad:
            return "worse", f"was zero and is not any more on {', '.join(bad[:5])}"
        return _complete(draft, "equivalent", "is what it was")
    if not draft.treated:
        return "undecided", "no node has a usable value in both runs"
    if draft.whole:
        return "undecided", "is one value for all nodes: a single pair decides nothing"
    moved = median(list(draft.controls.values())) if draft.controls else 0.0
    if len(draft.controls) < SMALLEST_CLASS and abs(moved) > settings.margin:
        return "undecided", f"untouched nodes moved by {moved:+.2%} too: something else changed"
    if worse:
        return "worse", f"on {', '.join(worse[:5])}{f' and {len(worse) - 5} more' if len(worse) > 5 else ''}"
    if shift is None:
        return "undecided", f"{count(len(draft.treated), 'node')} cannot decide: at least six are needed"
    middle = shift.median
    if test.alike:
        return _complete(draft, "equivalent", f"{middle:+.2%}, within {settings.margin:.1%}")
    if test.differs and abs(middle) > settings.margin:
        if middle < 0:
            return "worse", f"{middle:+.2%} over {count(len(draft.treated), 'node')}"
        return _complete(draft, "better", f"{middle:+.2%} over {count(len(draft.treated), 'node')}")
    return "undecided", f"{middle:+.2%}: neither a difference nor its absence is shown"


def _complete(draft: _Draft, decision: Decision, reason: str) -> tuple[Decision, str]:
    # A node that no longer gives a value must not be what makes the others look equivalent.
    if draft.unpaired:
        names = ", ".join(draft.unpaired[:5])
        return "undecided", f"{reason}, but without a usable value in both runs: {names}"
    return decision, reason


def _newly_failing(a: Judged, b: Judged) -> tuple[str, ...]:
    passed = {v.cell for block in a.items for v in block.cells if v.outcome is Outcome.PASS}
    return tuple(
        sorted(
            v.cell for block in b.items for v in block.cells if v.outcome is Outcome.FAIL and v.cell in passed
        )
    )


def _overall(metrics: Sequence[MetricComparison], failing: Sequence[str]) -> Decision:
    decisions = {m.decision for m in metrics}
    if failing or "worse" in decisions:
        return "worse"
    if "undecided" in decisions or not metrics:
        return "undecided"
    return "better" if "better" in decisions else "equivalent"


def _notes(
    controls: Sequence[str], before: Mapping[str, _Values], after: Mapping[str, _Values]
) -> tuple[str, ...]:
    notes = []
    if not controls:
        notes.append("no untouched nodes: what changed for all nodes between A and B looks like the upgrade")
    elif len(controls) < SMALLEST_CLASS:
        notes.append(f"{count(len(controls), 'untouched node')}: too few to take out what drifted for all")
    for key in sorted(after.keys() - before.keys()):
        notes.append(f"only B measures {key}")
    return tuple(notes)


def _decimals(value: float) -> int:
    text = repr(value)
    return 9 if "e" in text else len(text.partition(".")[2].rstrip("0"))
