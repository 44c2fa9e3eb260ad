"""Runs before and after one change, paired per node: better, equivalent, worse or undecided."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shakedown.daytwo.compare.paired_tests import (
    NODE_MARGINS,
    ONE_RUN_BOUND,
    Nodes,
    Noise,
    Shift,
    Sides,
    decide_shift,
    noise_of,
    single_nodes,
)
from shakedown.judge.verdict import Judged
from shakedown.records.base import Better, Outcome, Record, Stage, params_text
from shakedown.records.plan import PlanItem
from shakedown.records.wording import count
from shakedown.statistics.robust import SMALLEST_CLASS, benjamini_hochberg, median, median_interval

# Parts of the rate: for what single nodes did, and for what all did.
_FOR_NODES, _FOR_ALL = 0.2, 0.2

Decision = Literal["better", "equivalent", "worse", "undecided"]


@dataclass(frozen=True)
class ComparisonSettings:
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


@dataclass
class RunValues:
    """One metric of one run: values by cell, with the nodes of each."""

    item: PlanItem
    cells: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)


@dataclass
class PairedMetric:
    """One metric of both sides."""

    key: str
    item: PlanItem
    sides: Sides
    unpaired: tuple[str, ...]
    exact: bool  # zero is due: every difference is one of fact, not of noise
    whole: bool  # measured over more nodes than a pair: no node can be told


def values_of(judged: Judged) -> dict[str, RunValues]:
    """Return the usable values by metric: measured, finite, possible, and not spoiled or retried."""
    found: dict[str, RunValues] = {}
    for block in judged.items:
        item = block.item
        if item.metric.startswith("counter."):
            continue  # counters decide by their own gate: see `newly_failing`
        key = f"{item.stage}/{item.test}/{item.metric}/{params_text(item.params)}"
        values = found.setdefault(key, RunValues(item))
        for (cell, nodes, _, _), verdict in zip(item.cells(), block.cells, strict=True):
            usable = verdict.outcome in (Outcome.PASS, Outcome.FAIL) and verdict.rule != "impossible"
            if usable and verdict.value is not None and math.isfinite(verdict.value):
                values.cells[cell] = (nodes, verdict.value)
    return found


def pair(
    key: str,
    before: Sequence[Mapping[str, RunValues]],
    after: Sequence[Mapping[str, RunValues]],
    treated: frozenset[str],
    controls: frozenset[str],
) -> PairedMetric:
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
    return PairedMetric(key, item, sides, tuple(sorted(lost)), exact, whole)


def _decimals(value: float) -> int:
    text = repr(value)
    return 9 if "e" in text else len(text.partition(".")[2].rstrip("0"))


# Every node is its own control: its relative difference after against before is what is tested, so that slow
# nodes and fast ones weigh alike. With at least six untouched nodes the upgraded ones are held against their
# differences (difference in differences), which takes out whatever drifted for all; without them, what all
# nodes did is held against how far runs of one side differ.


def compare(
    a: Sequence[Judged],
    b: Sequence[Judged],
    *,
    names: tuple[str, str],
    changed: str | None,
    treated: Iterable[str],
    controls: Iterable[str],
    settings: ComparisonSettings = ComparisonSettings(),
) -> Comparison:
    """Compare runs B with runs A. `treated` are the nodes that were changed, `controls` those left alone."""
    nodes, untouched = tuple(treated), tuple(controls)
    before, after = [values_of(run) for run in a], [values_of(run) for run in b]
    keys = sorted({key for run in before for key in run if not key.startswith("config/")})
    drafts = [pair(key, before, after, frozenset(nodes), frozenset(untouched)) for key in keys]
    metrics = decide(drafts, settings)
    failing, unread = _newly_failing(a, b), _not_read(a, b)
    return Comparison(
        a=names[0],
        b=names[1],
        changed=changed,
        nodes=nodes,
        controls=untouched,
        margin=settings.margin,
        q=settings.q,
        decision=_overall(metrics, failing, unread),
        metrics=metrics,
        newly_failing=failing,
        notes=(*_notes(untouched, before, after), *_told(unread)),
        runs=(len(a), len(b)),
    )


def decide(drafts: Sequence[PairedMetric], settings: ComparisonSettings) -> tuple[MetricComparison, ...]:
    """Return what became of each metric."""
    sides = [d.sides for d in drafts]
    noises = noise_of(sides)
    singles = single_nodes(sides, noises, settings.margin, settings.q * _FOR_NODES)
    found = [
        _Test(d, decide_shift(d.sides, settings.margin, noise), single, noise)
        for d, noise, single in zip(drafts, noises, singles, strict=True)
    ]
    tested = [t for t in found if t.shift is not None]
    # One threshold over all metrics: twenty metrics at 5 % each would find a change in nothing.
    differs = benjamini_hochberg([t.shift.p_difference for t in tested if t.shift], settings.q * _FOR_ALL)
    alike = benjamini_hochberg([t.shift.p_equivalence for t in tested if t.shift], settings.q)
    for test, one, other in zip(tested, differs, alike, strict=True):
        test.differs, test.alike = one, other
    return tuple(_decide(t, settings) for t in found)


@dataclass
class _Test:
    draft: PairedMetric
    shift: Shift | None
    single: Nodes
    noise: Noise | None
    differs: bool = False
    alike: bool = False


def _decide(test: _Test, settings: ComparisonSettings) -> MetricComparison:
    draft, shift = test.draft, test.shift
    moved, untouched = draft.sides.moved, draft.sides.untouched
    stand_out = test.single.found
    worse = [n for n, d in sorted(stand_out.items(), key=lambda nd: nd[1]) if d < 0]
    better = [n for n, d in sorted(stand_out.items(), key=lambda nd: -nd[1]) if d > 0]
    decision, reason = _verdict(test, worse, settings)
    # Fewer than six untouched nodes are too few to correct by.
    centre = median(list(untouched.values())) if draft.sides.controlled else 0.0
    adjusted = [d - centre for d in moved.values()]
    low, high = (shift.low, shift.high) if shift else (None, None)
    if draft.sides.controlled and len(adjusted) >= SMALLEST_CLASS:
        low, high, _ = median_interval(adjusted)
    return MetricComparison(
        metric=draft.key,
        unit=draft.item.unit,
        decision=decision,
        reason=reason,
        pairs=len(moved),
        controls=len(untouched),
        shift=median(adjusted) if adjusted and not draft.exact else None,
        low=low,
        high=high,
        control_shift=median(list(untouched.values())) if untouched else None,
        p_difference=shift.p_difference if shift else None,
        p_equivalence=shift.p_equivalence if shift else None,
        smallest_node_loss=test.single.smallest,
        worse=tuple(NodeShift(node=n, shift=moved[n]) for n in worse),
        better=tuple(NodeShift(node=n, shift=moved[n]) for n in better),
        unpaired=draft.unpaired,
    )


def _verdict(test: _Test, worse: Sequence[str], settings: ComparisonSettings) -> tuple[Decision, str]:  # noqa: PLR0911
    """One return per rule, first that holds."""
    draft, shift, sides = test.draft, test.shift, test.draft.sides
    if draft.exact and sides.moved:
        bad = sorted({n for run in sides.after for n, d in run.items() if d < 0 and n in sides.treated})
        if bad:
            return "worse", f"was zero and is not any more on {', '.join(bad[:5])}"
        return _complete(draft, "equivalent", "is what it was")
    if not sides.moved:
        return "undecided", "no node has a usable value on both sides"
    if draft.whole:
        return "undecided", "is one value for all nodes: a single pair decides nothing"
    moved = median(list(sides.untouched.values())) if sides.untouched else 0.0
    if not sides.controlled and abs(moved) > settings.margin:
        return "undecided", f"untouched nodes moved by {moved:+.2%} too: something else changed"
    if worse:
        return "worse", f"on {', '.join(worse[:5])}{f' and {len(worse) - 5} more' if len(worse) > 5 else ''}"
    may_be = _open(test)
    if shift is None:
        few = f"{count(len(sides.moved), 'node')} cannot decide: at least six are needed"
        return "undecided", may_be or few
    middle = shift.median
    if test.differs and abs(middle) > settings.margin:
        if middle < 0:
            return "worse", f"{middle:+.2%} over {count(len(sides.moved), 'node')}"
        return _complete(draft, "better", f"{middle:+.2%} over {count(len(sides.moved), 'node')}")
    if may_be:
        return "undecided", may_be
    if test.alike:
        return _enough(test, f"{middle:+.2%}, within {settings.margin:.1%}", settings)
    if sides.single and not sides.controlled:
        return "undecided", f"{middle:+.2%}: one run a side bounds nothing below {ONE_RUN_BOUND:.1%}"
    return "undecided", f"{middle:+.2%}: neither a difference nor its absence is shown"


def _open(test: _Test) -> str:
    """Return which nodes may have lost what others did not, and what would tell."""
    slow = sorted(test.single.open.items(), key=lambda nd: nd[1])[:5]
    if not slow:
        return ""
    unknown = test.noise and slow[0][0] not in test.noise.told
    more = "three runs a side tell a change from a noisy node" if unknown else "more runs tell"
    return f"may be worse on {', '.join(f'{n} ({d:+.1%})' for n, d in slow)}: {more}"


def _enough(test: _Test, reason: str, settings: ComparisonSettings) -> tuple[Decision, str]:
    """Call all nodes equivalent if one that lost much would have been found."""
    least, wanted = test.single.smallest, NODE_MARGINS * settings.margin
    if least is None or least > wanted:
        seen = "" if least is None else f", only one that lost {least:.1%}"
        return "undecided", f"{reason}, but one node that lost {wanted:.1%} would not show{seen}: more runs"
    return _complete(test.draft, "equivalent", reason)


def _complete(draft: PairedMetric, decision: Decision, reason: str) -> tuple[Decision, str]:
    # A node that no longer gives a value must not be what makes the others look equivalent.
    if draft.unpaired:
        names = ", ".join(draft.unpaired[:5])
        return "undecided", f"{reason}, but without as many usable values as before: {names}"
    return decision, reason


def _newly_failing(a: Sequence[Judged], b: Sequence[Judged]) -> tuple[str, ...]:
    """Return cells that never failed before and fail in most runs after; counters and settings: in any."""
    failed_before = {
        v.cell for run in a for block in run.items for v in block.cells if v.outcome is not Outcome.PASS
    }
    passed = {v.cell for run in a for block in run.items for v in block.cells} - failed_before
    failed: Counter[str] = Counter()
    facts: set[str] = set()
    for run in b:
        for block in run.items:
            for v in block.cells:
                if v.outcome is Outcome.FAIL and v.cell in passed:
                    failed[v.cell] += 1
                    if _is_fact(block.item):
                        facts.add(v.cell)
    return tuple(sorted(cell for cell, often in failed.items() if 2 * often > len(b) or cell in facts))


def _is_fact(item: PlanItem) -> bool:
    """Whether a cell is a setting or a counter, which is compared by its own gate and has no noise."""
    return item.stage is Stage.CONFIG or item.metric.startswith("counter.")


def _not_read(a: Sequence[Judged], b: Sequence[Judged]) -> tuple[str, ...]:
    """Return settings and counters that passed in A, and that B had to measure and no run of it decided."""
    passed, (wanted, decided) = _facts(a, {Outcome.PASS})[1], _facts(b, _DECIDED)
    return tuple(sorted((passed & wanted) - decided))


_DECIDED = {Outcome.PASS, Outcome.FAIL, Outcome.WAIVED}


def _facts(runs: Sequence[Judged], outcomes: set[Outcome]) -> tuple[set[str], set[str]]:
    """Return the required settings and counters of runs, and those of them that have one of the outcomes."""
    cells = [
        v
        for run in runs
        for block in run.items
        if _is_fact(block.item) and block.item.required and not block.item.if_reported
        for v in block.cells
    ]
    return {v.cell for v in cells}, {v.cell for v in cells if v.outcome in outcomes}


def _told(unread: Sequence[str]) -> tuple[str, ...]:
    if not unread:
        return ()
    some = ", ".join(unread[:3]) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
    return (f"settings and counters that passed in A and were not decided in B: {some}",)


def _overall(
    metrics: Sequence[MetricComparison], failing: Sequence[str], unread: Sequence[str] = ()
) -> Decision:
    decisions = {m.decision for m in metrics}
    if failing or "worse" in decisions:
        return "worse"
    if "undecided" in decisions or not metrics or unread:
        return "undecided"
    return "better" if "better" in decisions else "equivalent"


def _notes(
    controls: Sequence[str],
    before: Sequence[Mapping[str, RunValues]],
    after: Sequence[Mapping[str, RunValues]],
) -> tuple[str, ...]:
    notes = []
    if not controls:
        notes.append("no untouched nodes: what changed for all nodes between A and B looks like the upgrade")
    elif len(controls) < SMALLEST_CLASS:
        notes.append(f"{count(len(controls), 'untouched node')}: too few to take out what drifted for all")
    if len(controls) < SMALLEST_CLASS and len(before) == len(after) == 1:
        notes.append(
            f"one run a side bounds nothing below {ONE_RUN_BOUND:.1%} for all nodes together: leave six "
            "nodes untouched, or give three runs a side with --before and --after"
        )
    known = {key for run in before for key in run}
    for key in sorted({key for run in after for key in run} - known):
        notes.append(f"only B measures {key}")
    return tuple(notes)
