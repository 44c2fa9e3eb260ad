"""What the names of NIC and switch counters say: whether they count errors, and where those happened."""

from __future__ import annotations

import re
from functools import cache

# What the two ends of a connection count when a packet was lost anywhere between them: says that, not where.
_END_TO_END = re.compile(r"seq|retry|retries|nak|timeout|retrans|icrc|duplicate|rnr|cnp")
# What is counted where it happens: bits damaged on the cable, or packets thrown away.
_DAMAGED = re.compile(r"symbol|crc|fcs|pcs|fec|uncorrect|link_down|err\w*_phy")
_DISCARDED = re.compile(r"drop|discard|overlimit|overrun|buf_|(rx|tx)_err")
# What is no error, whatever its name: bits that FEC corrected (mlx5 calls those of a lane rx_err_lane_N_phy),
# congestion notices and marks, pauses, ratios that are worked out, and what XDP programs drop on purpose.
_NO_ERROR = re.compile(
    r"(?<!un)corrected|err_lane_|cnp_?(sent|handled|pkts)|ecn_mark|pre_fec_|pause|_xdp_|^(?:phy|class|reading)\."
)


def no_error(counter: str) -> bool:
    """Whether a counter that looks like one of errors counts what healthy links and networks have too."""
    return _NO_ERROR.search(counter.lower()) is not None


def end_to_end(counter: str) -> bool:
    """Whether a counter only says that something was lost between two ends, and not at which."""
    return _END_TO_END.search(counter.lower()) is not None


def damaged_on_cable(counter: str) -> bool:
    """Whether a counter counts bits that were damaged on the cable at which it counts."""
    return _DAMAGED.search(counter.lower()) is not None and not no_error(counter)


@cache  # a run has a few dozen names and tens of thousands of readings
def counts_errors(counter: str) -> bool:
    """Whether a counter counts errors of any kind."""
    if no_error(counter):
        return False
    return end_to_end(counter) or damaged_on_cable(counter) or _DISCARDED.search(counter.lower()) is not None
