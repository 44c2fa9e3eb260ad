"""The page of cases that every switch system has to stand: which test holds each, or why there is none."""

from __future__ import annotations

from pathlib import Path

import yaml
from generator.text import made, table

PAGE = "docs/reference/switch-cases.md"
FIRST_TIME = "docs/reference/switch-first-time.md"
SOURCE = Path(__file__).with_name("switch_cases.yml")
STEPS = ("before", "in trial", "between check and save", "during rescue")
# A Linux leaf is no vendor's: a lab of virtual machines runs the role on it.
SYSTEMS = ("sonic", "enterprise_sonic", "cumulus", "eos", "nxos", "os9", "os10")


def cases() -> list[dict[str, str | dict[str, str]]]:
    """Return the list as it stands in its file."""
    found: list[dict[str, str | dict[str, str]]] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return found


def matrix() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Return what disturbs a change, by step: `held` (test to systems) and `none` (reason to systems)."""
    found: dict[str, dict[str, dict[str, dict[str, str]]]] = yaml.safe_load(
        SOURCE.with_name("switch_matrix.yml").read_text(encoding="utf-8")
    )
    return found


def of_system(cell: dict[str, dict[str, str]], kind: str, system: str) -> list[str]:
    """Return the tests, or the reasons, that a cell of the matrix gives for a system."""
    return [what for what, systems in cell.get(kind, {}).items() if system in systems.split()]


def _disturbed(marks: dict[str, str]) -> str:
    """Return the matrix as a table with its counts; new tests get marks."""
    reasons: dict[str, str] = {}
    rows, counts = [], {"held by a test": 0, "cannot be had": 0, "not tested": 0}
    for what, steps in matrix().items():
        for step in STEPS:
            row = [what, step]
            for system in SYSTEMS:
                held, none = (of_system(steps[step], kind, system) for kind in ("held", "none"))
                counts["held by a test" if held else "cannot be had" if none else "not tested"] += 1
                mark = [marks.setdefault(one, f"t{len(marks) + 1}") for one in held]
                mark += [reasons.setdefault(one, f"n{len(reasons) + 1}") for one in none]
                row.append(", ".join(mark) or "**not tested**")
            rows.append(row)
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    return "\n".join(
        (
            f"Of {sum(counts.values())} cells: {said}. `t`: the test; `n`: why it cannot be had.\n",
            table(("disturbed by", "step", *SYSTEMS), rows),
            table(("mark", "why it cannot be had"), [(mark, why) for why, mark in reasons.items()]),
        )
    )


def _first_time() -> str:
    """Return the page for a site with a real switch."""
    asked = yaml.safe_load(SOURCE.with_name("first_time.yml").read_text(encoding="utf-8"))
    parts = [
        made("docs/generator/first_time.yml"),
        "# First time on a real one\n",
        "The role was never run on a vendor's switch ([evidence](../evidence/switches.md)).",
        "What follows shows whether it reads yours rightly.",
        "None of it changes what a restart brings; what it opens it closes.\n",
        "Send us the release, each output without its secrets, and what `--check` says of the same switch.",
        "Name each line in which its table and your own reading differ.\n",
    ]
    for system, commands in asked.items():
        parts += [
            f"## {system}\n",
            table(("ask", "see"), [(f"`{one['ask']}`", one["see"]) for one in commands]),
        ]
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Return the pages."""
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
    disturbed = _disturbed(marks)
    parts = [
        made("docs/generator/switch_cases.yml"),
        "# Cases that every switch system has to stand\n",
        "Scripted devices and recorded outputs, no vendor's switch ([evidence](../evidence/switches.md)).",
        "A cell names the test that holds it. The lab's Linux leaf is not here: real machines run it.\n",
        table(("case", *SYSTEMS), rows),
        "## What disturbs a change\n",
        disturbed,
        "## The tests\n",
        table(("mark", "under `tests/`"), [(mark, f"`{test}`") for test, mark in marks.items()]),
        "## Where there is none\n",
        table(("case", "system", "why"), reasons),
    ]
    return {PAGE: "\n".join(parts), FIRST_TIME: _first_time()}
