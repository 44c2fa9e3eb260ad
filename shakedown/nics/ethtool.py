"""`ethtool -S NETDEV`: a driver's own counters.

The output has no end mark: one that was cut at a line end looks whole. Name the counters that must be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Count, Source, quote

# The name may hold blanks, brackets and colons ("[0]: rx_ucast_packets"); the value follows the last colon.
_COUNTER = re.compile(r"\s+(?P<name>\S.*?)\s*: *(?P<value>\S+)\Z")


class EthtoolResult(Record):
    """The counters of one network device."""

    tool: Literal["ethtool"] = "ethtool"
    counters: dict[str, Count] = Field(min_length=1)


def parse_ethtool(
    text: str, *, file: str | Path | None = None, required: Iterable[str] = ()
) -> EthtoolResult:
    """Parse `ethtool -S`.

    Args:
        text: the output.
        file: the name to quote when it is refused.
        required: counters that must be there. On mlx5 the per-priority pause counters exist only while PFC
            is on for the priority: their absence is a finding, not zero.

    Raises:
        BadInput: no statistics, a value that is not a whole number, a last line that was cut off.
    """
    source = Source(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    if lines[0].text.strip() != "NIC statistics:":
        fix = "capture `ethtool -S NETDEV` of a device whose driver has statistics"
        source.refuse(f"not 'NIC statistics:' but {quote(lines[0].text.strip())}", line=lines[0], fix=fix)
    counters: dict[str, int] = {}
    for line in lines[1:]:
        match = _COUNTER.match(line.text)
        if match is None:
            source.refuse(f"not a counter: {quote(line.text.strip())}", line=line)
        value = source.integer(match["value"], match["name"], line=line)
        if counters.setdefault(match["name"], value) != value:
            source.refuse(f"{match['name']} has two values", line=line, fix="keep one device a file")
    if not counters or not source.terminated:
        source.ends_before("the end of the counters", fix="capture it again")
    missing = sorted(set(required) - set(counters))
    if missing:
        source.refuse(f"no counter {', '.join(missing)}", line=lines[-1], fix="see `ethtool -S` on the node")
    return source.build(EthtoolResult, counters=counters)
