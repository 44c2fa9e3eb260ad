"""The page of which releases of each tool were run and read, and of lists of names."""

from __future__ import annotations

from pathlib import Path

import yaml
from generator.text import code, made, table

PAGE = "docs/reference/tools.md"
HEAD = ("tool", "run here", "form read in its sources", "what a release in other words meets")
LISTS = ("names", "where", "read with", "the next one")
_HERE = Path(__file__).parent
_CAPTURES = _HERE.parents[1] / "tests/unit/benchmarks/outputs/captures"


def _captured(names: str) -> list[str]:
    """Return the versions in the names of captured outputs, such as perftest_4.5_rxe_read_bw_client.txt."""
    files = [path.name.split("_") for path in _CAPTURES.iterdir()]
    found = {(tool, rest[0]) for tool, *rest in files if tool in names.split() and rest[0][:1].isdigit()}
    several = len(names.split()) > 1
    return [f"{tool} {version}" if several else version for tool, version in sorted(found)]


def pages() -> dict[str, str]:
    """Return the page."""
    known = yaml.safe_load((_HERE / "tools.yml").read_text(encoding="utf-8"))
    lists, rows = known.pop("lists"), []
    for tool, one in known.items():
        run = [*_captured(one.get("captures", "")), *filter(None, [one.get("run", "")])]
        rows.append((tool, ", ".join(run) or "-", one["read"], one["next"]))
    head = [
        "# Which releases of each tool are known\n",
        "Of 2026; outputs were built where none could be run.\n",
    ]
    names = [
        (name, code(one["where"].replace(":", ".")), one["seen"], one["next"]) for name, one in lists.items()
    ]
    parts = [made("docs/generator/tools.yml and captured outputs"), *head, table(HEAD, rows)]
    return {PAGE: "\n".join([*parts, "## Lists of names\n", table(LISTS, names)])}
