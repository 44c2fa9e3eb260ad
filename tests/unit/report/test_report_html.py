"""The page: nothing from a cluster becomes markup, nothing is fetched, and it says what it must."""

import base64
import hashlib
import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic_run import CREATED, REFERENCES, Faults, judged, make_plan

from shakedown.benchmarks.lora.metrics import Traffic, Training, TrainingSeries
from shakedown.records.base import Outcome
from shakedown.records.plan import Plan, Waiver
from shakedown.records.results import Component, Measurement, RunProblem, Snapshot
from shakedown.report import charts, html, text
from shakedown.report import html as raw
from shakedown.report.source import ReportSource
from shakedown.report.sweeps import Chart, Curve
from tests.kit.cases import cases

HOSTILE = (
    "</title></script><script>alert(1)</script>\"'><img src=x onerror=alert(1)> $x^$ {{7*7}} "
    "\u202e\u2066evil\x1b[31m 🙂"
)
# What a parameter may hold of it: the records refuse the rest.
HOSTILE_PARAM = re.sub(r"[,=\x00-\x1f\x7f]", "", HOSTILE)[:200]
VOID = {"meta", "br", "input", "image", "img", "link", "hr", "wbr"}


class Page(HTMLParser):
    """Elements, attributes and text of a page, and whether every element is closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.broken: list[str] = []
        self.seen: list[str] = []
        self.feed(source)
        self.close()

    # What html.parser calls for every part of the page.
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:  # noqa: D102
        if not self.open or self.open.pop() != tag:
            self.broken.append(tag)

    def handle_data(self, data: str) -> None:  # noqa: D102
        if self.open and self.open[-1] not in {"style", "script"}:
            self.seen.append(data)

    def values(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value for _, attrs in self.tags if (value := attrs.get(name)) is not None]


def page(source: ReportSource, excerpts: dict[str, raw.Excerpt] | None = None) -> tuple[str, Page]:
    """Render a run; return the page and its parts."""
    rendered = html.render_html(html.build(source, html.Checksum("0" * 64, ("plan.json",))), excerpts or {})
    return rendered, Page(rendered)


def hostile_run() -> ReportSource:
    """A run in which everything that may be free text is an attack."""
    plan = make_plan(4, 2, caveats=(HOSTILE,))
    references = {
        key: r.model_copy(
            update={
                "source": HOSTILE,
                "set_by": HOSTILE,
                "note": HOSTILE,
                "ceiling_source": HOSTILE,
                "unit": HOSTILE[:32],
            }
        )
        for key, r in plan.references.items()
    }
    items = tuple(
        i.model_copy(
            update={"unit": HOSTILE[:32], "params": {**i.params, "note": HOSTILE_PARAM}}
            | ({"not_run": HOSTILE} if i.test == "lora" else {})
        )
        for i in plan.items
    )
    plan = Plan.model_validate(
        plan.model_copy(update={"references": references, "items": items, "created": HOSTILE}).model_dump(
            by_alias=True
        )
    )
    good = judged(
        plan, Faults(slow_rail=("n3", "rail1"), busy_node="n2", counter=("n1", "out_of_sequence", 3))
    )
    measurements: list[Measurement] = [
        m.model_copy(
            update={
                "raw": f"raw/{HOSTILE}",
                "job": HOSTILE,
                "state": HOSTILE if m.test == "ib_write_lat" else m.state,
                "started": HOSTILE,
                "problem": m.problem and RunProblem(kind="busy", message=HOSTILE),
            }
        )
        for m in good.measurements
    ]
    counters = [c.model_copy(update={"peer": HOSTILE}) for c in good.counters]
    inventory = Snapshot(
        schema=1,
        run=plan.run,
        taken=HOSTILE,
        components=(Component(host="n1", kind="nic", name="mlx5_0", attributes={HOSTILE: HOSTILE}),),
    )
    from shakedown.judge.verdict import judge_cells, summarise

    cells = judge_cells(plan, measurements, counters)
    return ReportSource(
        plan,
        measurements,
        counters,
        inventory,
        cells,
        summarise(plan, cells, (HOSTILE,)),
        (
            Training(
                TrainingSeries(HOSTILE, (1.0, 2.0), (3.0, 2.0)),
                (7.0, 8.0),
                (HOSTILE, "rank 1"),
                {(0, 1): 1.0, (1, 1): 2.5, (0, 2): 1.0, (1, 2): 1.3},
                (Traffic(HOSTILE, 1e9, None), Traffic("n1, fabric NICs", 1e9, 9e8)),
            ),
        ),
    )


def test_nothing_from_a_cluster_becomes_markup() -> None:
    """Catches an unescaped name, unit, reason, path or raw output anywhere, figures included."""
    source = hostile_run()
    path = f"raw/{HOSTILE}"
    rendered, parsed = page(source, {path: raw.Excerpt(path, HOSTILE, HOSTILE, readable=True)})
    assert [tag for tag, _ in parsed.tags].count("script") == 1
    assert not [
        tag for tag, _ in parsed.tags if tag in {"img", "iframe", "object", "embed", "link", "base", "form"}
    ]
    assert not [name for _, attrs in parsed.tags for name in attrs if name.startswith("on")]
    assert parsed.broken == []
    assert parsed.open == []
    assert "{{7*7}}" in rendered
    seen = "".join(parsed.seen)
    assert seen.count("<script>alert(1)</script>") > 20  # it is shown, as text
    every = rendered + "".join(v for _, attrs in parsed.tags for v in attrs.values() if v)
    for control in ("\u202e", "\u2066", "\x1b"):
        assert control not in every
    assert "\\u202e" in seen
    assert "🙂" in seen


def test_links_lead_into_the_page_or_the_run_folder_only() -> None:
    """Catches javascript: and absolute addresses made out of a raw path."""
    _, parsed = page(hostile_run())
    assert parsed.values("href")
    for href in parsed.values("href"):
        assert href.startswith(("#", "./", "data:image/png;base64,")), href
    assert not parsed.values("src")


def test_nothing_is_fetched_and_only_our_script_runs() -> None:
    """Catches a font, style sheet or picture from elsewhere, and a policy that does not match the script."""
    rendered, parsed = page(judged(make_plan(4, 2)))
    style = re.search(r"<style>(.*?)</style>", rendered, re.DOTALL)
    script = re.search(r"<script>(.*?)</script>", rendered, re.DOTALL)
    assert style is not None and script is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    policy = next(a["content"] for t, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    # Addresses may stand in namespaces only.
    assert set(re.findall(r'"https?://[^"]*"', rendered)) <= {'"http://www.w3.org/2000/svg"'}


def test_ids_are_unique_and_every_reference_to_one_resolves() -> None:
    """Catches figures that share ids: a clip path of one would cut another."""
    rendered, parsed = page(judged(make_plan(6, 2), Faults(slow_rail=("n3", "rail1"), slow_collective=True)))
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    used = {h[1:] for h in parsed.values("href") if h.startswith("#")} | set(
        re.findall(r"url\(#([^)]+)\)", rendered)
    )
    used |= {i for name in ("aria-labelledby",) for v in parsed.values(name) for i in v.split()}
    assert used <= set(ids)


def test_tables_have_headers_and_figures_have_names() -> None:
    """Catches a table or picture that a screen reader cannot tell."""
    _, parsed = page(judged(make_plan(4, 2), Faults(slow_rail=("n3", "rail1"))))
    assert all("scope" in attrs for tag, attrs in parsed.tags if tag == "th")
    for tag, attrs in parsed.tags:
        if tag == "svg" and attrs.get("aria-hidden") != "true":
            assert attrs.get("role") == "img"
            assert attrs.get("aria-label") or attrs.get("aria-labelledby")


@cases(
    "faults, outcome, symbol",
    (Faults(), Outcome.PASS, "icon-ok"),
    (Faults(slow_rail=("n3", "rail1")), Outcome.FAIL, "icon-bad"),
    (Faults(killed_job=True), Outcome.INCONCLUSIVE, "icon-open"),
    (Faults(nothing=True), Outcome.NOT_RUN, "icon-none"),
)
def test_the_verdict_is_the_first_heading_with_its_own_shape(faults, outcome, symbol):
    """Catches a verdict told by colour alone, or one that is not the judged one."""
    source = judged(make_plan(4, 2), faults)
    rendered, _ = page(source)
    assert source.verdict.outcome is outcome
    stamp = re.search(
        r'<div class="stamp">.*?href="#([a-z-]+)".*?<h1[^>]*>([A-Z-]+)</h1>', rendered, re.DOTALL
    )
    assert stamp is not None
    assert stamp.groups() == (symbol, outcome.value)
    assert rendered.index("<h1") < rendered.index("<h2")
    assert ("did not pass. A signature here" in rendered) is (outcome is not Outcome.PASS)


def test_reason_coverage_caveats_and_thresholds_are_on_the_page() -> None:
    """Catches a page that a person could not sign: no reason, coverage, source, caveat or checksum."""
    source = judged(make_plan(4, 2, caveats=("Emulated NICs.",)), Faults(missing_pair_results=2))
    _, parsed = page(source)
    seen = " ".join(" ".join(parsed.seen).split())
    planned = source.verdict.coverage.planned
    assert source.verdict.reason in seen
    assert f"{planned - 2} of {planned} planned cells measured" in seen
    assert "Emulated NICs." in seen
    assert "0" * 64 in seen
    for reference in source.plan.references.values():
        assert reference.source in seen
        assert reference.set_by in seen


@pytest.mark.slow
@pytest.mark.usefixtures("figures_drawn_anew")
def test_the_same_run_gives_the_same_bytes() -> None:
    """Catches a clock, a random id or an unordered set in the page."""
    plan, faults = make_plan(4, 2), Faults(slow_rail=("n3", "rail1"))
    assert page(judged(plan, faults))[0] == page(judged(plan, faults))[0]


def test_inert_spells_what_cannot_be_seen() -> None:
    """Catches text that reads otherwise than it is."""
    assert text.inert("a\u202eb\u200bc\x00d") == "a\\u202eb\\u200bc\\u0000d"
    assert text.inert("\x1b[1;31mred\x1b[0m\x1b]8;;http://x\x07link") == "redlink"
    assert text.inert("line\r\nnext\rlast\tend") == "line\nnext\nlast\tend"
    assert text.inert("n17 → leaf3 · 396 GB/s שלום 🙂") == "n17 → leaf3 · 396 GB/s שלום 🙂"


def test_an_excerpt_keeps_head_and_tail_in_whole_lines(tmp_path: Path) -> None:
    """Catches half a number at the cut, and a page blown up by one log."""
    (tmp_path / "raw").mkdir()
    lines = [f"line {i:06d} 123.4567" for i in range(5000)]
    (tmp_path / "raw/log.txt").write_text("\n".join(lines))
    found = raw.excerpt(tmp_path, "raw/log.txt")
    kept = [line for line in found.text.splitlines() if line.startswith("line")]
    assert set(kept) < set(lines)
    assert kept[0] == lines[0]
    assert kept[-1] == lines[-1]
    assert "bytes left out" in found.text
    assert len(found.text) < raw.HEAD_BYTES + raw.TAIL_BYTES + 100
    missing = raw.excerpt(tmp_path, "raw/gone.txt")
    assert not missing.readable
    assert "not in the run folder" in missing.note


def test_the_budget_for_raw_output_is_kept_and_said(tmp_path: Path) -> None:
    """Catches a page of many megabytes out of many failures."""
    (tmp_path / "raw").mkdir()
    for i in range(5):
        (tmp_path / f"raw/{i}.txt").write_text("x" * 1000)
    found = raw.excerpts(tmp_path, [f"raw/{i}.txt" for i in range(5)], budget=2500)
    assert [bool(e.text) for e in found.values()] == [True, True, True, False, False]
    assert all("Not embedded" in e.note for e in list(found.values())[3:])


def test_a_dollar_in_a_unit_is_a_dollar() -> None:
    """Catches a label read as TeX, which would crash the report or rewrite the name."""
    curve = Curve("$n_1$ <b>", "measured", (1.0, 2.0), (3.0, 4.0))
    drawn = charts.draw(Chart("c", "t", "x", "$x^$ <b>", (curve,), sizes=False))
    assert "$x^$ &lt;b&gt;" in drawn
    assert "$n_1$ &lt;b&gt;" in drawn


def test_sentinel_colours_leave_no_trace() -> None:
    """Catches a chart colour that would not follow dark mode and print."""
    rendered, _ = page(judged(make_plan(4, 2), Faults(slow_collective=True)))
    charts = re.findall(r'<svg class="chart".*?</svg>', rendered, re.DOTALL)
    assert len(charts) == 2
    for chart in charts:
        assert not re.findall(r"#[0-9a-f]{6}\b", chart)
        assert "var(--" in chart
    assert REFERENCES
    assert CREATED in rendered


@pytest.mark.parametrize("slow_h2d", [None, "n2"])
def test_waived_failures_stand_on_the_first_screen(slow_h2d):
    """Catches: a PASS that rests on a waiver which only the end of the page tells of, or without a name."""
    waiver = Waiver(
        name="slow-cable",
        cells="fabric/ib_write_bw/bandwidth/*/*/*",
        reason="cable on order",
        owner="A. Person",
        expires=date(2027, 3, 1),
        ticket="OPS-7",
    )
    plan = make_plan(4, 2).model_copy(update={"waivers": (waiver,)})
    source = judged(plan, Faults(slow_rail=("n3", "rail1"), slow_h2d=slow_h2d))
    _, parsed = page(source)
    said = " ".join(" ".join(parsed.seen).split())
    waived = source.verdict.outcomes[Outcome.WAIVED]
    assert waived == 6
    assert 0 < said.index(f"{waived} WAIVED") < 600
    assert 0 < said.index("waived by A. Person until 2027-03-01, OPS-7: cable on order") < 2000
    if source.verdict.outcome is Outcome.PASS:
        words = (
            "with 1 waiver for 6 failed cells (slow-cable of A. Person until 2027-03-01): all 103 required"
        )
        assert 0 < said.index(words) < 400
