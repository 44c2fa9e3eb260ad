"""The rules over several cells: those that were measured again, and a whole class that is slow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from shakedown.judge.cells import Bound, Rule
from shakedown.records.base import Outcome
from shakedown.records.plan import PlanItem, Remeasure
from shakedown.records.results import Measurement
from shakedown.records.verdict import Cells, CellVerdict
from shakedown.records.wording import apart, count, in_unit, number, those, where
from shakedown.statistics.robust import (
    FALSE_DISCOVERIES,
    SMALLEST_CLASS,
    CellTally,
    Samples,
    holes,
    median,
    median_interval,
    most_by_chance,
    worse_outliers,
)

# The rule is the plan's (`Plan.remeasure`). Only rates and times are ever judged so: what counts wrong sums,
# lost packets or odd settings is decided by its first result.

# What a cell measures if it may be measured again: a rate or a time. All else is counted.
_RATES_AND_TIMES = frozenset({"Gb/s", "GB/s", "us", "ms", "s"})
# The tool ended without a number although its job went well. A job that died is never retried into a PASS.
_WITHOUT_VALUE = frozenset({Rule.NO_VALUE.value, Rule.OTHER.value})
AGAIN = frozenset({Rule.TRANSIENT.value, Rule.LATE.value})
_Line = TypeVar("_Line")


def covered(item: PlanItem, rule: Remeasure | None) -> bool:
    """Whether the cells of a block are judged by all of their samples."""
    return rule is not None and item.test in rule.tests and item.unit in _RATES_AND_TIMES


def settle(judged: Sequence[tuple[int, CellVerdict]], bound: Bound, rule: Remeasure) -> CellVerdict | None:
    """Return what all samples of one cell say; None: they are no first result and its re-measurements.

    `judged`: (attempt, verdict) in any order. Attempts that are missing or there twice, a job that died, an
    impossible value or any other doubt leave the cell to the rules for attempts that disagree.
    """
    ordered = sorted(judged, key=lambda j: j[0])
    outside = [v for _, v in ordered if v.rule == Rule.GATE]
    within = [v for _, v in ordered if v.rule == Rule.WITHIN]
    empty = [v for _, v in ordered if v.rule in _WITHOUT_VALUE]
    whole = [a for a, _ in ordered] == list(range(1, len(ordered) + 1))
    if not whole or len(outside) + len(within) + len(empty) < len(ordered):
        return None
    values = [v.value for v in (*outside, *within) if v.value is not None]
    says = CellTally(len(ordered), len(values), len(outside)).says(rule.again)
    unit = bound.item.unit
    told = ", ".join("no value" if v.value is None else number(v.value, unit) for _, v in ordered)
    if says is Samples.WITHIN or (says is Samples.OPEN and not outside):
        return within[0] if says is Samples.WITHIN else None
    if says is Samples.TRANSIENT:
        cell = within[0]
        what = (
            f"{len(outside)} outside the gate" if outside else f"{count(len(empty), 'time')} without a value"
        )
        return replace(
            cell,
            rule=(Rule.TRANSIENT if outside else Rule.LATE).value,
            value=median(values),
            reason=f"{where(cell.cell)}: of {len(ordered)} measurements {what}: "
            f"{in_unit(told, unit)}, gate {number(bound.gate, unit)}",
        )
    short = "" if says is Samples.PERSISTS else ", too few to call it transient"
    told = f"{len(outside)} of {len(ordered)} measurements outside ({told}){short}"
    return replace(outside[0], reason=f"{outside[0].reason}: {told}")


def within_share(cells: Cells, item: PlanItem, rule: Remeasure) -> None:
    """Fail the cells that passed on being measured again where there are more than the plan's share.

    Asked for the block as a whole, and for each NIC and node: what piles up on one is no accident. Where
    tools ended without a value at first, nothing bad was measured: then they are undecided.
    """
    for kind, rate in ((Rule.TRANSIENT, rule.budget), (Rule.LATE, rule.late_budget)):
        mine = {i for i, v in cells.unlike() if v.rule == kind}
        if not mine:
            continue
        total: Counter[str] = Counter()
        hit: dict[str, list[int]] = defaultdict(list)
        for i, (_, nodes, rail, direction) in enumerate(item.cells()):
            for element in elements(nodes, rail, direction):
                total[element] += 1
                if i in mine:
                    hit[element].append(i)
        most = most_by_chance(len(cells), rate, rule.risk)
        if len(mine) > most:
            text = f"{len(mine)} of {count(len(cells), 'cell')} are so, the plan's share is {most}"
            _doubt(cells, mine, kind, text)
            continue
        shares = {n: most_by_chance(n, rate, rule.risk / len(total)) for n in set(total.values())}
        for element, found in sorted(hit.items()):
            share = shares[total[element]]
            if len(found) > share:
                text = f"{len(found)} of the {total[element]} cells of {element} are so, its share is {share}"
                _doubt(cells, found, kind, text)


def _doubt(cells: Cells, which: Sequence[int] | set[int], kind: Rule, text: str) -> None:
    outcome = Outcome.FAIL if kind is Rule.TRANSIENT else Outcome.INCONCLUSIVE
    text += "" if outcome is Outcome.FAIL else "; nothing bad was measured"
    for i in sorted(which):
        if cells[i].outcome is Outcome.PASS:
            reason = f"{cells[i].reason}; {text}"
            cells[i] = replace(cells[i], outcome=outcome, rule=Rule.PILED_UP.value, reason=reason)


def with_slow_lines(cells: Cells, bound: Bound) -> None:
    """Fail the cells of a NIC whose median is worse than its class by more than the reference's effect.

    The median of a NIC's cells, not each cell: one result that is low by chance accuses no part. The class is
    all NICs, and then those of its rail: what the fabric does for a while is in all results of a rail, which
    are measured together, and would lift a slow NIC among the NICs of the other rails.
    """
    effect, item = bound.reference.fleet_min_effect, bound.item
    if effect is None:
        return
    lines: dict[str, list[int]] = defaultdict(list)
    measured = cells.values()
    for i, (_, nodes, rail, direction) in enumerate(item.cells()):
        if measured[i] is not None:
            for element in elements(nodes, rail, direction):
                if element.startswith("nic "):
                    lines[element].append(i)
    medians = {
        name: median([v for i in found if (v := measured[i]) is not None])
        for name, found in sorted(lines.items())
        if len(found) >= SMALLEST_CLASS
    }
    accused: set[str] = set()
    for of, names, q in classes_of_lines({name: name.split()[-2] for name in medians}):
        values = [medians[name] for name in names]
        odd = worse_outliers(values, higher=bound.higher, min_effect=effect, q=q)
        centre = median(values)
        for name, value, is_odd in zip(names, values, odd, strict=True):
            if not is_odd or name in accused:
                continue
            accused.add(name)
            share = abs(value - centre) / abs(centre)
            for i in lines[name]:
                if (verdict := cells[i]).outcome is Outcome.PASS:
                    cells[i] = replace(
                        verdict,
                        outcome=Outcome.FAIL,
                        rule=Rule.OUTLIER.value,
                        reason=f"{where(verdict.cell)}: the median of the {len(lines[name])} results "
                        f"of {name}, {in_unit(number(value), item.unit)}, is {share:.1%} worse than the "
                        f"median {number(centre)} of its class of {len(names)}{of}",
                    )


def classes_of_lines(rails: Mapping[_Line, str]) -> Iterator[tuple[str, list[_Line], float]]:
    """Yield the classes that NICs are compared in: how it is called, its NICs, the false discovery rate.

    `rails`: the rail of each NIC. All rails together, then each by itself; these share one rate, so that many
    rails do not accuse more often than few.
    """
    if rails:
        yield "", list(rails), FALSE_DISCOVERIES
    each = sorted(set(rails.values()))
    for rail in each if len(each) > 1 else ():
        yield f" on {rail}", [x for x, on in rails.items() if on == rail], FALSE_DISCOVERIES / len(each)


def of_pairs(item: PlanItem) -> bool:
    """Whether a block is of pairs of NICs, so that each NIC has a line of results."""
    return (
        len(next(iter(item.nodes))) == 2
        and set(item.directions) <= {"forward", "reverse"}
        and None not in item.rails
    )


def elements(nodes: tuple[str, ...], rail: str | None, direction: str | None) -> Iterator[str]:
    """Yield the NICs and nodes that a cell's result comes from: `nic n3 rail1 tx`, `node n3`."""
    if len(nodes) == 2 and rail and direction in ("forward", "reverse"):
        source, sink = nodes if direction == "forward" else (nodes[1], nodes[0])
        leaves, _, arrives = rail.partition(">")
        yield f"nic {source} {leaves} tx"
        yield f"nic {sink} {arrives or leaves} rx"
    for node in nodes:
        yield f"node {node}"


def told(again: Sequence[CellVerdict]) -> str:
    """Say of a PASS how many of its cells were measured again, and where most of them are."""
    if not again:
        return ""
    low = sum(v.rule == Rule.TRANSIENT for v in again)
    parts = [f"{count(low, 'transient')}"] if low else []
    if len(again) > low:
        parts.append(f"{count(len(again) - low, 'cell')} without a value at first")
    nodes: Counter[str] = Counter(n for v in again for n in v.cell.split("/")[3].split(","))
    most = sorted(nodes, key=lambda n: (-nodes[n], n))[:1]
    return f"; {' and '.join(parts)}, measured again and within (most at {those(tuple(most), 'node')})"


def with_slow_class(cells: Cells, bound: Bound) -> None:
    """Fail the worse half of a class whose median is worse than its reference allows.

    Chance is given its due: the better end of the median's 95 % interval must be worse (below six values that
    is the best of them).
    """
    tolerance, reference = bound.reference.class_tolerance, bound.reference
    if tolerance is None:
        return
    decided = cells.values(but=(Rule.IMPOSSIBLE, Rule.REFERENCE))
    values = [value for value in decided if value is not None]
    if not values:
        return
    limit = reference.value * (1 - tolerance if bound.higher else 1 + tolerance)
    low, high, _ = median_interval(values)
    if (high >= limit) if bound.higher else (low <= limit):
        return
    centre, side = median(values), "at least" if bound.higher else "at most"
    for i, verdict in enumerate(cells):
        value = verdict.value
        worse = value is not None and (value <= centre if bound.higher else value >= centre)
        if worse and verdict.outcome is Outcome.PASS:
            cells[i] = replace(
                verdict,
                outcome=Outcome.FAIL,
                rule=Rule.CLASS.value,
                reason=f"{where(verdict.cell)}: within its own gate, but the median of its class of "
                f"{len(values)} is {in_unit(apart(centre, limit), reference.unit)}, "
                f"{side} {number(limit)} wanted",
            )


_ON_CURVE = frozenset({Rule.WITHIN.value, Rule.REFERENCE.value, Rule.GATE.value, *AGAIN})
_SHORTEST_CURVE = 3
# Repeats of which the middle one is no hiccup of the host.
FEWEST_OF_A_HOLE = 3


class Repeats:
    """How often cells were measured, and how undisturbed, for the rules over several cells that ask.

    Attributes:
        samples: by item, of those in `narrow`, and by cell: three or more of one measurement.
        doubtful: by item: measured beside something else, or in a job that did not end well.
        seldom: by item, of those in `of_sweep`: too seldom to tell a hole from a hiccup.
    """

    def __init__(self, narrow: Iterable[int], of_sweep: Iterable[int]) -> None:
        self._of_sweep = frozenset(of_sweep)
        self.samples: dict[int, dict[int, tuple[float, ...]]] = {k: {} for k in narrow}
        self.doubtful: dict[int, set[int]] = defaultdict(set)
        self.seldom: dict[int, set[int]] = defaultdict(set)

    def add(self, k: int, i: int, m: Measurement) -> None:
        """Take in a measurement of cell `i` of item `k`."""
        if m.disturbed or m.problem or m.state != "COMPLETED":
            self.doubtful[k].add(i)
        elif len(m.samples) >= FEWEST_OF_A_HOLE:
            if k in self.samples:
                self.samples[k][i] = m.samples
        elif k in self._of_sweep:
            self.seldom[k].add(i)


def sweeps_of(items: Sequence[PlanItem]) -> list[list[int]]:
    """Return the numbers of the items that are the sizes of one sweep, the smallest first; at least three."""
    sweeps: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for k, item in enumerate(items):
        size = item.params.get("size_bytes")
        if isinstance(size, int) and item.unit in ("GB/s", "Gb/s", "us"):
            rest = frozenset(item.params.items()) - {("size_bytes", size)}
            sweeps[item.stage, item.test, item.metric, item.unit, rest].append((size, k))
    return [[k for _, k in sorted(of)] for of in sweeps.values() if len(of) >= _SHORTEST_CURVE]


def fail_holes(sweep: Iterable[tuple[Cells, Container[int], Container[int]]]) -> None:
    """Fail each size of a sweep at which less than half as much comes through as at a smaller and a larger.

    Of times, what comes through is bytes over time. A size that failed by itself keeps its reason. With the
    cells of each size come those that are doubtful, which are on no curve, and those that were measured too
    seldom, which are undecided: a host's hiccup looks the same.
    """
    curves: dict[object, list[tuple[float, Cells, int, bool]]] = defaultdict(list)
    for cells, doubtful, seldom in sweep:
        item, size, values = cells.item, cells.item.params["size_bytes"], cells.values()
        off = {i for i, verdict in cells.unlike() if verdict.rule not in _ON_CURVE}
        for i, (_, nodes, rail, direction) in enumerate(item.cells()):
            value = None if i in doubtful or i in off else values[i]
            if value and value > 0:
                rate = int(size) / value if item.unit == "us" else value
                curves[nodes, rail, direction].append((rate, cells, i, i in seldom))
    for curve in curves.values():
        for at, share in holes([rate for rate, *_ in curve]):
            _, cells, i, once = curve[at]
            verdict = cells[i]
            if cells.item.required and verdict.outcome is Outcome.FAIL:
                continue
            text = (
                f"{where(verdict.cell)}: {share:.0%} of what both smaller and larger messages of its sweep "
            )
            text += "reach, a hole" + (" or a hiccup of the host: measure it again" if once else "")
            outcome = Outcome.INCONCLUSIVE if once else Outcome.FAIL
            cells[i] = replace(verdict, outcome=outcome, rule=Rule.HOLE.value, reason=text)
