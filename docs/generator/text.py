"""Markdown that is safe in a table, and the line that says where a page comes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def made(source: str) -> str:
    """Return the comment on top of a generated page."""
    return f"<!-- Written by docs/generate.py from {source}. Change that, then run `make docs`. -->"


def cell(text: str) -> str:
    """Return text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Return text as code, or nothing for nothing."""
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Return text with a capital letter and a full stop."""
    text = text.strip()
    if not text:
        return ""
    # `srun: ...` and `inventory.json of ...` begin with a name, which keeps its spelling.
    first = text[0].upper() + text[1:] if text.split()[0].rstrip(",;").isalpha() else text
    return first + ("" if text[-1] in ".?!" else ".")
