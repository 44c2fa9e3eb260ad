"""Jinja2 filter for the one table of what would change on all hosts, and whose it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = Mapping[str, str]
_HEADINGS = ("hosts", "what", "from", "to", "whose")
_LONGEST = 60  # characters of a cell; a firmware's or a tool's own words may be longer
_CONTROL = re.compile(r"[^ -~]")


def change_table(rows_of: Mapping[str, Iterable[Row]]) -> list[str]:
    """The table as lines: hosts of which the same is said share a line.

    Args:
        rows_of: by host in the inventory's order: what, from, to, whose.
    """
    hosts_of: dict[tuple[str, ...], list[str]] = {}
    for host, rows in rows_of.items():
        for row in rows:
            said = tuple(_CONTROL.sub("?", str(row[key]))[:_LONGEST] for key in _HEADINGS[1:])
            hosts_of.setdefault(said, []).append(host)
    if not hosts_of:
        return ["nothing: every setting is as wanted"]
    table = [_HEADINGS, *((_short(hosts), *said) for said, hosts in hosts_of.items())]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def _short(hosts: list[str]) -> str:
    """Hosts in short: up to three by name, more as the first, the last and their number."""
    return ", ".join(hosts) if len(hosts) <= 3 else f"{hosts[0]} to {hosts[-1]} ({len(hosts)})"


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filter by name."""
        return {"host_settings_change_table": change_table}
