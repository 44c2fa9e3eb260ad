"""A Markdown summary, for a merge request, a ticket or a job summary."""

from __future__ import annotations

import re

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from shakedown.records.base import Outcome
from shakedown.report import text
from shakedown.report.html import TEMPLATES
from shakedown.report.view import ReportView

# All that CommonMark or GitHub reads as markup, mentions and links included.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@$&:])")


def escape(value: str) -> str:
    """Return outside text as one line that Markdown shows literally."""
    line = " ".join(text.inert(value).split())
    return _SPECIAL.sub(r"\\\1", line)


def _shown(value: object) -> object:
    return escape(value) if isinstance(value, str) else value


def render(view: ReportView) -> str:
    """Return the summary. Every expression of the template is escaped by `finalize`."""
    env = Environment(  # noqa: S701  (Markdown: `finalize` escapes)
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals |= {"counted": text.counted, "duration": text.duration, "outcomes": tuple(Outcome)}
    return env.get_template("report.md.j2").render(view=view)
