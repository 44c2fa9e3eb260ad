"""JUnit XML for continuous integration: a test case per cell, or per test where there are too many cells.

FAIL is a failure, INCONCLUSIVE an error, NOT-RUN and WAIVED are skipped. Because most tools count a skipped
case as harmless, the first case is the run's own verdict, which is an error unless the run passed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from shakedown.records.base import Outcome
from shakedown.report import text
from shakedown.report.tables import CellRow, GroupRow
from shakedown.report.view import ReportView

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


def render(view: ReportView) -> str:
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
