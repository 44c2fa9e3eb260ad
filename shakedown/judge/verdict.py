"""The verdict on a run: a pure function of plan, measurements and counters, independent of their order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shakedown.judge import headline
from shakedown.judge.cells import SEVERITY, Bound, Rule, combine, judge_counter, judge_measurement
from shakedown.judge.losses import Losses, drops
from shakedown.judge.several_cells import (
    AGAIN,
    FEWEST_OF_A_HOLE,
    covered,
    fail_holes,
    of_pairs,
    settle,
    told,
    with_slow_class,
    with_slow_lines,
    within_share,
)
from shakedown.judge.words import Place
from shakedown.nics.rates import end_to_end
from shakedown.nos.readings import WHOLE_SWITCH
from shakedown.nos.system import LOST
from shakedown.plan.waivers import holding
from shakedown.records.base import Outcome, Stage, cell_id, tally
from shakedown.records.plan import Plan, PlanItem, Waiver
from shakedown.records.results import CounterReading, Measurement
from shakedown.records.verdict import CauseVerdict, CellVerdict, Coverage, GroupVerdict, Verdict
from shakedown.records.wording import NOT_REQUIRED, clipped, count, in_unit, number, printable, where
from shakedown.statistics.robust import (
    FALSE_DISCOVERIES,
    SMALLEST_CLASS,
    median,
    stands_apart,
    worse_outliers,
)

_HELD_AGAINST_A_GATE = frozenset((Rule.WITHIN.value, Rule.GATE.value))
# What decides where a value is only shown too, of what a tool measures by itself: incast adds up several.
_ALWAYS = frozenset((Rule.IMPOSSIBLE.value, Rule.HOLE.value))
_MEASURED = frozenset(("busbw", "bandwidth", "time", "latency_typical"))
# A wider gate narrows to so much where repeats allow: 5 % is what a profile must not let go without a reason.
_NARROWEST = 0.05
_LADDER = {stage: height for height, stage in enumerate(Stage)}


@dataclass(frozen=True, slots=True)
class JudgedItem:
    """All cells of one plan item, in the plan's order, passed ones included."""

    item: PlanItem
    cells: tuple[CellVerdict, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """Every planned cell with its verdict, and what was measured without being planned."""

    items: tuple[JudgedItem, ...]
    unplanned: tuple[str, ...]
    losses: Losses = field(default_factory=Losses)

    def pairs(self, stage: Stage, test: str, rail: str) -> set[tuple[str, ...]]:
        """Return the pairs between which a test has values on a rail."""
        return {
            nodes
            for block in self.items
            if (block.item.stage, block.item.test) == (stage, test) and rail in block.item.rails
            for v, (_, nodes, on, _) in zip(block.cells, block.item.cells(), strict=True)
            if len(nodes) == 2 and on == rail and v.value is not None
        }


def judge(
    plan: Plan,
    measurements: Iterable[Measurement],
    counters: Iterable[CounterReading] = (),
    problems: Sequence[str] = (),
) -> Verdict:
    """Judge a run. `problems` are flaws of the run itself, such as a results file cut off in a line."""
    return summarise(plan, judge_cells(plan, measurements, counters), problems)


def judge_cells(  # noqa: PLR0912  (one branch for each thing that a line can be)
    plan: Plan, measurements: Iterable[Measurement], counters: Iterable[CounterReading] = ()
) -> Judged:
    """Judge every cell. Both iterables are read once and not kept."""
    bounds = [Bound(item, plan.references[item.reference]) for item in plan.items]
    planned = {cell: bound for bound in bounds for cell, _, _, _ in bound.item.cells()}
    # Nearly every cell is measured once; only the others cost a list.
    found: dict[str, tuple[int, CellVerdict]] = {}
    again: dict[str, list[tuple[int, CellVerdict]]] = {}
    unplanned: set[str] = set()
    doubtful: set[str] = set()  # measured beside something else, or in a job that did not end well
    seldom: set[str] = set()  # sizes of a sweep that were measured too seldom to tell a hole from a hiccup
    repeats: dict[str, tuple[float, ...]] = {}  # of cells whose gate may narrow
    # Of those that are measured with and not judged, there is more than the plan has.
    partners = set(plan.scope.partners) if plan.scope else set()

    def file(cell: str, attempt: int, verdict: CellVerdict) -> None:
        if cell in found:
            again.setdefault(cell, []).append((attempt, verdict))
        else:
            found[cell] = (attempt, verdict)

    for m in measurements:
        cell = m.cell
        bound = planned.get(cell)
        if bound is None or m.run != plan.run:
            if m.run != plan.run or not partners.issuperset(m.nodes):
                unplanned.add(cell)
        else:
            file(cell, m.attempt, judge_measurement(cell, m, bound))
            if m.disturbed or m.problem or m.state != "COMPLETED":
                doubtful.add(cell)
            elif len(m.samples) >= FEWEST_OF_A_HOLE:
                repeats[cell] = m.samples
            elif "size_bytes" in m.params:
                seldom.add(cell)
    losses = Losses()
    for reading in counters:
        if reading.run == plan.run:
            losses.add(reading)
        cell = counter_cell(reading)
        bound = planned.get(cell)
        if reading.run != plan.run:
            unplanned.add(cell)
        elif bound is not None:  # a device has hundreds of counters; the plan names those that decide
            file(cell, 1, judge_counter(cell, reading, bound))

    cells: dict[int, list[CellVerdict]] = {id(bound): [] for bound in bounds}
    for cell, bound in planned.items():
        first = found.get(cell)
        if first is None:
            verdict = _absent(cell, bound)
        elif first[0] == 1 and cell not in again:  # measured once: nothing to combine
            verdict = first[1]
        else:
            verdict = _of_samples(plan, bound, first, again.get(cell, []))
        cells[id(bound)].append(verdict)
    classed = [(b, _as_class(cells[id(b)], b, plan)) for b in bounds]
    _narrowed(classed, repeats)
    fail_holes(classed, doubtful, seldom)
    items = [
        JudgedItem(b.item, tuple(_optional(_waived(found, holding(plan, b.item)), b.item)))
        for b, found in classed
    ]
    return Judged(tuple(items), tuple(sorted(unplanned)), losses)


def _of_samples(
    plan: Plan, bound: Bound, first: tuple[int, CellVerdict], more: Sequence[tuple[int, CellVerdict]]
) -> CellVerdict:
    """Return the verdict on one cell from all its results."""
    if more and plan.remeasure is not None and covered(bound.item, plan.remeasure):
        settled = settle((first, *more), bound, plan.remeasure)
        if settled is not None:
            return settled
    return combine((first, *more))


def _as_class(cells: list[CellVerdict], bound: Bound, plan: Plan) -> list[CellVerdict]:
    """Judge the cells of a block beside each other."""
    if plan.remeasure is None or not covered(bound.item, plan.remeasure):
        return with_slow_class(_with_outliers(cells, bound), bound)
    slow = with_slow_lines if of_pairs(bound.item) else _with_outliers
    return with_slow_class(slow(within_share(cells, bound.item, plan.remeasure), bound), bound)


def counter_cell(reading: CounterReading) -> str:
    """The identity of the cell that a counter reading measures."""
    return cell_id(
        reading.stage,
        reading.test,
        f"counter.{reading.counter}",
        (reading.device,),
        reading.rail,
        None,
        {"port": reading.port},
    )


def _absent(cell: str, bound: Bound) -> CellVerdict:
    why, rule = bound.item.not_run, Rule.EXCLUDED
    if not why and bound.item.if_reported:
        why, rule = "this device does not report it", Rule.NOT_REPORTED
    elif not why:
        why, rule = "planned, but no result was recorded", Rule.NOT_MEASURED
    return CellVerdict(
        cell=cell,
        outcome=Outcome.NOT_RUN,
        rule=rule.value,
        reason=f"{where(cell)}: {printable(why)}",
        gate=bound.gate,
        ceiling=bound.reference.ceiling,
    )


def _with_outliers(cells: list[CellVerdict], bound: Bound) -> list[CellVerdict]:
    """Fail the passed cells that are odd within their plan item; the class is every cell that is decided."""
    effect = bound.reference.fleet_min_effect
    if effect is None:
        return cells
    decided = [
        (i, v.value) for i, v in enumerate(cells) if v.value is not None and v.rule in _HELD_AGAINST_A_GATE
    ]
    values = [value for _, value in decided]
    odd = worse_outliers(values, higher=bound.higher, min_effect=effect)
    if not any(odd):
        return cells
    centre = median(values)
    for (i, _), is_odd in zip(decided, odd, strict=True):
        verdict = cells[i]
        if is_odd and verdict.outcome is Outcome.PASS:
            assert verdict.value is not None
            share = abs(verdict.value - centre) / abs(centre)
            cells[i] = verdict.model_copy(
                update={
                    "outcome": Outcome.FAIL,
                    "rule": Rule.OUTLIER.value,
                    "reason": f"{where(verdict.cell)}: {in_unit(number(verdict.value), bound.item.unit)} is "
                    f"{share:.1%} worse than the median {number(centre)} of its class of {len(values)}",
                }
            )
    return cells


def _narrowed(
    blocks: Sequence[tuple[Bound, list[CellVerdict]]], repeats: Mapping[str, tuple[float, ...]]
) -> None:
    """Fail a cell that its gate lets pass and that stands apart from its like in all of its repeats.

    Noise hides it behind a gate wide enough for every host; where this run's repeats show less, they decide.
    Blocks share the risk of blaming a cell that is well.
    """
    able: list[tuple[Bound, list[CellVerdict], list[int]]] = []
    for bound, cells in blocks:
        if bound.item.required and bound.reference.fleet_min_effect is None and not bound.learns:
            alone = [len(nodes) == 1 for _, nodes, _, _ in bound.item.cells()]  # a pair may have a longer way
            mine = [
                i
                for i, v in enumerate(cells)
                if alone[i] and v.cell in repeats and v.rule in _HELD_AGAINST_A_GATE
            ]
            if len(mine) >= SMALLEST_CLASS:
                able.append((bound, cells, mine))
    risk = FALSE_DISCOVERIES / max(1, len(able))
    for bound, cells, mine in able:
        found = [repeats[cells[i].cell] for i in mine]
        at = stands_apart(found, higher=bound.higher, min_effect=_NARROWEST, risk=risk)
        if at is None or (verdict := cells[mine[at]]).outcome is not Outcome.PASS:
            continue
        value, centre = median(found[at]), median([median(one) for one in found])
        told, share = in_unit(number(value), bound.item.unit), abs(value / centre - 1)
        text = (
            f"{told} is {share:.1%} worse than the median {number(centre)} of its class of {len(found)}, and "
            f"each of its {len(found[at])} repeats than each of theirs"
        )
        odd = {
            "outcome": Outcome.FAIL,
            "rule": Rule.OUTLIER.value,
            "reason": f"{where(verdict.cell)}: {text}",
        }
        cells[mine[at]] = verdict.model_copy(update=odd)


def _waived(cells: list[CellVerdict], waivers: Sequence[Waiver]) -> list[CellVerdict]:
    """Waive the cells that failed and that a person signed for; what is undecided is not waived."""
    if not waivers:
        return cells
    for i, v in enumerate(cells):
        if v.outcome is Outcome.FAIL and (waiver := next((w for w in waivers if w.covers(v.cell)), None)):
            cells[i] = v.model_copy(
                update={
                    "outcome": Outcome.WAIVED,
                    "reason": f"{v.reason} ({waiver.name}, {printable(waiver.words)})",
                }
            )
    return cells


def _optional(cells: list[CellVerdict], item: PlanItem) -> list[CellVerdict]:
    """Say in the reason that a cell which did not pass is not required."""
    if item.required and not item.if_reported:
        return cells
    return [
        v
        if v.outcome is Outcome.PASS or decides(v, item)
        else v.model_copy(update={"reason": f"{v.reason}{NOT_REQUIRED}"})
        for v in cells
    ]


def decides(verdict: CellVerdict, item: PlanItem) -> bool:
    """Whether the run's outcome waits for a cell: it is required, and no counter that its device lacks.

    What cannot be, and a hole of a sweep, decide where a value is only shown too.
    """
    if item.required:
        return verdict.rule != Rule.NOT_REPORTED
    return verdict.rule in _ALWAYS and item.metric in _MEASURED


def summarise(
    plan: Plan, judged: Judged, problems: Sequence[str] = (), causes: Sequence[CauseVerdict] = ()
) -> Verdict:
    """Sum up judged cells into the verdict on the run; `causes` explain it and change no outcome."""
    outcomes: Counter[Outcome] = Counter()
    planned: Counter[Stage] = Counter()
    measured: Counter[Stage] = Counter()
    groups: list[GroupVerdict] = []
    transients: list[CellVerdict] = []
    listed: list[tuple[tuple[int, int, float, str], CellVerdict, PlanItem]] = []

    for block in judged.items:
        item = block.item
        group = _group(item, block.cells)
        groups.append(group)
        if item.required:
            lacking = sum(v.rule == Rule.NOT_REPORTED for v in block.cells) if item.if_reported else 0
            planned[item.stage] += group.planned - lacking
            measured[item.stage] += group.measured
            outcomes.update(group.outcomes)
            outcomes[Outcome.NOT_RUN] -= lacking
        else:
            outcomes.update(v.outcome for v in block.cells if decides(v, item))
        listed.extend((_rank(v, item), v, item) for v in block.cells if v.outcome is not Outcome.PASS)
        transients.extend(v for v in block.cells if v.outcome is Outcome.PASS and v.rule in AGAIN)

    listed.sort(key=lambda e: e[0])
    holes = _holes(plan)
    coverage = Coverage(planned=planned.total(), measured=measured.total())
    outcome, reason = _run(outcomes, coverage, problems, holes)
    if outcome is Outcome.PASS:
        reason = _with_waivers(plan, listed, outcomes) + reason
        reason += told(transients) + _aside(groups, judged, outcomes)
    elif not reason:
        bad = [(verdict, item) for _, verdict, item in listed if decides(verdict, item)]
        reason = headline.sentence(
            plan,
            outcome,
            bad,
            coverage.planned,
            causes,
            _lost(judged, bad[0]) if outcome is Outcome.FAIL else "",
        )
    if plan.scope is not None:
        reason = f"{plan.scope.words}; {reason}"
    if plan.simulated:
        reason = f"SIMULATED, no hardware was measured: {reason}"
    return Verdict(
        schema=1,
        run=plan.run,
        outcome=outcome,
        reason=reason,
        coverage=coverage,
        stages={s: Coverage(planned=planned[s], measured=measured[s]) for s in Stage if planned[s]},
        outcomes=tally(outcomes),
        groups=tuple(groups),
        cells=tuple(v for _, v, _ in listed),
        transients=tuple(transients),
        unplanned=judged.unplanned,
        problems=(*problems, *holes),
        causes=tuple(causes),
    )


def _lost(judged: Judged, worst: headline.Bad) -> str:
    """Say who lost packets, if the worst cell only counts that they were: between two, or in a switch."""
    verdict, item = worst
    place, name = Place.of(verdict.cell), item.metric.removeprefix("counter.")
    if name == LOST and item.params.get("port") == WHOLE_SWITCH and verdict.rule == Rule.GATE:
        return judged.losses.of_switch(item.stage, place.nodes[0])
    if drops(name) and verdict.value and not place.rail and verdict.rule == Rule.GATE:
        port, packets = str(item.params.get("port")), round(verdict.value)
        return judged.losses.on_dead_link(item.stage, place.nodes[0], port, name, packets)
    if name == item.metric or not place.rail or not end_to_end(name) or verdict.rule != Rule.GATE:
        return ""
    pairs = judged.pairs(item.stage, item.test, place.rail)
    return judged.losses.told(item.stage, item.test, place.rail, place.nodes[0], pairs)


def _group(item: PlanItem, cells: Sequence[CellVerdict]) -> GroupVerdict:
    values = [v.value for v in cells if v.value is not None]
    outcomes: dict[Outcome, int] = defaultdict(int)
    for v in cells:
        outcomes[v.outcome] += 1
    low, high = (min(values), max(values)) if values else (None, None)
    worst, best = (low, high) if item.better == "higher" else (high, low)
    return GroupVerdict(
        stage=item.stage,
        test=item.test,
        metric=item.metric,
        unit=item.unit,
        params=item.params,
        reference=item.reference,
        planned=len(cells),
        measured=len(values),
        outcomes=tally(outcomes),
        worst=worst,
        median=median(values) if values else None,
        best=best,
    )


def _rank(verdict: CellVerdict, item: PlanItem) -> tuple[int, int, float, str]:
    """Sort key, worst first: outcome, then the lowest rung of the ladder, then distance from the gate."""
    distance = 0.0
    if verdict.value is not None and verdict.gate is not None:
        distance = abs(verdict.value - verdict.gate) / (abs(verdict.gate) or 1.0)
    return -SEVERITY[verdict.outcome], _LADDER[item.stage], -distance, verdict.cell


def _holes(plan: Plan) -> tuple[str, ...]:
    """Nodes and rails that the plan names and no required cell touches: an odd one out is never forgotten."""
    nodes = {n for i in plan.items if i.required for group in i.nodes for n in group}
    rails = {r for i in plan.items if i.required for r in i.rails}
    return tuple(
        f"{kind} {name} is in the plan, but no required cell measures it"
        for kind, names, seen in (("node", plan.nodes, nodes), ("rail", plan.rails, rails))
        for name in sorted(set(names) - seen)
    )


def _with_waivers(
    plan: Plan, listed: Sequence[tuple[object, CellVerdict, PlanItem]], outcomes: Counter[Outcome]
) -> str:
    """Say first how many waivers a PASS rests on, and by whom each is signed."""
    if not outcomes[Outcome.WAIVED]:
        return ""
    failed = [v.cell for _, v, item in listed if v.outcome is Outcome.WAIVED and item.required]
    used = [w for w in plan.waivers if any(w.covers(cell) for cell in failed)]
    said = ", ".join(f"{w.name} of {w.owner} until {w.expires}" for w in used)
    return f"with {count(len(used), 'waiver')} for {count(len(failed), 'failed cell')} ({printable(said)}): "


def _aside(groups: Sequence[GroupVerdict], judged: Judged, required: Counter[Outcome]) -> str:
    """What a reader of a PASS must still hear of."""
    bad = sum(n for g in groups for o, n in g.outcomes.items() if o is not Outcome.PASS)
    bad -= required.total() - required[Outcome.PASS]  # of those that are required, the reason tells
    texts = (
        f"; {count(bad, 'cell')} not required did not pass" if bad else "",
        f"; {count(len(judged.unplanned), 'cell')} measured without being planned"
        if judged.unplanned
        else "",
    )
    return "".join(texts)


def _run(
    outcomes: Counter[Outcome], coverage: Coverage, problems: Sequence[str], holes: Sequence[str]
) -> tuple[Outcome, str]:
    """Return the outcome of the run, and its reason if that is none of the cells'."""
    if outcomes[Outcome.FAIL]:
        return Outcome.FAIL, ""
    if outcomes[Outcome.INCONCLUSIVE]:
        return Outcome.INCONCLUSIVE, ""
    if problems:
        return Outcome.INCONCLUSIVE, clipped(problems[0], headline.MOST_CHARACTERS)
    if outcomes[Outcome.NOT_RUN]:
        return Outcome.NOT_RUN, ""
    if holes or not coverage.complete:
        return Outcome.NOT_RUN, holes[0] if holes else "the plan requires nothing"
    total, waived = coverage.planned, outcomes[Outcome.WAIVED]
    if learnt := outcomes[Outcome.BASELINE]:
        outcome = Outcome.BASELINE
        reason = (
            f"{learnt} of {count(total, 'required cell')} were measured to learn from and not judged; "
            "make references of them with shakedown references propose, and sign them"
        )
    else:
        outcome, others = Outcome.PASS, f", the other {total - waived} lie" if waived else " and lie"
        reason = f"all {total} required cells were measured{others} within their references"
    return outcome, reason
