"""The tables of the report: results against references, every cell, thresholds, counters and inventory."""

import statistics
from dataclasses import dataclass

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import counter_place
from shakedown.records.base import Better, Outcome
from shakedown.records.plan import PlanItem, Reference
from shakedown.records.results import Component, CounterReading
from shakedown.records.verdict import CellVerdict, GroupVerdict
from shakedown.report import text
from shakedown.report.findings import because, where
from shakedown.report.source import Attempt, ReportSource, margin

# Up to this many planned cells every one is a row; above it passed cells are summed up per test.
ALL_CELLS = 1500
MOST_CELLS = 1000


@dataclass(frozen=True)
class GroupRow:
    """All cells of one plan item, against their reference."""

    item: PlanItem
    against: Reference
    found: GroupVerdict
    outcome: Outcome  # the worst outcome among its required cells
    params: str
    rails: str  # those of the plan item, "rail0,rail1"; empty if it has none
    percent_of_ceiling: str  # of the value nearest the ceiling
    standing: float  # of the worst value to its gate: 1 is at the gate, below 1 outside it


@dataclass(frozen=True)
class CellRow:
    """One cell against its reference."""

    item: PlanItem
    against: Reference
    found: CellVerdict
    where: str
    gate: float
    samples: int
    spread: str
    reason: str


@dataclass(frozen=True)
class FamilyRow:
    """One metric of one test over all its sizes and ports, shown by the item that stands worst."""

    outcome: Outcome
    items: int
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    tightest: GroupRow


def group_rows(source: ReportSource) -> tuple[GroupRow, ...]:
    """Return one row per plan item, in the plan's order."""
    rows = []
    for group, item in zip(source.verdict.groups, source.plan.items, strict=True):
        reference = source.reference(item)
        present = [o for o, count in group.outcomes.items() if count] or [Outcome.NOT_RUN]
        ends = [end for end in (group.worst, group.best) if end is not None]
        rows.append(
            GroupRow(
                item=item,
                against=reference,
                found=group,
                outcome=max(present, key=SEVERITY.__getitem__),
                params=text.params(item.params),
                rails=",".join(rail for rail in item.rails if rail),
                percent_of_ceiling=text.percent(max(ends, default=None), reference.ceiling),
                standing=margin(group.worst, reference.gate, item.better) if group.worst is not None else 0.0,
            )
        )
    return tuple(rows)


# Parameters that vary within one metric of one test without making it another test.
_VARYING = {"size_bytes", "port"}


def family_rows(source: ReportSource, groups: tuple[GroupRow, ...]) -> tuple[FamilyRow, ...]:
    """Return one row for all items that differ in message size or port alone, in the plan's order."""
    families: dict[tuple[str, ...], list[GroupRow]] = {}
    for item, group in zip(source.plan.items, groups, strict=True):
        fixed = text.params({k: v for k, v in item.params.items() if k not in _VARYING})
        families.setdefault((item.stage, item.test, item.metric, item.unit, fixed), []).append(group)
    rows = []
    for members in families.values():
        total = {o: sum(m.found.outcomes.get(o, 0) for m in members) for o in Outcome}
        tightest = min(members, key=lambda m: (-SEVERITY[m.outcome], m.standing))
        rows.append(
            FamilyRow(
                outcome=tightest.outcome,
                items=len(members),
                planned=sum(m.found.planned for m in members),
                measured=sum(m.found.measured for m in members),
                outcomes=total,
                tightest=tightest,
            )
        )
    return tuple(rows)


def spread(samples: tuple[float, ...]) -> str:
    """Return the spread of repeats as the coefficient of variation in percent (from two samples on)."""
    if len(samples) < 2:
        return "–"
    mean = statistics.fmean(samples)
    return f"±{100 * statistics.stdev(samples) / abs(mean):.2g} %" if mean else "–"


def _judged(cell: CellVerdict, attempts: list[Attempt]) -> Attempt | None:
    """The attempt whose value the verdict used; the latest with that value."""
    for attempt in reversed(attempts):
        if attempt.value == cell.value:
            return attempt
    return None


def cell_row(source: ReportSource, cell: CellVerdict) -> CellRow:
    """Return the row of one cell."""
    place = source.planned(cell.cell)
    item, reference = place.item, source.reference(place.item)
    attempt = _judged(cell, source.attempts(cell.cell))
    samples = attempt.samples if attempt else ()
    return CellRow(
        item=item,
        against=reference,
        found=cell,
        where=where(place),
        gate=cell.gate if cell.gate is not None else reference.gate,
        samples=len(samples) or (1 if cell.value is not None else 0),
        spread=spread(samples),
        reason=because(cell),
    )


def cell_rows(source: ReportSource) -> tuple[tuple[CellRow, ...], int, bool]:
    """Return rows, how many non-passed cells were left out, and whether passed cells are among the rows."""
    bad = source.verdict.cells
    every = sum(len(cells) for cells in source.by_item) <= ALL_CELLS
    shown = bad if every else bad[:MOST_CELLS]
    left_out = len(bad) - len(shown)
    if every:
        shown = (*shown, *(c for cells in source.by_item for c in cells if c.outcome is Outcome.PASS))
    return tuple(cell_row(source, c) for c in shown), left_out, every


MOST_COUNTERS = 400
MOST_COMPONENTS = 600


@dataclass(frozen=True)
class ReferenceRow:
    """A threshold and who set it."""

    found: Reference
    rule: str
    cells: int


@dataclass(frozen=True)
class CounterRow:
    """One counter of one port."""

    outcome: Outcome | None  # None: no rule in the plan
    found: CounterReading
    rule: str


def reference_rows(source: ReportSource) -> tuple[ReferenceRow, ...]:
    """Return every reference of the plan with the number of cells that it gates."""
    cells: dict[str, int] = {}
    for item in source.plan.items:
        cells[item.reference] = cells.get(item.reference, 0) + len(item)
    rows = []
    for reference in source.plan.references.values():
        comparison = "at least" if reference.better is Better.HIGHER else "at most"
        how = f"{comparison} {text.number(reference.gate)}"
        if reference.tolerance is not None:
            sign = "−" if reference.better is Better.HIGHER else "+"
            how += f" (value {sign} {100 * reference.tolerance:g} %)"
        rows.append(ReferenceRow(reference, how, cells.get(reference.id, 0)))
    return tuple(rows)


def counter_rows(source: ReportSource) -> tuple[tuple[CounterRow, ...], int, int]:
    """Return counters that broke a rule or moved, how many rows were left out, how many counters were still.

    Broken rules come first, then counters that could not be read, then the largest movements.
    """
    kept: list[tuple[tuple[int, int, int], CounterReading, CellVerdict | None]] = []
    still = 0
    for reading in source.counters:
        at = counter_place(source.places, reading)
        cell = None if at is None else source.judged.items[at[0]].cells[at[1]]
        outcome = cell.outcome if cell is not None else Outcome.PASS
        if reading.delta == 0 and outcome is Outcome.PASS:
            still += 1
            continue
        order = (-SEVERITY[outcome], 0 if reading.delta is None else 1, -(reading.delta or 0))
        kept.append((order, reading, cell))
    kept.sort(key=lambda entry: (entry[0], entry[1].device, entry[1].port, entry[1].counter))
    rows = tuple(
        CounterRow(
            outcome=cell.outcome if cell is not None else None,
            found=reading,
            rule=f"at most {text.number(cell.gate)}" if cell is not None and cell.gate is not None else "",
        )
        for _, reading, cell in kept[:MOST_COUNTERS]
    )
    return rows, max(0, len(kept) - MOST_COUNTERS), still


@dataclass(frozen=True)
class InventoryRow:
    """Components of one kind that are alike."""

    kind: str
    names: str
    attributes: str
    hosts: str
    count: int


def inventory_rows(source: ReportSource) -> tuple[tuple[InventoryRow, ...], tuple[str, ...], int]:
    """Return the inventory with like components on one line, what was set aside, and lines left out.

    An attribute that differs on most pieces of a kind (a serial number, a GUID) says nothing about what
    the pieces are and is set aside. Within a kind the rarest lines come first: a reader looks for odd ones.
    """
    if source.inventory is None:
        return (), (), 0
    kinds: dict[str, list[Component]] = {}
    for component in source.inventory.components:
        kinds.setdefault(component.kind, []).append(component)
    lines: list[InventoryRow] = []
    aside = []
    for kind in ("node", "nic", "gpu", "drive", "cable", "switch", "software"):
        components = kinds.get(kind, [])
        values: dict[str, set[str]] = {}
        for component in components:
            for key, value in component.attributes.items():
                values.setdefault(key, set()).add(value)
        identity = {k for k, v in values.items() if len(v) > max(8, len(components) // 2)}
        aside += [f"{kind} {key}" for key in sorted(identity)]
        alike: dict[tuple[str, str], list[Component]] = {}
        for component in components:
            shown = ", ".join(
                f"{k} {v}" for k, v in sorted(component.attributes.items()) if k not in identity
            )
            # Ports of a host are alike under different names; programs are not.
            name = component.name if kind == "software" else ""
            alike.setdefault((name, shown), []).append(component)
        for (_, shown), like in sorted(
            alike.items(), key=lambda entry: (entry[0][0], len(entry[1]), entry[0])
        ):
            names = tuple(dict.fromkeys(c.name for c in like))
            hosts = tuple(dict.fromkeys(c.host for c in like))
            lines.append(InventoryRow(kind, text.some(names, 8), shown, text.some(hosts, 8), len(like)))
    return tuple(lines[:MOST_COMPONENTS]), tuple(aside), max(0, len(lines) - MOST_COMPONENTS)
