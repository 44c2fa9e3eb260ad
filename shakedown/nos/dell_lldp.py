"""LLDP neighbours from `show lldp neighbors detail`, which Dell's OS9 and OS10 print alike.

OS9 puts a heading over the neighbours of each port, which counts them; OS10 has none.
"""

from __future__ import annotations

import re
from pathlib import Path

from shakedown.nos.counters import refuse_error_text
from shakedown.nos.lldp import add_neighbour, remote_ports
from shakedown.records.tool_text import Source

_HEADING = re.compile(r"(?m)^[ \t]*Local Interface \S+ \S+ has (\d{1,4}) neighbors?[ \t\r]*$")
_END = re.compile(r"(?m)^[ \t]*-{60,}[ \t\r]*$")  # under each neighbour
_SILENT = {"not advertised", ""}


def neighbours(text: str, system: str, file: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Return LLDP neighbours, one block each.

    Args:
        text: what the command printed.
        system: `OS9` or `OS10`, for messages.
        file: where it is kept.

    Raises:
        BadInput: an error message, a block that is cut short, or fewer blocks than the headings count.
    """
    refuse_error_text(text, "neighbours", file)
    blocks = re.split(r"(?m)^[ \t]*(?=Remote Chassis ID Subtype:)", text)
    above = blocks[0].strip(" \t\r\n-=")
    if above and not _HEADING.match(above):
        Source(text, file).refuse(f"not {system}'s LLDP: something stands before the first neighbour")
    counted = [int(number) for number in _HEADING.findall(text)]
    if counted and sum(counted) != len(blocks) - 1:
        Source(text, file).refuse(
            f"{system}'s LLDP is cut short: {len(blocks) - 1} neighbours of {sum(counted)}"
        )
    found: dict[str, list[tuple[str, str]]] = {}
    for block in blocks[1:]:
        said: dict[str, str] = {}
        # A line that ends: half a name at the end of an output that was cut short has none. The first counts:
        # what a neighbour wrote into its description follows, and may be many lines.
        for key, value in re.findall(r"(?m)^[ \t]*([A-Z][A-Za-z ]*?):[ \t]*(.*)\n", block):
            said.setdefault(key, "" if value.strip().lower() in _SILENT else value.strip())
        local = said.get("Local Port ID", "")
        # OS9 leaves the line of a name out where the neighbour sent none; the end is always there.
        if not local or not _END.search(block):
            Source(text, file).refuse(f"{system}'s LLDP is cut short: a neighbour without local port or end")
        name = said.get("Remote System Name") or said.get("Remote Chassis ID", "")
        named = said.get("Remote Port Subtype", "").lower().startswith("interface name")
        about = said.get("Remote Port Description", "")
        add_neighbour(found, local, name, remote_ports(said.get("Remote Port ID", ""), about, named=named))
    return found
