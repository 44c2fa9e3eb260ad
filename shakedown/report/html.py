"""The HTML page, which makes no request and escapes outside text, and the Markdown summary."""

import base64
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shakedown.judge.cells import SEVERITY
from shakedown.judge.verdict import decides
from shakedown.records.base import Outcome, Stage, tally
from shakedown.records.plan import Plan
from shakedown.records.program import plain_environment
from shakedown.records.reading import BadInput, open_plain
from shakedown.records.verdict import Coverage, Verdict
from shakedown.records.writing import write_aside
from shakedown.report import heatmaps, tables, text, workloads
from shakedown.report import tables as evidence
from shakedown.report.findings import StoppedCells, Suspect, find, suspects
from shakedown.report.heatmaps import HeatMap, heat_maps
from shakedown.report.source import ReportSource, StageTimeRow, Start, interval, stage_times
from shakedown.report.sweeps import Chart, loss_charts, size_sweeps
from shakedown.report.workloads import InterconnectView, TrainingView


@dataclass(frozen=True)
class StageRow:
    """One rung of the ladder."""

    stage: Stage
    outcome: Outcome | None  # None: nothing planned
    coverage: Coverage
    outcomes: dict[Outcome, int]


@dataclass(frozen=True)
class Timing:
    """What the measuring cost. Times in seconds; `busy_s` is the union of all measurements' intervals."""

    started: str
    ended: str
    wall_s: float
    busy_s: float

    @property
    def overhead_s(self) -> float:
        """Wall time in which nothing was measured."""
        return max(0.0, self.wall_s - self.busy_s)


@dataclass(frozen=True)
class Checksum:
    """What the signature block prints: `sha256sum FILES | sha256sum`."""

    sha256: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class ReportView:
    """What every renderer draws."""

    plan: Plan
    verdict: Verdict
    coverage_percent: str
    outcomes: dict[Outcome, int]
    stages: tuple[StageRow, ...]
    times: tuple[StageTimeRow, ...]
    can_tell: tuple[str, ...]  # the odds of its gates, and what the NICs' counters show
    said_by_others: tuple[str, ...]  # into tools' outputs, harmless
    transients: tuple[str, ...]  # what passed only when it was measured again
    findings: tuple[StoppedCells, ...]
    findings_left_out: int
    suspects: tuple[Suspect, ...]
    groups: tuple[tables.GroupRow, ...]
    families: tuple[tables.FamilyRow, ...]
    cells: tuple[tables.CellRow, ...]
    cells_left_out: int
    every_cell: bool
    sweeps: tuple[Chart, ...]
    sweeps_left_out: int
    losses: tuple[Chart, ...]
    training: TrainingView | None
    interconnect: InterconnectView | None
    maps: tuple[HeatMap, ...]
    maps_left_out: int
    counters: tuple[evidence.CounterRow, ...]
    counters_left_out: int
    counters_still: int
    references: tuple[evidence.ReferenceRow, ...]
    inventory: tuple[evidence.InventoryRow, ...]
    inventory_aside: tuple[str, ...]
    inventory_left_out: int
    inventory_taken: str
    timing: Timing | None
    checksum: Checksum | None

    @property
    def raw_paths(self) -> tuple[str, ...]:
        """Paths of the raw outputs that the findings need, worst first, each once."""
        return tuple(dict.fromkeys(f.worst.raw for f in self.findings if f.worst.raw))


def _stages(source: ReportSource) -> tuple[StageRow, ...]:
    """Cells by stage, as the verdict counts them: those that are required, and what else decided."""
    counts: dict[Stage, dict[Outcome, int]] = {}
    for item, group in zip(source.plan.items, source.verdict.groups, strict=True):
        if item.required:
            total = counts.setdefault(group.stage, dict.fromkeys(Outcome, 0))
            for outcome, count in group.outcomes.items():
                total[outcome] += count
    for cell in source.verdict.cells:
        item = source.planned(cell.cell).item
        if not item.required and decides(cell, item):
            counts.setdefault(item.stage, dict.fromkeys(Outcome, 0))[cell.outcome] += 1
    rows = []
    for stage in Stage:
        outcomes = counts.get(stage, dict.fromkeys(Outcome, 0))
        present = [o for o, count in outcomes.items() if count]
        coverage = source.verdict.stages.get(stage, Coverage(planned=0, measured=0))
        rows.append(StageRow(stage, max(present, key=SEVERITY.__getitem__, default=None), coverage, outcomes))
    return tuple(rows)


def timing(starts: Iterable[Start]) -> Timing | None:
    """Return when the run measured and for how much of that time; None where no time was recorded."""
    intervals = sorted(i for _, began, took_s in starts if (i := interval(began, took_s)) is not None)
    if not intervals:
        return None
    busy = timedelta()
    start, end = intervals[0]
    for next_start, next_end in intervals[1:]:
        if next_start > end:
            busy += end - start
            start, end = next_start, next_end
        else:
            end = max(end, next_end)
    busy += end - start
    first, last = intervals[0][0], max(e for _, e in intervals)
    shown = "%Y-%m-%d %H:%M:%S %Z"
    return Timing(
        first.strftime(shown), last.strftime(shown), (last - first).total_seconds(), busy.total_seconds()
    )


def build(source: ReportSource, checksum: Checksum | None = None) -> ReportView:
    """Return the view of a judged run. Pure: the same records give the same view."""
    verdict, plan = source.verdict, source.plan
    groups = tables.group_rows(source)
    found, found_left_out = find(source)
    cells, cells_left_out, every_cell = tables.cell_rows(source)
    charts, charts_left_out = size_sweeps(source)
    maps, maps_left_out = heat_maps(source)
    counters, counters_left_out, still = evidence.counter_rows(source)
    inventory, inventory_aside, inventory_left_out = evidence.inventory_rows(source)
    return ReportView(
        plan=plan,
        verdict=verdict,
        coverage_percent=text.percent(verdict.coverage.measured, verdict.coverage.planned),
        outcomes=tally(verdict.outcomes),
        stages=_stages(source),
        times=stage_times(source),
        can_tell=(*plan.power, *plan.nic_counters),
        said_by_others=tuple(source.said_by_others),
        transients=tuple(cell.reason for cell in verdict.transients),
        findings=found,
        findings_left_out=found_left_out,
        suspects=suspects(source),
        groups=groups,
        families=tables.family_rows(source, groups),
        cells=cells,
        cells_left_out=cells_left_out,
        every_cell=every_cell,
        sweeps=charts,
        sweeps_left_out=charts_left_out,
        losses=loss_charts(source),
        training=workloads.build_training(source),
        interconnect=workloads.build_interconnect(source),
        maps=maps,
        maps_left_out=maps_left_out,
        counters=counters,
        counters_left_out=counters_left_out,
        counters_still=still,
        references=evidence.reference_rows(source),
        inventory=inventory,
        inventory_aside=inventory_aside,
        inventory_left_out=inventory_left_out,
        inventory_taken=source.inventory.taken if source.inventory else "",
        timing=timing(source.seen.starts),
        checksum=checksum,
    )


HEAD_BYTES = 2_000
TAIL_BYTES = 6_000  # tools print their results and their last words at the end
BUDGET_BYTES = 400_000


@dataclass(frozen=True)
class Excerpt:
    """Part of a raw output. `note` says what is missing; `text` is outside text and must be escaped."""

    path: str
    text: str
    note: str
    readable: bool


def excerpt(run: Path, path: str) -> Excerpt:
    """Return the start and the end of a raw output, never more than `HEAD_BYTES + TAIL_BYTES`.

    That the path stays inside the run folder was checked when the line that names it was read (`runs.Run`).
    """
    if not os.path.lexists(run / path):
        return Excerpt(path, "", "This file is not in the run folder.", readable=False)
    with open_plain(run / path) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(HEAD_BYTES + TAIL_BYTES)
        if size <= len(head):
            return Excerpt(path, head.decode(errors="replace"), "", readable=True)
        stream.seek(size - TAIL_BYTES)
        tail = stream.read(TAIL_BYTES)
    # Whole lines only: half a number at the cut would be another number.
    start = head[:HEAD_BYTES].rpartition(b"\n")[0] or head[:HEAD_BYTES]
    end = tail.partition(b"\n")[2] or tail
    left_out = size - len(start) - len(end)
    cut = f"\n\n[… {left_out:,} bytes left out …]\n\n"
    joined = start.decode(errors="replace") + cut + end.decode(errors="replace")
    return Excerpt(path, joined, f"{left_out:,} of {size:,} bytes are left out here.", readable=True)


def excerpts(run: Path, paths: Iterable[str], budget: int = BUDGET_BYTES) -> dict[str, Excerpt]:
    """Return excerpts by path, in order, until the budget is spent; later paths are linked but not shown."""
    found: dict[str, Excerpt] = {}
    for path in paths:
        if budget <= 0:
            found[path] = Excerpt(path, "", "Not embedded, to keep this page small.", readable=True)
            continue
        found[path] = excerpt(run, path)
        budget -= len(found[path].text)
    return found


# `reports/templates` of a checkout; a link here, real files in a wheel. See docs/decisions/charts.md.
TEMPLATES = Path(__file__).parent / "templates"
# What a browser shows as text, or hands to its user: the endings of what tools and jobs write.
_LINKED = frozenset({"txt", "log", "err", "out", "sh", "csv", "json", "jsonl"})


def _shown(value: object) -> object:
    # Jinja calls this on the result of every expression, before escaping: no name can skip it.
    return text.inert(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(name: str) -> Markup:
    """Escape a name and let it break after its dots and underscores, so that no column needs its length."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", text.inert(name)))


_FILTERS = {
    "number": text.number,
    "whole": text.whole,
    "unit": text.unit,
    "duration": text.duration,
    "percent": text.percent,
}


@functools.cache  # and with it the templates that it has compiled
def environment() -> Environment:
    """Return the templates' environment: autoescape for every file, unknown variables are errors."""
    env = _environment(_shown, autoescape=True)
    env.filters["breakable"] = _breakable
    return env


def _environment(finalize: Callable[[object], object], *, autoescape: bool) -> Environment:
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,  # noqa: S701  (not of Markdown: there `finalize` escapes)
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= _FILTERS
    env.globals |= {"counted": text.counted, "duration": text.duration, "outcomes": tuple(Outcome)}
    return env


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Inline styles stay allowed because Matplotlib writes style attributes, which no hash covers; with
    # default-src 'none' a style can fetch nothing. The script is bound by its hash.
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _draw(chart: Chart) -> Markup:
    # Matplotlib takes half a second to import, and many runs have no curve.
    from shakedown.report import charts

    return charts.draw(chart)


def render_html(
    view: ReportView,  # what to show
    excerpts: Mapping[str, Excerpt],  # raw output to embed, by path
    raw_base: str = "",  # path from the page's folder to the run folder, for links to raw outputs
) -> str:
    """Return the page."""
    env = environment()
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")

    def raw_link(path: str) -> str:
        # "./" in front: no path can begin a scheme of its own.
        # A browser runs what is in a page or a drawing of someone else's as if it were this page's.
        if path.rpartition(".")[2].lower() not in _LINKED:
            return ""
        return "./" + quote(f"{raw_base}/{path}" if raw_base else path)

    return env.get_template("report.html.j2").render(
        view=view,
        excerpts=excerpts,
        raw_link=raw_link,
        chart=_draw,
        heat=heatmaps.lay_out,
        legend=heatmaps.legend(),
        style=Markup(style),  # noqa: S704  (our own file)
        script=Markup(script),  # noqa: S704  (our own file)
        policy=_policy(script),
    )


# All that CommonMark or GitHub reads as markup, mentions and links included.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@$&:])")


def escape(value: str) -> str:
    """Return outside text as one line that Markdown shows literally."""
    line = " ".join(text.inert(value).split())
    return _SPECIAL.sub(r"\\\1", line)


def _markdown_shown(value: object) -> object:
    return escape(value) if isinstance(value, str) else value


def render_markdown(view: ReportView) -> str:
    """Return the summary. Every expression of the template is escaped by `finalize`."""
    return _environment(_markdown_shown, autoescape=False).get_template("report.md.j2").render(view=view)


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
_PRINTING_S = 120


def print_pdf(page: Path, to: Path) -> None:
    """Print a page as PDF; nothing derives a print again, so it lies in no sealed folder.

    Raises BadInput: there is no browser that prints, or it fails.
    """
    fix = f"open {page} in any browser and print it"
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise BadInput("no Chromium, Chrome or Edge is here to print the page", fix=fix)
    with tempfile.TemporaryDirectory(prefix="shakedown-print-") as own:
        made = Path(own) / "page.pdf"
        words = ["--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={own}/profile"]
        words += ["--no-sandbox"] if os.geteuid() == 0 else []  # it has none for root; the page has no script
        words += ["--no-pdf-header-footer", f"--print-to-pdf={made}", page.absolute().as_uri()]
        said = "it does not end"
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [browser, *words],
                capture_output=True,
                timeout=_PRINTING_S,
                check=False,
                env={**plain_environment(os.environ), "HOME": own},
            )
            said = done.stderr.decode(errors="replace").strip()[-200:]
        if not made.is_file():
            raise BadInput(f"{browser} printed nothing: {said}", fix=fix, file=to)
        write_aside(to, made.read_bytes())
