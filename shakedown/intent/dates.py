"""Days that no calendar has: YAML's own reader refuses them without a file or a line."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from shakedown.intent.places import group_and_host_files
from shakedown.records.errors import BadInput

# A plain value that YAML 1.1 takes for a date, and that may not be one (31 February).
_DATE = re.compile(r"(?<![\w\"'-])(\d{4})-(\d\d?)-(\d\d?)(?![\w\"'-])")


def refuse_impossible_date(inventory: Path) -> None:
    """Refuse the first day of an inventory's files that there is not; nothing if there is none.

    Raises:
        BadInput: naming file and line.
    """
    for file in group_and_host_files(inventory):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for number, line in enumerate(lines, start=1):
            for match in _DATE.finditer(line.partition("#")[0]):
                try:
                    date(*map(int, match.groups()))
                except ValueError as error:
                    raise BadInput(
                        f"{match[0]} is no day: {error}",
                        fix="write one that there is",
                        file=file,
                        line=number,
                    ) from None
