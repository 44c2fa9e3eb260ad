"""A judged run as a table, one row a cell: CSV for spreadsheets, Parquet for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from shakedown.judge.verdict import Judged
from shakedown.records.base import params_text
from shakedown.records.plan import Plan

# Columns are added at the end and never renamed: others' programs read them. Texts, but for those below.
COLUMNS = (
    *("run", "system", "created", "simulated", "cell", "stage", "test", "metric", "nodes", "rail"),
    *("direction", "params", "required", "outcome", "rule", "value", "unit", "better", "gate", "ceiling"),
    *("reference", "kind", "source", "reason", "raw"),
)
_NUMBERS, _TRUTHS = ("value", "gate", "ceiling"), ("simulated", "required")
# What a spreadsheet takes for a formula (OWASP, CSV Injection); a number is none, whatever its sign.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
Row = dict[str, str | float | bool | None]


def rows(plan: Plan, judged: Judged) -> Iterator[Row]:
    """Yield each planned cell, in the plan's order, with the names of `COLUMNS`; None where there is none."""
    same: Row = {"run": plan.run, "system": plan.system, "created": plan.created, "simulated": plan.simulated}
    for block in judged.items:
        item, held = block.item, plan.references[block.item.reference]
        alike: Row = {key: getattr(item, key) for key in ("test", "metric", "unit", "required")}
        alike |= {"stage": item.stage.value, "better": item.better.value, "params": params_text(item.params)}
        alike |= {"reference": held.id, "kind": held.kind.value, "source": held.source}
        for (cell, nodes, rail, direction), found in zip(item.cells(), block.cells, strict=True):
            own: Row = {
                key: getattr(found, key) for key in ("rule", "value", "gate", "ceiling", "reason", "raw")
            }
            own |= {"nodes": ",".join(nodes), "rail": rail, "direction": direction}
            yield {**same, **alike, **own, "cell": cell, "outcome": found.outcome.value}


def _harmless(value: str | float | bool | None) -> str | float:
    """Return a value as a spreadsheet may open it: a text that begins like a formula gets a quote first."""
    if isinstance(value, bool):
        return str(value).lower()
    text = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if text else "" if value is None else value


def as_csv(found: Iterator[Row]) -> bytes:
    """Return the rows as CSV with a head of names."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_harmless(row[name]) for name in COLUMNS] for row in found)
    return text.getvalue().encode()


def as_parquet(found: Iterator[Row]) -> bytes:
    """Return the rows as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = dict.fromkeys(_NUMBERS, pa.float64()) | dict.fromkeys(_TRUTHS, pa.bool_())
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    written = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(found), schema=schema), written, compression="zstd")
    return bytes(written.getvalue())
