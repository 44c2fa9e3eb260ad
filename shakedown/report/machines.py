"""The report for machines: JUnit XML for continuous integration, Prometheus text for the node exporter."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from shakedown.records.base import Outcome
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
    name = f"{cell.test} {cell.metric} [{cell.where}]"
    properties = _case(suite, name, cell.outcome, cell.rule, cell.reason)
    if cell.sort_value is not None:
        _property(properties, "value", repr(cell.sort_value))
    for key in ("unit", "gate", "reference", "source", "percent_of_reference", "percent_of_ceiling", "raw"):
        _property(properties, key, str(getattr(cell, key) or ""))
    _property(properties, "kind", cell.kind.value)


def _group(suite: ET.Element, group: GroupRow) -> None:
    name = " ".join(p for p in (group.test, group.metric, group.params) if p)
    counts = ", ".join(f"{count:,} {o.value}" for o, count in group.outcomes.items() if count)
    properties = _case(suite, f"{name} [all cells]", group.outcome, "cells", counts)
    for key in ("unit", "worst", "median", "best", "gate", "reference", "source", "percent_of_reference"):
        _property(properties, key, str(getattr(group, key)))
    _property(properties, "planned", str(group.planned))
    _property(properties, "measured", str(group.measured))


def render_junit(view: ReportView) -> str:
    """Return the run as JUnit XML."""
    root = ET.Element("testsuites", name=_clean(f"{view.system} {view.run}"))
    suite = ET.SubElement(root, "testsuite", name="run")
    # Not "skipped" even for a run that was not run: somebody would take it for green.
    open_ = view.outcome in (Outcome.NOT_RUN, Outcome.BASELINE)
    judged = Outcome.INCONCLUSIVE if open_ else view.outcome
    properties = _case(suite, "verdict", judged, view.outcome.value, f"{view.outcome.value}: {view.reason}")
    _property(properties, "coverage", f"{view.coverage.measured}/{view.coverage.planned}")
    _property(properties, "evidence_sha256", view.checksum.sha256 if view.checksum else "")
    for stage in view.stages:
        suite = ET.SubElement(root, "testsuite", name=stage.stage.value)
        if not view.every_cell:
            for group in view.groups:
                if group.stage is stage.stage:
                    _group(suite, group)
        for cell in view.cells:
            if cell.stage is stage.stage:
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


def render_prometheus(view: ReportView) -> str:
    """Return the run as metrics: the verdict, the coverage, each test's values, and single cells.

    Single cells are those that the report lists: all of a small run, those that did not pass of a large one.
    """
    run = {"run": view.run, "system": view.system}
    groups = [
        (
            run
            | {
                "stage": g.stage.value,
                "test": g.test,
                "metric": g.metric,
                "rail": g.rails,
                "params": g.params,
                "unit": g.unit,
                "reference": g.reference_id,
            },
            g,
        )
        for g in view.groups
    ]
    cells = [
        (
            run
            | {
                "stage": c.stage.value,
                "test": c.test,
                "metric": c.metric,
                "where": c.where,
                "unit": c.unit,
                "outcome": c.outcome.value,
            },
            c.sort_value,
        )
        for c in view.cells
    ]
    try:
        created = [(run, datetime.fromisoformat(view.created).timestamp())]
    except ValueError:
        created = []
    return "".join(
        (
            family(
                "shakedown_verdict",
                "1 for the verdict on the run, 0 for the others.",
                ((run | {"outcome": o.value}, int(o is view.outcome)) for o in Outcome),
            ),
            family(
                "shakedown_cells",
                "Required cells by outcome.",
                ((run | {"outcome": o.value}, n) for o, n in view.outcomes.items()),
            ),
            family("shakedown_cells_planned", "Required cells planned.", [(run, view.coverage.planned)]),
            family("shakedown_cells_measured", "Required cells measured.", [(run, view.coverage.measured)]),
            family("shakedown_plan_created_seconds", "When the run was planned, Unix time.", created),
            family(
                "shakedown_test_cells",
                "Cells of a test by outcome.",
                ((labels | {"outcome": o.value}, n) for labels, g in groups for o, n in g.outcomes.items()),
            ),
            family(
                "shakedown_test_value",
                "Worst, median and best value of a test, in its unit.",
                (
                    (labels | {"stat": stat}, value)
                    for labels, g in groups
                    for stat, value in (
                        ("worst", g.worst_value),
                        ("median", g.median_value),
                        ("best", g.best_value),
                    )
                    if value is not None
                ),
            ),
            family(
                "shakedown_test_gate",
                "The worst value of a test that still passes, in its unit.",
                ((labels, g.gate_value) for labels, g in groups),
            ),
            family(
                "shakedown_cell_value",
                "Value of a cell that the report lists, in its unit.",
                ((labels, value) for labels, value in cells if value is not None),
            ),
        )
    )
