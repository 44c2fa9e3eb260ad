"""The tables behind the verdict: thresholds and who set them, counters, inventory."""

from __future__ import annotations

from dataclasses import dataclass

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import counter_cell
from shakedown.records.base import Better, Outcome
from shakedown.records.counters import CounterReading
from shakedown.records.plan import ReferenceKind
from shakedown.records.snapshot import Component
from shakedown.records.verdict import CellVerdict
from shakedown.report import text
from shakedown.report.source import Source

MOST_COUNTERS = 400
MOST_COMPONENTS = 600


@dataclass(frozen=True)
class ReferenceRow:
    """A threshold and who set it."""

    id: str
    value_number: float
    value: str
    rule: str
    unit: str
    better: Better
    ceiling: str
    ceiling_source: str
    kind: ReferenceKind
    source: str
    set_by: str
    note: str
    min_samples: int
    cells: int


@dataclass(frozen=True)
class CounterRow:
    """One counter of one port."""

    outcome: Outcome | None  # None: no rule in the plan
    device: str
    port: str
    kind: str
    rail: str
    peer: str
    test: str
    counter: str
    before: str
    after: str
    delta: str
    rule: str


def reference_rows(source: Source) -> tuple[ReferenceRow, ...]:
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
        rows.append(
            ReferenceRow(
                id=reference.id,
                value_number=reference.value,
                value=text.number(reference.value),
                rule=how,
                unit=text.unit(reference.unit),
                better=reference.better,
                ceiling=text.number(reference.ceiling),
                ceiling_source=reference.ceiling_source or "",
                kind=reference.kind,
                source=reference.source,
                set_by=reference.set_by or "",
                note=reference.note or "",
                min_samples=reference.min_samples,
                cells=cells.get(reference.id, 0),
            )
        )
    return tuple(rows)


def _integer(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def counter_rows(source: Source) -> tuple[tuple[CounterRow, ...], int, int]:
    """Return counters that broke a rule or moved, how many rows were left out, how many counters were still.

    Broken rules come first, then counters that could not be read, then the largest movements.
    """
    ruled = {
        cell.cell: cell
        for block in source.judged.items
        if block.item.metric.startswith("counter.")
        for cell in block.cells
    }
    kept: list[tuple[tuple[int, int, int], CounterReading, CellVerdict | None]] = []
    still = 0
    for reading in source.counters:
        cell = ruled.get(counter_cell(reading))
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
            device=reading.device,
            port=reading.port,
            kind="NIC" if reading.kind == "nic" else "switch port",
            rail=reading.rail or "",
            peer=reading.peer or "",
            test=reading.test,
            counter=reading.counter,
            before=_integer(reading.before),
            after=_integer(reading.after),
            delta=_integer(reading.delta),
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


def inventory_rows(source: Source) -> tuple[tuple[InventoryRow, ...], tuple[str, ...], int]:
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
    for kind in ("node", "nic", "gpu", "cable", "switch", "software"):
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
