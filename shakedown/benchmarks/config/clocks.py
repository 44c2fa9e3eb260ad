"""How far a node's clock is from the submit host's, as far as two readings over a network can tell."""

from __future__ import annotations

from shakedown.records.snapshot import Snapshot
from shakedown.records.wording import number

# What unmunge(1) says of a credential that the clocks of two hosts spoil.
_OF_CLOCKS = ("Rewound credential", "Expired credential")


def clock_offset(inventory: Snapshot, node: str, limit_s: float) -> tuple[float | None, str]:
    """Return the offset in seconds, without its sign, and what there is to say of it.

    None if it cannot be told on which side of the limit it is.
    """
    ahead = inventory.ahead_s(node)
    if ahead is None:
        who = node if all(reading.host != node for reading in inventory.clocks) else "the submit host"
        return None, f"the clock of {who} was not read"
    low, high = ahead
    off = abs(low + high) / 2
    exact = (high - low) / 2
    said = next((r.munge for r in inventory.clocks if r.host == node and r.munge in _OF_CLOCKS), "")
    munge = f"; munge refuses credentials: {said}" if said else ""
    submit = inventory.submit or "the submit host"
    if max(abs(low), abs(high)) <= limit_s or low > limit_s or high < -limit_s:
        way = "ahead of" if low + high > 0 else "behind"
        bound = f"at most {number(limit_s)} s allowed"
        return off, f"{_seconds(off)} s {way} {submit}'s (± {_seconds(exact)} s), {bound}{munge}"
    return None, (
        f"the clock is between {number(low)} and {number(high)} s ahead of {submit}'s: whether that is at "
        f"most {number(limit_s)} s cannot be told over so slow a connection{munge}"
    )


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
