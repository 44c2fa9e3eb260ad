"""The verdict on a run: a pure function of plan, measurements and counters, independent of their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from shakedown.judge import headline
from shakedown.judge.cells import SEVERITY, Bound, Rule, combine, judge_counter, rule_of, verdict_of
from shakedown.judge.losses import Losses, drops
from shakedown.judge.several_cells import (
    AGAIN,
    Repeats,
    covered,
    fail_holes,
    of_pairs,
    settle,
    sweeps_of,
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
from shakedown.records.base import Outcome, Stage, cell_id, params_text, tally
from shakedown.records.plan import CellPlaces, Plan, PlanItem, Waiver
from shakedown.records.results import CounterReading, Measurement
from shakedown.records.verdict import CauseVerdict, Cells, CellVerdict, Coverage, GroupVerdict, Verdict
from shakedown.records.wording import NOT_REQUIRED, clipped, count, in_unit, number, printable, where
from shakedown.statistics.robust import (
    FALSE_DISCOVERIES,
    SMALLEST_CLASS,
    median,
    stands_apart,
    worse_outliers,
)

_HELD_AGAINST_A_GATE = frozenset((Rule.WITHIN.value, Rule.GATE.value))
_UNDECIDED = frozenset(rule.value for rule in Rule) - _HELD_AGAINST_A_GATE
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
    cells: Cells


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
    blocks = [_block(item, plan) for item in plan.items]
    sweeps, places = sweeps_of(plan.items), CellPlaces(plan.items)
    repeats = Repeats(
        narrow=(k for k, (bound, _) in enumerate(blocks) if _narrows(bound)), of_sweep=chain(*sweeps)
    )
    again: dict[tuple[int, int], list[tuple[int, CellVerdict]]] = {}  # measured twice, or not at first
    unplanned: set[str] = set()
    # Of those that are measured with and not judged, there is more than the plan has.
    partners = set(plan.scope.partners) if plan.scope else set()

    def file(at: tuple[int, int], attempt: int, verdict: CellVerdict) -> None:
        i, (_, cells) = at[1], blocks[at[0]]
        if attempt != 1 or cells.measured(i):
            first = [(1, cells[i])] if cells.measured(i) else []
            again.setdefault(at, first).append((attempt, verdict))
        if verdict.rule == Rule.WITHIN and verdict.value is not None and not cells.measured(i):
            cells.passes(i, verdict.value, verdict.raw)
        else:
            cells[i] = verdict

    for m in measurements:
        tail = params_text(m.params)
        at = places.find(m.stage, m.test, m.metric, m.nodes, m.rail, m.direction, tail)
        if at is None or m.run != plan.run:
            if m.run != plan.run or not partners.issuperset(m.nodes):
                unplanned.add(m.cell)
            continue
        (k, i), (bound, cells) = at, blocks[at[0]]
        rule, text = rule_of(m, bound)
        if rule is Rule.WITHIN and m.attempt == 1 and m.value is not None and not cells.measured(i):
            cells.passes(i, m.value, m.raw)
        else:
            file(at, m.attempt, verdict_of(m.cell, m, rule, text, bound))
        repeats.add(k, i, m)
    losses = Losses()
    for reading in counters:
        if reading.run == plan.run:
            losses.add(reading)
        at = counter_place(places, reading)
        if reading.run != plan.run:
            unplanned.add(counter_cell(reading))
        elif at is not None:  # a device has hundreds of counters; the plan names those that decide
            file(at, 1, judge_counter(counter_cell(reading), reading, blocks[at[0]][0]))

    for (k, i), found in again.items():
        bound, cells = blocks[k]
        cells[i] = _of_samples(plan, bound, found)
    for bound, cells in blocks:
        _as_class(cells, bound, plan)
    _narrowed([(bound, cells, repeats.samples.get(k, {})) for k, (bound, cells) in enumerate(blocks)])
    for sweep in sweeps:
        fail_holes((blocks[k][1], repeats.doubtful[k], repeats.seldom[k]) for k in sweep)
    for _, cells in blocks:
        _waived(cells, holding(plan, cells.item))
        _optional(cells)
    items = tuple(JudgedItem(cells.item, cells) for _, cells in blocks)
    return Judged(items, tuple(sorted(unplanned)), losses)


def _block(item: PlanItem, plan: Plan) -> tuple[Bound, Cells]:
    bound = Bound(item, plan.references[item.reference])
    passed = CellVerdict(
        "", Outcome.PASS, Rule.WITHIN.value, bound.passed, gate=bound.gate, ceiling=bound.ceiling
    )
    why, rule = item.not_run, Rule.EXCLUDED
    if not why and item.if_reported:
        why, rule = "this device does not report it", Rule.NOT_REPORTED
    elif not why:
        why, rule = "planned, but no result was recorded", Rule.NOT_MEASURED
    absent = replace(passed, outcome=Outcome.NOT_RUN, rule=rule.value, reason=printable(why))
    return bound, Cells(item, passed, absent)


def _of_samples(plan: Plan, bound: Bound, found: Sequence[tuple[int, CellVerdict]]) -> CellVerdict:
    """Return the verdict on one cell from all its results."""
    if len(found) > 1 and plan.remeasure is not None and covered(bound.item, plan.remeasure):
        settled = settle(found, bound, plan.remeasure)
        if settled is not None:
            return settled
    return combine(found)


def _as_class(cells: Cells, bound: Bound, plan: Plan) -> None:
    """Judge the cells of a block beside each other."""
    if plan.remeasure is None or not covered(bound.item, plan.remeasure):
        _with_outliers(cells, bound)
    else:
        within_share(cells, bound.item, plan.remeasure)
        (with_slow_lines if of_pairs(bound.item) else _with_outliers)(cells, bound)
    with_slow_class(cells, bound)


def counter_place(places: CellPlaces, reading: CounterReading) -> tuple[int, int] | None:
    """Return the place of the cell that a counter reading measures."""
    metric, tail = f"counter.{reading.counter}", params_text({"port": reading.port})
    return places.find(reading.stage, reading.test, metric, (reading.device,), reading.rail, None, tail)


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


def _with_outliers(cells: Cells, bound: Bound) -> None:
    """Fail the passed cells that are odd within their plan item; the class is every cell that is decided."""
    effect = bound.reference.fleet_min_effect
    if effect is None:
        return
    decided = [(i, value) for i, value in enumerate(cells.values(_UNDECIDED)) if value is not None]
    values = [value for _, value in decided]
    odd = worse_outliers(values, higher=bound.higher, min_effect=effect)
    if not any(odd):
        return
    centre = median(values)
    for (i, value), is_odd in zip(decided, odd, strict=True):
        if is_odd and (verdict := cells[i]).outcome is Outcome.PASS:
            share = abs(value - centre) / abs(centre)
            reason = f"{in_unit(number(value), bound.item.unit)} is {share:.1%} worse than the median "
            cells[i] = _outlier(verdict, f"{reason}{number(centre)} of its class of {len(values)}")


def _outlier(verdict: CellVerdict, text: str) -> CellVerdict:
    reason = f"{where(verdict.cell)}: {text}"
    return replace(verdict, outcome=Outcome.FAIL, rule=Rule.OUTLIER.value, reason=reason)


def _narrows(bound: Bound) -> bool:
    """Whether the gate of an item's cells may narrow by what its repeats show."""
    return bound.item.required and bound.reference.fleet_min_effect is None and not bound.learns


def _narrowed(blocks: Sequence[tuple[Bound, Cells, Mapping[int, tuple[float, ...]]]]) -> None:
    """Fail a cell that its gate lets pass and that stands apart from its like in all of its repeats.

    Noise hides it behind a gate wide enough for every host; where this run's repeats show less, they decide.
    Blocks share the risk of blaming a cell that is well.
    """
    able: list[tuple[Bound, Cells, list[int], list[tuple[float, ...]]]] = []
    for bound, cells, repeats in blocks:
        if repeats:
            width = len(cells) // len(bound.item.nodes)
            alone = [len(nodes) == 1 for nodes in bound.item.nodes]  # a pair may have a longer way
            mine = [i for i in sorted(repeats) if alone[i // width] and cells[i].rule in _HELD_AGAINST_A_GATE]
            if len(mine) >= SMALLEST_CLASS:
                able.append((bound, cells, mine, [repeats[i] for i in mine]))
    risk = FALSE_DISCOVERIES / max(1, len(able))
    for bound, cells, mine, found in able:
        at = stands_apart(found, higher=bound.higher, min_effect=_NARROWEST, risk=risk)
        if at is None or (verdict := cells[mine[at]]).outcome is not Outcome.PASS:
            continue
        value, centre = median(found[at]), median([median(one) for one in found])
        told, share = in_unit(number(value), bound.item.unit), abs(value / centre - 1)
        text = (
            f"{told} is {share:.1%} worse than the median {number(centre)} of its class of {len(found)}, and "
            f"each of its {len(found[at])} repeats than each of theirs"
        )
        cells[mine[at]] = _outlier(verdict, text)


def _waived(cells: Cells, waivers: Sequence[Waiver]) -> None:
    """Waive the cells that failed and that a person signed for; what is undecided is not waived."""
    if not waivers:
        return
    for i, v in cells.unlike():
        if v.outcome is Outcome.FAIL and (waiver := next((w for w in waivers if w.covers(v.cell)), None)):
            reason = f"{v.reason} ({waiver.name}, {printable(waiver.words)})"
            cells[i] = replace(v, outcome=Outcome.WAIVED, reason=reason)


def _optional(cells: Cells) -> None:
    """Say in the reason that a cell which did not pass is not required."""
    if cells.item.required and not cells.item.if_reported:
        return
    for i, v in cells.unlike():
        if v.outcome is not Outcome.PASS and not decides(v, cells.item):
            cells[i] = replace(v, reason=f"{v.reason}{NOT_REQUIRED}")


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
        group = _group(block)
        groups.append(group)
        lacking = 0
        for _, v in block.cells.unlike():
            lacking += item.if_reported and v.rule == Rule.NOT_REPORTED
            outcomes[v.outcome] += not item.required and decides(v, item)
            if v.outcome is not Outcome.PASS:
                listed.append((_rank(v, item), v, item))
            elif v.rule in AGAIN:
                transients.append(v)
        if item.required:
            planned[item.stage] += group.planned - lacking
            measured[item.stage] += group.measured
            outcomes.update(group.outcomes)
            outcomes[Outcome.NOT_RUN] -= lacking

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


def _group(block: JudgedItem) -> GroupVerdict:
    item, cells = block.item, block.cells
    values = [value for value in cells.values() if value is not None]
    outcomes = Counter(cells.outcomes())
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
