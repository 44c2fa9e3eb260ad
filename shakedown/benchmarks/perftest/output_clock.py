"""A perftest output that has no usable number because perftest could not tell its CPU's clock.

perftest counts CPU cycles and finds their rate by a regression over 200 short waits. Where the fit is bad, on
a busy host or in a busy virtual machine, it takes 0 Hz and goes on (get_clock.c; --CPU-freq keeps it from
giving up): all traffic passed, and the table says 0 Gb/s, or inf microseconds. The standard library only:
compute nodes use this too.
"""

from __future__ import annotations

import re

CLOCK_UNKNOWN = "perftest could not tell the rate of its CPU's clock and printed no usable number"
_WARNING = "Correlation coefficient r^2: "
# Blanks of its own line only: `\s` would go on to the end of the file from each of a million empty lines.
_ROW = re.compile(
    r"^[^\S\n]*+[0-9]++[^\S\n]++[0-9]++[^\S\n]++(?:0\.0++[^\S\n]++0\.0++[^\S\n]++0\.0+|-?(?:inf|nan)\s)",
    re.MULTILINE,
)


def clock_unknown(text: str) -> bool:
    """Whether an output is one of those. A rate of 0 without perftest's warning is a rate of 0."""
    return _WARNING in text and _ROW.search(text) is not None
