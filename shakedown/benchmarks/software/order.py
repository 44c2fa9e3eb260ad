"""What the job that looks at a site's software is ordered to do."""

from __future__ import annotations

from shakedown.records.base import Name, Record


class SoftwareOrder(Record):
    """Which software, on which nodes."""

    names: tuple[Name, ...]
    nodes: tuple[Name, ...]
