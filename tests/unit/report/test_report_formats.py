"""The report for machines and for tickets: JUnit XML, Prometheus text, Markdown."""

import re
import xml.etree.ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families
from synthetic_run import Faults, judged, make_plan
from test_report_html import HOSTILE, hostile_run

from shakedown.records.base import Outcome
from shakedown.report import html, machines, tables

CASES = [
    (Faults(), Outcome.PASS),
    (Faults(slow_rail=("n3", "rail1")), Outcome.FAIL),
    (Faults(killed_job=True), Outcome.INCONCLUSIVE),
    (Faults(nothing=True), Outcome.NOT_RUN),
]


def parse_xml(rendered: str) -> ET.Element:
    """Parse what we wrote ourselves a moment ago."""
    return ET.fromstring(rendered)  # noqa: S314


@pytest.mark.parametrize(("faults", "outcome"), CASES)
def test_junit_is_green_only_for_a_pass(faults: Faults, outcome: Outcome) -> None:
    """Catches a run that was not run and is all "skipped", which continuous integration shows as green."""
    root = parse_xml(machines.render_junit(html.build(judged(make_plan(4, 2), faults))))
    red = sum(int(suite.get(key, "0")) for suite in root for key in ("failures", "errors"))
    assert (red == 0) is (outcome is Outcome.PASS)


def test_junit_counts_agree_with_the_verdict() -> None:
    """Catches cells lost or counted twice, and counts that do not match the cases."""
    source = judged(
        make_plan(4, 2), Faults(slow_rail=("n3", "rail1"), missing_pair_results=2, busy_node="n2")
    )
    root = parse_xml(machines.render_junit(html.build(source)))
    cells = [suite for suite in root if suite.get("name") != "run"]
    outcomes = source.verdict.outcomes
    for tag, key, outcome in (
        ("failure", "failures", Outcome.FAIL),
        ("error", "errors", Outcome.INCONCLUSIVE),
        ("skipped", "skipped", Outcome.NOT_RUN),
    ):
        found = sum(len(suite.findall(f"testcase/{tag}")) for suite in cells)
        assert found == sum(int(suite.get(key, "0")) for suite in cells) == outcomes[outcome] > 0
    assert sum(int(suite.get("tests", "0")) for suite in cells) == source.verdict.coverage.planned
    case = next(
        c for c in root.iter("testcase") if c.find("failure") is not None and "rail1" in c.get("name", "")
    )
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert float(properties["value"] or "") == pytest.approx(196, rel=0.01)
    assert properties["unit"] == "Gb/s"
    assert properties["source"]


def test_junit_of_a_large_run_sums_up_what_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a file of 164,000 cases, or failures that are lost in the sum."""
    monkeypatch.setattr(tables, "ALL_CELLS", 10)
    source = judged(make_plan(4, 2), Faults(slow_rail=("n3", "rail1")))
    root = parse_xml(machines.render_junit(html.build(source)))
    names = [c.get("name", "") for c in root.iter("testcase")]
    assert len(names) == 1 + len(source.plan.items) + len(source.verdict.cells)
    assert len(names) == len(set(names))


def test_junit_survives_hostile_text() -> None:
    """Catches characters that XML cannot hold, and markup out of names."""
    rendered = machines.render_junit(html.build(hostile_run()))
    root = parse_xml(rendered)
    assert "\x1b" not in rendered
    assert not list(root.iter("script"))


@pytest.mark.parametrize(("faults", "outcome"), CASES)
def test_metrics_are_accepted_by_the_prometheus_client(faults: Faults, outcome: Outcome) -> None:
    """Catches a file that the collector refuses, a verdict that is not one of four, a time stamp."""
    rendered = machines.render_prometheus(html.build(judged(make_plan(4, 2), faults)))
    families = {f.name: f for f in text_string_to_metric_families(rendered)}
    verdicts = {s.labels["outcome"]: s.value for s in families["shakedown_verdict"].samples}
    assert verdicts == {o.value: float(o is outcome) for o in Outcome}
    names = [f.name for f in text_string_to_metric_families(rendered)]
    assert len(names) == len(set(names))
    for family in families.values():
        assert family.type == "gauge"
        assert family.documentation
        keys = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
        assert len(keys) == len(set(keys)), family.name
        assert all(s.timestamp is None for s in family.samples)


def test_metrics_give_values_and_gates() -> None:
    """Catches a value under the wrong test or with the wrong unit."""
    source = judged(make_plan(4, 2), Faults(slow_rail=("n3", "rail1")))
    rendered = machines.render_prometheus(html.build(source))
    families = {f.name: f for f in text_string_to_metric_families(rendered)}

    def of(family: str, **labels: str) -> list[float]:
        samples = families[family].samples
        return [s.value for s in samples if all(s.labels.get(k) == v for k, v in labels.items())]

    assert of("shakedown_test_value", metric="bandwidth", stat="worst", unit="Gb/s")[0] < 200
    assert of("shakedown_test_gate", metric="bandwidth") == [pytest.approx(383.07, abs=0.01)]
    assert of("shakedown_cells", outcome="FAIL") == [6]
    assert of("shakedown_cells_planned") == [source.verdict.coverage.planned]
    assert len(families["shakedown_cell_value"].samples) == source.verdict.coverage.measured


@pytest.mark.parametrize(("nodes", "rails", "metrics"), [(12, 2, 500), (40, 8, 8)])
def test_metrics_of_a_large_run_have_few_series_and_the_worst_of_it(
    nodes: int, rails: int, metrics: int
) -> None:
    """Catches a large run's metrics that a collector drowns in, and the failed cell left out of them."""
    source = judged(make_plan(nodes, rails, metrics=metrics), Faults(slow_rail=("n03".zfill(2), "rail1")))
    view = html.build(source)
    rendered = machines.render_prometheus(view)
    series = [line for line in rendered.splitlines() if not line.startswith("#")]
    assert len(series) <= machines.MOST_SERIES == 5_000
    left = {
        s.labels["what"]: s.value
        for f in text_string_to_metric_families(rendered)
        for s in f.samples
        if "what" in s.labels
    }
    shown = sum(line.startswith("shakedown_cell_value") for line in series)
    assert left["cells"] == len(view.cells) - shown
    tested = {(g.item.test, g.item.metric, g.params) for g in view.groups}
    assert left["tests"] == max(len(view.groups) - 400, 0) and len(tested) > 30
    for group in view.groups:
        if group.outcome is Outcome.FAIL:
            assert f'test="{group.item.test}",metric="{group.item.metric}"' in rendered


def test_metrics_escape_hostile_labels() -> None:
    """Catches a label that ends early and adds a metric of its own."""
    rendered = machines.render_prometheus(html.build(hostile_run()))
    families = list(text_string_to_metric_families(rendered))
    assert {f.name.split("_")[0] for f in families} == {"shakedown"}
    units = {s.labels["unit"] for f in families if f.name == "shakedown_test_gate" for s in f.samples}
    assert units == {HOSTILE[:32]}
    assert "\x1b" not in rendered


def test_markdown_renders_hostile_text_as_text() -> None:
    """Catches a table broken by a pipe, a link, a picture or HTML out of a name."""
    rendered = html.render_markdown(html.build(hostile_run()))
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(rendered)
    inline = [t for token in tokens for t in (token.children or [])]
    kinds = {t.type for t in [*tokens, *inline]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image"}
    assert "table_open" in kinds
    text = "".join(t.content for t in inline if t.type in {"text", "text_special"})
    assert "<script>alert(1)</script>" in text
    for row in re.findall(r"^\|.*$", rendered, re.MULTILINE):
        assert row.endswith("|")


def test_markdown_says_verdict_reason_and_findings_in_that_order() -> None:
    """Catches a summary that buries the verdict."""
    source = judged(make_plan(4, 2), Faults(slow_rail=("n3", "rail1")))
    lines = html.render_markdown(html.build(source)).splitlines()
    assert lines[0].startswith("# FAIL: ")
    assert lines[2].replace("\\", "") == source.verdict.reason
    tables_at = [i for i, line in enumerate(lines) if line.startswith("## ")]
    assert "did not pass" in lines[tables_at[0]]
    widths = {
        line.count("|") - line.count("\\|") for line in lines[tables_at[0] : tables_at[1]] if line[:1] == "|"
    }
    assert widths == {9}
