"""Prometheus text format, for the node exporter's textfile collector.

No time stamps (the collector refuses them); the run is a label. Every label is escaped as the
exposition format wants it: backslash, double quote and line feed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from shakedown.records.base import Outcome
from shakedown.report import text
from shakedown.report.view import ReportView

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


def render(view: ReportView) -> str:
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
