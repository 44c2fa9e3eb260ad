"""A run for machines: JUnit XML for continuous integration, Prometheus text, and a table: CSV and Parquet."""

import csv
import io
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import Judged
from shakedown.records.base import Outcome, params_text
from shakedown.records.plan import Plan
from shakedown.report import text
from shakedown.report.html import ReportView
from shakedown.report.tables import CellRow, GroupRow

# FAIL is a failure, INCONCLUSIVE an error, NOT-RUN and WAIVED are skipped. Because most tools count a skipped
# case as harmless, the first case is the run's own verdict, which is an error unless the run passed.

# What XML 1.0 cannot hold even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG = {
    Outcome.FAIL: "failure",
    Outcome.INCONCLUSIVE: "error",
    Outcome.NOT_RUN: "skipped",
    Outcome.WAIVED: "skipped",
    Outcome.BASELINE: "skipped",
}


def _clean(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text.inert(value))


def _case(suite: ET.Element, name: str, outcome: Outcome, kind: str, message: str) -> ET.Element:
    case = ET.SubElement(suite, "testcase", name=_clean(name), classname=suite.get("name", ""), time="0")
    properties = ET.SubElement(case, "properties")
    tag = _TAG.get(outcome)
    if tag is not None:
        found = ET.SubElement(case, tag, message=_clean(message))
        if tag != "skipped":
            found.set("type", _clean(kind))
    return properties


def _property(properties: ET.Element, name: str, value: str) -> None:
    if value and value != "–":
        ET.SubElement(properties, "property", name=name, value=_clean(value))


def _cell(suite: ET.Element, cell: CellRow) -> None:
    name = f"{cell.item.test} {cell.item.metric} [{cell.where}]"
    properties = _case(suite, name, cell.found.outcome, cell.found.rule, cell.reason)
    found, against = cell.found, cell.against
    _property(properties, "value", "" if found.value is None else repr(found.value))
    _property(properties, "unit", text.unit(cell.item.unit))
    _property(properties, "gate", text.number(cell.gate))
    _property(properties, "reference", text.number(against.value))
    _property(properties, "source", against.source)
    _property(properties, "percent_of_reference", text.percent(found.value, against.value))
    _property(properties, "percent_of_ceiling", text.percent(found.value, found.ceiling))
    _property(properties, "raw", found.raw or "")
    _property(properties, "kind", against.kind.value)


def _group(suite: ET.Element, group: GroupRow) -> None:
    name = " ".join(p for p in (group.item.test, group.item.metric, group.params) if p)
    counts = ", ".join(f"{count:,} {o.value}" for o, count in group.found.outcomes.items() if count)
    properties = _case(suite, f"{name} [all cells]", group.outcome, "cells", counts)
    found, against = group.found, group.against
    _property(properties, "unit", text.unit(group.item.unit))
    for key in ("worst", "median", "best"):
        _property(properties, key, text.number(getattr(found, key)))
    _property(properties, "gate", text.number(against.gate))
    _property(properties, "reference", text.number(against.value))
    _property(properties, "source", against.source)
    _property(properties, "percent_of_reference", text.percent(found.worst, against.value))
    _property(properties, "planned", str(found.planned))
    _property(properties, "measured", str(found.measured))


def render_junit(view: ReportView) -> str:
    """Return the run as JUnit XML."""
    verdict = view.verdict
    simulated = "SIMULATED " if view.plan.simulated else ""
    root = ET.Element("testsuites", name=_clean(f"{simulated}{view.plan.system} {verdict.run}"))
    suite = ET.SubElement(root, "testsuite", name="run")
    # Not "skipped" even for a run that was not run: somebody would take it for green.
    open_ = verdict.outcome in (Outcome.NOT_RUN, Outcome.BASELINE)
    judged = Outcome.INCONCLUSIVE if open_ else verdict.outcome
    properties = _case(
        suite, "verdict", judged, verdict.outcome.value, f"{verdict.outcome.value}: {verdict.reason}"
    )
    _property(properties, "coverage", f"{verdict.coverage.measured}/{verdict.coverage.planned}")
    _property(properties, "evidence_sha256", view.checksum.sha256 if view.checksum else "")
    for stage in view.stages:
        suite = ET.SubElement(root, "testsuite", name=stage.stage.value)
        if not view.every_cell:
            for group in view.groups:
                if group.item.stage is stage.stage:
                    _group(suite, group)
        for cell in view.cells:
            if cell.item.stage is stage.stage:
                _cell(suite, cell)
        if not len(suite):
            root.remove(suite)
    for suite in root:
        suite.set("tests", str(len(suite)))
        for tag, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


# No time stamps (the collector refuses them); the run is a label. Every label is escaped as the
# exposition format wants it: backslash, double quote and line feed.

Sample = tuple[dict[str, str], float]


def _label(value: str) -> str:
    return text.inert(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def family(name: str, help_text: str, samples: Iterable[Sample]) -> str:
    """Return one metric with its help and all its samples; nothing if there are none."""
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
    seen: Counter[str] = Counter()
    for labels, value in samples:
        inner = ",".join(f'{k}="{_label(v)}"' for k, v in labels.items() if v)
        # Two series of the same labels make Prometheus refuse the whole file: what differs only in what no
        # label says (the nodes of two plan items) is numbered.
        seen[inner] += 1
        if seen[inner] > 1:
            inner += f',part="{seen[inner]}"'
        lines.append(f"{name}{{{inner}}} {value!r}")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


# A collector keeps each series for years. A test has ten: six outcomes, three values, its gate.
MOST_SERIES, _OF_A_TEST, _OF_THE_RUN, _MOST_TESTS = 5_000, 10, 20, 400


def render_prometheus(view: ReportView) -> str:
    """Return the run as metrics: the verdict, the coverage, tests' values and single cells, the worst first.

    Single cells are those that the report lists: all of a small run, those that did not pass of a large one.
    Of both, what is beyond `MOST_SERIES` is counted; `shakedown export` has every cell.
    """
    verdict = view.verdict
    tests = view.groups
    if len(tests) > _MOST_TESTS:
        tests = tuple(sorted(tests, key=lambda g: (-SEVERITY[g.outcome], g.standing)))[:_MOST_TESTS]
    shown = view.cells[: MOST_SERIES - _OF_THE_RUN - _OF_A_TEST * len(tests)]
    left_out = {"tests": len(view.groups) - len(tests), "cells": len(view.cells) - len(shown)}
    run = {"run": verdict.run, "system": view.plan.system, "simulated": "1" * view.plan.simulated}
    groups = [
        (
            run
            | {
                "stage": g.item.stage.value,
                "test": g.item.test,
                "metric": g.item.metric,
                "rail": g.rails,
                "params": g.params,
                "unit": text.unit(g.item.unit),
                "reference": g.against.id,
            },
            g,
        )
        for g in tests
    ]
    cells = [
        (
            run
            | {
                "stage": c.item.stage.value,
                "test": c.item.test,
                "metric": c.item.metric,
                "where": c.where,
                "unit": text.unit(c.item.unit),
                "outcome": c.found.outcome.value,
            },
            c.found.value,
        )
        for c in shown
    ]
    try:
        created = [(run, datetime.fromisoformat(view.plan.created).timestamp())]
    except ValueError:
        created = []
    return "".join(
        (
            family(
                "shakedown_verdict",
                "1 for the verdict on the run, 0 for the others.",
                ((run | {"outcome": o.value}, int(o is verdict.outcome)) for o in Outcome),
            ),
            family(
                "shakedown_cells",
                "Required cells by outcome.",
                ((run | {"outcome": o.value}, n) for o, n in view.outcomes.items()),
            ),
            family("shakedown_cells_planned", "Required cells planned.", [(run, verdict.coverage.planned)]),
            family(
                "shakedown_cells_measured", "Required cells measured.", [(run, verdict.coverage.measured)]
            ),
            family("shakedown_plan_created_seconds", "When the run was planned, Unix time.", created),
            family(
                "shakedown_test_cells",
                "Cells of a test by outcome.",
                (
                    (labels | {"outcome": o.value}, n)
                    for labels, g in groups
                    for o, n in g.found.outcomes.items()
                ),
            ),
            family(
                "shakedown_test_value",
                "Worst, median and best value of a test, in its unit.",
                (
                    (labels | {"stat": stat}, value)
                    for labels, g in groups
                    for stat, value in (
                        ("worst", g.found.worst),
                        ("median", g.found.median),
                        ("best", g.found.best),
                    )
                    if value is not None
                ),
            ),
            family(
                "shakedown_test_gate",
                "The worst value of a test that still passes, in its unit.",
                ((labels, g.against.gate) for labels, g in groups),
            ),
            family(
                "shakedown_cell_value",
                "Value of a cell that the report lists, in its unit.",
                ((labels, value) for labels, value in cells if value is not None),
            ),
            family(
                "shakedown_left_out",
                "Tests and listed cells that have no series here; shakedown export has them.",
                ((run | {"what": what}, n) for what, n in left_out.items()),
            ),
        )
    )


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
_AT_A_TIME = 50_000  # rows: a large run has a million, of 2 kB each until they are written


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


def as_csv(found: Iterator[Row]) -> Iterator[bytes]:
    """Yield the rows as CSV with a head of names, some thousands at a time."""
    head: Iterator[Iterable[str | float]] = iter([COLUMNS])
    lines = chain(head, ([_harmless(row[name]) for name in COLUMNS] for row in found))
    while some := list(islice(lines, _AT_A_TIME)):
        text = io.StringIO(newline="")
        csv.writer(text).writerows(some)
        yield text.getvalue().encode()


def as_parquet(found: Iterator[Row]) -> Iterator[bytes]:
    """Yield the one content of a Parquet file of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = dict.fromkeys(_NUMBERS, pa.float64()) | dict.fromkeys(_TRUTHS, pa.bool_())
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    written = pa.BufferOutputStream()
    with pq.ParquetWriter(written, schema, compression="zstd") as writer:
        while some := list(islice(found, _AT_A_TIME)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
    yield bytes(written.getvalue())
