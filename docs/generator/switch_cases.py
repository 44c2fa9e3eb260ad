"""The page of cases that every switch system has to stand: which test holds each, or why there is none."""

from __future__ import annotations

from pathlib import Path

import yaml
from generator.text import made, table

PAGE = "docs/reference/switch-cases.md"
SOURCE = Path(__file__).with_name("switch_cases.yml")
# A Linux leaf is no vendor's: a lab of virtual machines runs the role on it.
SYSTEMS = ("sonic", "enterprise_sonic", "cumulus", "eos", "nxos", "os9", "os10")


def cases() -> list[dict[str, str | dict[str, str]]]:
    """Return the list as it stands in its file."""
    found: list[dict[str, str | dict[str, str]]] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return found


def pages() -> dict[str, str]:
    """Return the page."""
    # One mark for each test, so that the table fits on a page.
    marks: dict[str, str] = {}
    rows, reasons = [], []
    for entry in cases():
        row = [str(entry["case"])]
        for system in SYSTEMS:
            held = entry[system]
            if isinstance(held, str):
                row.append(marks.setdefault(held, f"t{len(marks) + 1}"))
            else:
                row.append("none")
                reasons.append((str(entry["case"]), system, held["none"]))
        rows.append(row)
    parts = [
        made("docs/generator/switch_cases.yml"),
        "# Cases that every switch system has to stand\n",
        "Scripted devices and recorded outputs, no vendor's switch ([evidence](../evidence/switches.md)).",
        "A cell names the test that holds it. The lab's Linux leaf is not here: real machines run it.\n",
        table(("case", *SYSTEMS), rows),
        "## The tests\n",
        table(("mark", "under `tests/`"), [(mark, f"`{test}`") for test, mark in marks.items()]),
        "## Where there is none\n",
        table(("case", "system", "why"), reasons),
    ]
    return {PAGE: "\n".join(parts)}
