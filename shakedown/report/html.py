"""The HTML page, which makes no request and escapes outside text, and the Markdown summary."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shakedown.records.base import Outcome
from shakedown.records.reading import open_plain
from shakedown.report import heatmaps, text
from shakedown.report.sweeps import Chart
from shakedown.report.view import ReportView

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


@functools.cache  # and with it the templates that it has compiled
def environment() -> Environment:
    """Return the templates' environment: autoescape for every file, unknown variables are errors."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "number": text.number,
        "duration": text.duration,
        "percent": text.percent,
        "breakable": _breakable,
    }
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


def render_html(view: ReportView, excerpts: Mapping[str, Excerpt], raw_base: str = "") -> str:
    """Return the page.

    Args:
        view: what to show.
        excerpts: raw output to embed, by path.
        raw_base: path from the page's folder to the run folder, for links to raw outputs.
    """
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
    env = Environment(  # noqa: S701  (Markdown: `finalize` escapes)
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=_markdown_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals |= {"counted": text.counted, "duration": text.duration, "outcomes": tuple(Outcome)}
    return env.get_template("report.md.j2").render(view=view)
