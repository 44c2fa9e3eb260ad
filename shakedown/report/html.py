"""The HTML page: one file that makes no request, runs one script of its own and escapes everything else."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shakedown.records.base import Outcome
from shakedown.report import heatmap, text
from shakedown.report.raw import Excerpt
from shakedown.report.sweeps import Chart
from shakedown.report.view import ReportView

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


def render(view: ReportView, excerpts: Mapping[str, Excerpt], raw_base: str = "") -> str:
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
        heat=heatmap.lay_out,
        legend=heatmap.legend(),
        style=Markup(style),  # noqa: S704  (our own file)
        script=Markup(script),  # noqa: S704  (our own file)
        policy=_policy(script),
    )
