"""The verdict's first sentence, as one reads it aloud: what is wrong, where, how much, likely why.

It is composed of the cells' verdicts and the plan alone; it says no more than they do and changes none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from shakedown.judge.cells import SEVERITY, Bound, Rule, outside_text, signature
from shakedown.judge.words import (
    CLOCK,
    CORRECTNESS,
    OWNERS,
    TELL_ALL,
    Place,
    counted,
    kind,
    library,
    not_as_planned,
    subject,
    test,
)
from shakedown.nos.crosscheck import ONE_NAME
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan, PlanItem
from shakedown.records.verdict import CauseVerdict, CellVerdict
from shakedown.records.wording import apart, clipped, count, number, printable, those, where

Bad = tuple[CellVerdict, PlanItem]
# One line: the outcome's own name stands before it.
MOST_CHARACTERS = 280
# A tool's message can be a page; the cells below quote more of it.
_MOST_OF_A_REASON = 150
_LEAST_OF_A_HEAD = 150
MOST_CAUSES = 4  # that are named; each takes some 50 characters
_MOST_OF_CAUSES = 240
_LEAST_OF_OTHERS = 30
_MOST_KINDS = 2
_MANY_TIMES = 2.0
_VERBS = {  # of one cell, of several
    Outcome.FAIL: ("failed", "failed"),
    Outcome.INCONCLUSIVE: ("is undecided", "are undecided"),
    Outcome.NOT_RUN: ("was not run", "were not run"),
}
_UNKNOWN = {
    Outcome.INCONCLUSIVE: ("is undecided", "are undecided"),
    Outcome.NOT_RUN: ("was not measured", "were not measured"),
}
_ASIDE = {Outcome.INCONCLUSIVE: "undecided", Outcome.NOT_RUN: "not run"}


def sentence(
    plan: Plan,
    outcome: Outcome,
    bad: Sequence[Bad],
    total: int,
    causes: Sequence[CauseVerdict],
    lost: str = "",
) -> str:
    """Return the sentence for a run that did not pass.

    Args:
        plan: what was wanted.
        outcome: the run's, that of at least one of the cells.
        bad: the required cells that did not pass, worst first.
        total: how many cells are required.
        causes: what explains the results of the mesh.
        lost: who lost the packets that the worst cell counts, if that is what it does.
    """
    same = [entry for entry in bad if entry[0].outcome is outcome]
    if outcome is Outcome.FAIL:
        told = same[:1]
        head = lost or _what_failed(plan, told[0], causes)
    else:
        alike: dict[str, list[Bad]] = defaultdict(list)
        for entry in same:
            alike[because(entry[0])].append(entry)
        # The first of the most: the cells are in order, and so is what was made of them.
        why, told = max(alike.items(), key=lambda e: len(e[1]))
        head = f"{_all_of(told, outcome)}: {clipped(why, _MOST_OF_A_REASON)}"
    mine = {entry[0].cell for entry in told}
    rest = [entry for entry in same if entry[0].cell not in mine]
    also = f"; also {_kinds(rest)}" if rest else ""
    if outcome is Outcome.INCONCLUSIVE and (not_run := _why_not_run(bad)):
        also = f"; not run: {not_run}{also}"
    return _joined(head, f"; {_tally(outcome, len(same), bad, total)}", also, _mesh(causes))


def _why_not_run(bad: Sequence[Bad]) -> str:
    """Return what most cells that were not run say of it, where one is known; it may be why others failed."""
    known = (because(v) for v, _ in bad if v.outcome is Outcome.NOT_RUN and v.rule == Rule.NOT_RUN)
    ((why, _),) = Counter(known).most_common(1) or (("", 0),)
    return clipped(why, _MOST_OF_A_REASON)


def _joined(head: str, tally: str, also: str, mesh: str) -> str:
    """Join the parts to one line; what is longest gives way."""
    mesh = clipped(mesh, _MOST_OF_CAUSES)
    room = MOST_CHARACTERS - len(tally) - len(mesh)
    head = clipped(head, max(room - len(also), _LEAST_OF_A_HEAD))
    also = clipped(also, room - len(head)) if room - len(head) > _LEAST_OF_OTHERS else ""
    return head + tally + also + mesh


def because(verdict: CellVerdict) -> str:
    """Return a cell's reason without its name."""
    return verdict.reason.removeprefix(f"{where(verdict.cell)}: ")


def _what_failed(  # noqa: PLR0911  (one sentence per return reads best)
    plan: Plan, worst: Bad, causes: Sequence[CauseVerdict]
) -> str:
    verdict, item = worst
    reference = plan.references[item.reference]
    said, cell, value = because(verdict), verdict.cell, verdict.value
    if verdict.rule == Rule.IMPOSSIBLE:
        return f"{subject(item, cell)} is impossible: {said}"
    if verdict.rule != Rule.GATE or value is None:
        return f"{subject(item, cell)}: {said}"
    bound = Bound(item, reference)
    detail = said.removeprefix(outside_text(value, bound)).removeprefix(": ")
    hint = signature(item, len(Place.of(cell).nodes), value, reference)
    likely = ""
    if hint:
        detail = detail.removeprefix(hint.text).removeprefix(": ")
        likely = f"likely {hint.likely}"
    if item.test == CLOCK and detail:
        return f"{those(Place.of(cell).nodes, 'node')}'s clock is {clipped(detail, _MOST_OF_A_REASON)}"
    if item.params.get("setting") in OWNERS and detail:
        return detail  # it names the address, its owners and the node that heard of them
    if ONE_NAME in detail:
        return clipped(detail, _MOST_OF_A_REASON)  # no cable is at fault
    if item.test in TELL_ALL and detail:
        return detail
    if _is_check(item):
        return f"{not_as_planned(item, cell)}: {detail or count(round(value), 'thing') + ' wrong'}"
    detail = clipped(detail, _MOST_OF_A_REASON)
    told = (" " if detail.startswith("(") else "; ").join(part for part in (likely, detail) if part)
    return f"{_measured(item, cell, value, bound, causes)}{': ' if told else ''}{told}"


def _is_check(item: PlanItem) -> bool:
    """Whether a cell counts what is wrong, so that what it found says more than how many."""
    return item.metric in ("odd", "wrong") and item.unit == "1" and "size_bytes" not in item.params


def _measured(  # noqa: PLR0911  (one sentence per return reads best)
    item: PlanItem, cell: str, value: float, bound: Bound, causes: Sequence[CauseVerdict]
) -> str:
    """Name what was measured, how much it is and how much was wanted."""
    place, unit = Place.of(cell), printable("" if item.unit in ("1", "loss") else item.unit)
    amount = _amount(value, bound, unit)
    if item.unit == "Gb/s" and item.metric == "bandwidth" and place.rail:
        at = f" on {place.rail}"
        if place.ways:
            sender, sink = place.ways
            if f"nic {sink} {place.rail} rx" in {c.element for c in causes if c.blamed}:
                return f"{sink}'s NIC{at} receives from {sender} at {amount}"
            return f"{sender}'s NIC{at} sends to {sink} at {amount}"
        if len(place.nodes) == 1:
            verb = {"rx": "receives at", "tx": "sends at"}.get(place.direction, "reaches")
            return f"{place.nodes[0]}'s NIC{at} {verb} {amount}"
    if item.metric.startswith("counter."):
        wanted = amount.partition(", ")[2].partition(" (")[0]
        return f"{counted(item, cell, number(value))}, {wanted}"
    what = subject(item, cell)
    if item.metric == "wrong":
        return (
            f"{what.removeprefix(CORRECTNESS)} returned {count(round(value), 'wrong result')}, none allowed"
        )
    if item.metric == "time":
        return f"{what.replace(' time', '', 1)} takes {amount}"
    if item.unit == "1":
        return f"{what}: {amount}"
    verb = "reaches" if bound.higher else "takes" if item.unit in ("s", "ms", "us", "min") else "is"
    return f"{what} {verb} {amount}"


def _amount(value: float, bound: Bound, unit: str) -> str:
    gate = bound.gate
    mine = f"{apart(value, gate, unit)} {unit}".rstrip()
    if gate == 0 and not bound.higher:
        return f"{number(value, unit)} {unit}".rstrip() + ", none allowed"
    if bound.higher:
        # A limit of its own may ask for more than the value that it came from, but not for the impossible.
        reference = bound.reference
        wanted = max(
            gate, min(reference.value, reference.value if reference.ceiling is None else reference.ceiling)
        )
        mine = f"{apart(value, wanted, unit)} {unit}".rstrip()
        return f"{mine}, {apart(wanted, value, unit)} wanted ({_percent(value / wanted - 1)})"
    more = value / gate if gate > 0 else 1.0
    times = f"{number(more)} times as much" if more >= _MANY_TIMES else _percent(more - 1)
    return f"{mine}, at most {apart(gate, value, unit)} allowed" + (
        f" ({times})" if more > 1 and unit != "x" else ""
    )


def _percent(change: float) -> str:
    text = f"{100 * change:+.{0 if abs(change) >= 0.1 else 1}f} %"
    return "-99.9 %" if text == "-100 %" and change > -1 else text


def _tally(outcome: Outcome, same: int, bad: Sequence[Bad], total: int) -> str:
    """Say how many cells did not pass, by what became of them."""
    counts = Counter(verdict.outcome for verdict, _ in bad)
    one, many = _VERBS[outcome]
    others = [
        f"{counts[other]} {_ASIDE[other]}"
        for other in (Outcome.INCONCLUSIVE, Outcome.NOT_RUN)
        if counts[other] and SEVERITY[other] < SEVERITY[outcome]
    ]
    return ", ".join((f"{same} of {count(total, 'cell')} {one if same == 1 else many}", *others))


def _all_of(told: Sequence[Bad], outcome: Outcome) -> str:
    """Name the cells that one reason explains by the narrowest word that covers them all."""
    one, many = _UNKNOWN[outcome]
    if len(told) == 1:
        return f"{subject(told[0][1], told[0][0].cell)} {one}"
    meet = _meet(verdict.cell for verdict, _ in told)
    for word in (kind, test, library):
        names = {word(item) for _, item in told}
        if len(names) == 1 and (name := names.pop()):
            return f"{name} {meet} ({len(told)} cells) {one}"
    return f"{len(told)} cells {meet} {many}"


def _kinds(cells: Sequence[Bad]) -> str:
    """Count cells by what they measure, and say where they meet."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for verdict, item in cells:
        grouped[kind(item)].append(verdict.cell)
    order = sorted(grouped, key=lambda name: (-len(grouped[name]), name))
    meets = {name: _meet(grouped[name]) for name in order}
    one_place = meets[order[0]] if len(set(meets.values())) == 1 else ""
    shown = []
    for name in order[:_MOST_KINDS]:
        many = f"{len(grouped[name])} of " if len(grouped[name]) > 1 else ""
        shown.append(f"{many}{name}" + (f" {meets[name]}" if not one_place else ""))
    left = sum(len(grouped[name]) for name in order[_MOST_KINDS:])
    more = f" and {left} more" if left else ""
    return f"{', '.join(shown)}{more}" + (f" {one_place}" if one_place else "")


def _meet(cells: Iterable[str]) -> str:
    """Return the nodes and the rail that all of these cells have in common, or how many nodes there are."""
    places = [Place.of(cell) for cell in cells]
    nodes: Counter[str] = Counter(node for place in places for node in place.nodes)
    common = sorted(node for node, times in nodes.items() if times == len(places))
    rails = {place.rail for place in places}
    rail = f" on {rails.pop()}" if len(rails) == 1 and "" not in rails else ""
    return (f"at {those(common, 'node')}" if common else f"at {count(len(nodes), 'node')}") + rail


_PARTS = {"nic": "{0}'s NIC on {1}", "cable": "{0}'s cable on {1}", "port": "the switch port of {0} on {1}"}
_WAYS = {"tx": ", sending", "rx": ", receiving", "up": ", towards the spine", "down": ", from the spine"}


def _mesh(causes: Sequence[CauseVerdict]) -> str:
    """Whom the mesh's results blame, or else suspect, for the end of the sentence."""
    if not causes:
        return ""
    blamed = [c for c in causes if c.blamed]
    named = blamed or causes
    shown = []
    for cause in named[:MOST_CAUSES]:
        effect = "no results" if cause.effect <= -1 else _percent(cause.effect)
        sure = "" if len(named) > 2 else f", confidence {cause.confidence:.0%}"  # a list would be too long
        shown.append(f"{_part(cause.element)} ({effect}{sure})")
    more = f" and {len(named) - MOST_CAUSES} more" if len(named) > MOST_CAUSES else ""
    return f"; the mesh's results {'blame' if blamed else 'point to'} {', '.join(shown)}{more}"


def _part(element: str) -> str:
    """Return an element of localisation (`nic n3 rail1 rx`) in words."""
    what, *names = printable(element).split(" ")
    way = _WAYS.get(names[-1], "") if names else ""
    names = names[:-1] if way else names
    words = _PARTS.get(what, "")
    return (words.format(*names) if words and len(names) == 2 else " ".join((what, *names))) + way
