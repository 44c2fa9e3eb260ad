"""The mark of what was guessed in a site's folder: discover writes it, a plan counts what is left of it."""

from __future__ import annotations

from pathlib import Path

# A comment; the reason follows after a colon.
MARK = "# check"


def guesses(inventory: Path) -> list[str]:
    """Return the lines of a site's folder that discover marked and nobody has read: FILE:LINE."""
    if not inventory.is_dir():
        return []
    found = []
    for file in sorted(inventory.rglob("*.yml")):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        found += [f"{file}:{number}" for number, line in enumerate(lines, start=1) if f"{MARK}: " in line]
    return found
