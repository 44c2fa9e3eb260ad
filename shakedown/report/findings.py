"""What did not pass, as a person would tell it: one finding per cause seen, worst first, and where they meet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shakedown.core import cells
from shakedown.core.records import Better, CellVerdict, Outcome, Stage
from shakedown.report import text
from shakedown.report.source import Place, Source

MOST_FINDINGS = 20
MOST_PLACES = 12  # further cells listed under one finding
MOST_SUSPECTS = 8


@dataclass(frozen=True)
class Gauge:
    """Positions on a bar from 0 to 100 % of its width."""

    value: float
    gate: float | None
    reference: float | None
    ceiling: float | None
    description: str


@dataclass(frozen=True)
class Finding:
    """Cells of one test and metric that missed for the same rule; `where` and `reason` are the worst one's."""

    outcome: Outcome
    stage: Stage
    test: str
    metric: str
    rule: str
    where: str
    reason: str
    unit: str
    value: str
    gate: str
    reference: str
    source: str
    percent_of_reference: str
    gauge: Gauge | None
    raw: str | None
    count: int
    planned: int
    others: tuple[tuple[str, str], ...]  # (where, reason) of further cells, worst first
    others_left_out: int


@dataclass(frozen=True)
class Suspect:
    """A node or a node's rail, with how many of the cells that touch it failed."""

    name: str
    bad: int
    judged: int

    @property
    def share(self) -> float:
        """Failed over judged, 0 to 1."""
        return self.bad / self.judged


def site(place: Place) -> str:
    """Return the hardware that a cell measures, in words: `n1 → n2 · rail0`."""
    if len(place.nodes) == 2 and place.direction in {"forward", "reverse", "both"}:
        first, second = place.nodes if place.direction != "reverse" else place.nodes[::-1]
        nodes = f"{first} {'↔' if place.direction == 'both' else '→'} {second}"
        direction = None
    else:
        nodes, direction = text.node_list(place.nodes), place.direction
    return " · ".join(p for p in (nodes, place.rail, direction) if p)


def where(place: Place) -> str:
    """Return a cell's place and parameters in words: `n1 → n2 · rail0 · size 64 KiB`."""
    return " · ".join(p for p in (site(place), text.params(place.item.params)) if p)


def because(cell: CellVerdict) -> str:
    """Return the reason without the name of the cell, which the report prints beside it."""
    return cell.reason.removeprefix(f"{cells.where(cell.cell)}: ")


def _gauge(cell: CellVerdict, reference: float, better: Better, unit: str) -> Gauge | None:
    if cell.value is None or cell.value < 0:
        return None
    marks = [cell.value, cell.gate or 0, reference, cell.ceiling or 0]
    top = max(marks)
    if top <= 0:
        return None
    if better is Better.LOWER:
        # Far beyond the gate a linear bar would hide the gate itself.
        top = min(top, 4 * max(cell.gate or 0, reference) or top)

    def position(mark: float | None) -> float | None:
        return None if mark is None else round(min(100.0, 100 * mark / top), 2)

    description = f"measured {text.number(cell.value)} {unit}, gate {text.number(cell.gate)} {unit}"
    if cell.ceiling is not None:
        description += f", physical ceiling {text.number(cell.ceiling)} {unit}"
    return Gauge(
        position(cell.value) or 0.0,
        position(cell.gate),
        position(reference),
        position(cell.ceiling),
        description,
    )


def find(source: Source, most: int = MOST_FINDINGS) -> tuple[tuple[Finding, ...], int]:
    """Return the findings in the verdict's order (worst first), and how many were left out."""
    grouped: dict[tuple[int, str, Outcome], list[CellVerdict]] = {}
    for cell in source.verdict.cells:
        place = source.places.get(cell.cell)
        if place is not None:
            grouped.setdefault((place.item_index, cell.rule, cell.outcome), []).append(cell)
    found = []
    for (index, rule, outcome), alike in list(grouped.items())[:most]:
        item, worst = source.plan.items[index], alike[0]
        reference = source.reference(item)
        rest = alike[1 : 1 + MOST_PLACES]
        found.append(
            Finding(
                outcome=outcome,
                stage=item.stage,
                test=item.test,
                metric=item.metric,
                rule=rule,
                where=where(source.places[worst.cell]),
                reason=because(worst),
                unit=item.unit,
                value=text.number(worst.value),
                gate=text.number(worst.gate),
                reference=text.number(reference.value),
                source=f"{reference.kind}: {reference.source}",
                percent_of_reference=text.percent(worst.value, reference.value),
                gauge=_gauge(worst, reference.value, item.better, item.unit),
                raw=worst.raw,
                count=len(alike),
                planned=len(item),
                others=tuple((where(source.places[c.cell]), because(c)) for c in rest),
                others_left_out=len(alike) - 1 - len(rest),
            )
        )
    return tuple(found), max(0, len(grouped) - most)


def _touched(place: Place) -> Iterable[str]:
    # A collective touches everybody and so accuses nobody.
    if len(place.nodes) <= 2:
        for node in place.nodes:
            yield node
            if place.rail is not None:
                yield f"{node} · {place.rail}"


def suspects(source: Source, most: int = MOST_SUSPECTS) -> tuple[Suspect, ...]:
    """Return nodes and node rails that the failed cells have in common, largest share of failures first.

    These are counts, not a diagnosis: a bad cable shows at both its ends. Only cells judged PASS or FAIL
    count, so that a busy node is not accused, and only cells of one or two nodes, for the same reason.
    """
    bad: dict[str, int] = {}
    judged: dict[str, int] = {}
    for cell in source.cells:
        place = source.places.get(cell.cell)
        if place is None or cell.outcome not in {Outcome.PASS, Outcome.FAIL}:
            continue
        for name in _touched(place):
            judged[name] = judged.get(name, 0) + 1
            if cell.outcome is Outcome.FAIL:
                bad[name] = bad.get(name, 0) + 1
    ranked = sorted(
        (Suspect(name, count, judged[name]) for name, count in bad.items()),
        key=lambda s: (-s.share, -s.bad, s.name),
    )
    return tuple(ranked[:most])
