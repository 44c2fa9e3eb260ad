"""What `verify --order` finds: a file of the bundle, and why it is not what was ordered."""

from __future__ import annotations

from typing import NamedTuple

from shakedown.records.wording import printable


class Finding(NamedTuple):
    """One thing that differs from the order."""

    file: str
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.file}: {self.reason}")[:500]
