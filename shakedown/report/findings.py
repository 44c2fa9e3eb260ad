"""What did not pass, as a person would tell it: a finding per test and rule, worst first; where they meet."""

from collections.abc import Iterator
from dataclasses import dataclass

from shakedown.judge.verdict import decides
from shakedown.records import wording
from shakedown.records.base import Better, Outcome
from shakedown.records.plan import PlanItem, Reference
from shakedown.records.verdict import CellVerdict
from shakedown.report import text
from shakedown.report.source import CellPlace, ReportSource

MOST_FINDINGS = 20
MOST_PLACES = 12  # further cells listed under one finding
MOST_SUSPECTS = 8
ALL_NODES = ", all nodes"
_DECIDED = (Outcome.PASS, Outcome.FAIL)


@dataclass(frozen=True)
class Gauge:
    """Positions on a bar from 0 to 100 % of its width."""

    value: float
    gate: float | None
    reference: float | None
    ceiling: float | None
    description: str


@dataclass(frozen=True)
class StoppedCells:
    """Cells of one test and metric that one rule stopped; `where` and `reason` are of the worst."""

    item: PlanItem
    against: Reference
    worst: CellVerdict
    required: bool
    where: str
    reason: str
    gauge: Gauge | None
    count: int
    planned: int
    others: tuple[tuple[str, str], ...]  # (where, reason) of further cells, worst first
    others_left_out: int


@dataclass(frozen=True)
class Suspect:
    """A node, a rail, or a node's rail, with how many of the cells that touch it failed."""

    name: str
    bad: int
    judged: int

    @property
    def share(self) -> float:
        """Failed over judged, 0 to 1."""
        return self.bad / self.judged


def site(place: CellPlace) -> str:
    """Return the hardware that a cell measures, in words: `n1 → n2 · rail0`."""
    if len(place.nodes) == 2 and place.direction in {"forward", "reverse", "both"}:
        first, second = place.nodes if place.direction != "reverse" else place.nodes[::-1]
        nodes = f"{first} {'↔' if place.direction == 'both' else '→'} {second}"
        direction = None
    else:
        nodes, direction = text.node_list(place.nodes), place.direction
    return " · ".join(p for p in (nodes, place.rail, direction) if p)


def where(place: CellPlace) -> str:
    """Return a cell's place and parameters in words: `n1 → n2 · rail0 · size 64 KiB`."""
    return " · ".join(p for p in (site(place), text.params(place.item.params)) if p)


def because(cell: CellVerdict) -> str:
    """Return the reason without the name of the cell, which the report prints beside it."""
    return cell.reason.removeprefix(f"{wording.where(cell.cell)}: ")


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


def find(source: ReportSource, most: int = MOST_FINDINGS) -> tuple[tuple[StoppedCells, ...], int]:
    """Return the findings in the verdict's order (worst first), and how many were left out."""
    grouped: dict[tuple[str, ...], list[CellVerdict]] = {}
    planned: dict[tuple[str, ...], int] = {}
    for item in source.plan.items:
        test: tuple[str, ...] = (item.stage, item.test, item.metric)
        planned[test] = planned.get(test, 0) + len(item)
    for cell in source.verdict.cells:
        place = source.place(cell.cell)
        if place is not None:
            item = place.item
            cause = (item.stage, item.test, item.metric, cell.rule, cell.outcome, str(item.required))
            grouped.setdefault(cause, []).append(cell)
    found = []
    for key, alike in list(grouped.items())[:most]:
        worst = alike[0]
        item = source.planned(worst.cell).item
        reference = source.reference(item)
        rest = alike[1 : 1 + MOST_PLACES]
        found.append(
            StoppedCells(
                item=item,
                against=reference,
                worst=worst,
                required=decides(worst, item),
                where=where(source.planned(worst.cell)),
                reason=because(worst),
                gauge=_gauge(worst, reference.value, item.better, item.unit),
                count=len(alike),
                planned=planned[key[:3]],
                others=tuple((where(source.planned(c.cell)), because(c)) for c in rest),
                others_left_out=len(alike) - 1 - len(rest),
            )
        )
    return tuple(found), max(0, len(grouped) - most)


def _touched(place: CellPlace, everybody: int) -> Iterator[str]:
    # A test of many nodes, or of the only two there are, touches every node and so accuses none.
    if len(place.nodes) > 2:
        return
    if len(place.nodes) == 1 or everybody > 2:
        for node in place.nodes:
            yield node
            if place.rail is not None:
                yield f"{node} · {place.rail}"
    if place.rail is not None:
        yield f"{place.rail}{ALL_NODES}"


def _finest(names: list[str]) -> str:
    """Join names that account for the same cells, without a node or rail whose part is among them."""
    parts = [name.split(" · ") for name in names if " · " in name]
    covered = {node for node, _ in parts} | {f"{rail}{ALL_NODES}" for _, rail in parts}
    return " or ".join(sorted(set(names) - covered))


def suspects(source: ReportSource, most: int = MOST_SUSPECTS) -> tuple[Suspect, ...]:
    """Return the fewest nodes, node rails and rails that account for the failed cells, strongest first.

    One after the other, the place with the most failures for its number of cells is named and its cells
    are set aside, so that the partners of a bad NIC are not accused with it. Places that account for the
    same cells equally well are named together. These are counts, not a diagnosis. Only cells judged PASS
    or FAIL count, so that a busy node is not accused, and only cells of one or two nodes.
    """
    everybody = len(source.plan.nodes)
    bad: dict[str, set[str]] = {}
    nodes: set[str] = set()
    rails: set[str | None] = set()
    for cell in source.verdict.cells:
        if cell.outcome is Outcome.FAIL:
            place = source.planned(cell.cell)
            nodes.update(place.nodes)
            rails.add(place.rail)
            for name in _touched(place, everybody):
                bad.setdefault(name, set()).add(cell.cell)
    judged = dict.fromkeys(bad, 0)
    for index, block in enumerate(source.judged.items if bad else ()):
        for (_, of, rail, direction), outcome in zip(block.item.cells(), block.cells.outcomes(), strict=True):
            # Most cells of a large run share neither a node nor a rail with a failed one.
            if (rail in rails or not nodes.isdisjoint(of)) and outcome in _DECIDED:
                for name in _touched(CellPlace(block.item, index, of, rail, direction), everybody):
                    if name in judged:
                        judged[name] += 1
    total = {name: len(failed) for name, failed in bad.items()}
    found: list[Suspect] = []
    while bad and len(found) < most:
        weight = {name: len(failed) ** 2 / judged[name] for name, failed in bad.items()}
        strongest = max(bad, key=lambda name: (weight[name], name))
        equals = [n for n in bad if weight[n] == weight[strongest] and bad[n] == bad[strongest]]
        accounted = bad[strongest]
        found.append(Suspect(_finest(equals), total[strongest], judged[strongest]))
        bad = {name: rest for name, failed in bad.items() if (rest := failed - accounted)}
    return tuple(found)
