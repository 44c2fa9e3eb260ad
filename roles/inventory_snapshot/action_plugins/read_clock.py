"""Tells how far the host's clock is ahead of the controller's, with the bounds that the round trips leave.

A host's time is read between two of the controller's, several times over the connection that the play has
already: the offset lies within the bounds of each round trip, so the bounds of all together are narrower than
any one's. No Python runs on the host, whose start would widen them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from ansible.plugins.action import ActionBase

# What is close enough, in seconds: a tenth of the strictest limit that is of use.
_ENOUGH_S = 0.1
_MOST_READINGS = 8
_LONGEST_S = 20.0
# coreutils' date(1); the nanoseconds are missing from busybox's.
_TIME = re.compile(r"^([0-9]{1,12}(?:\.[0-9]{1,9})?)$", re.M)


def bounds(readings: Iterable[tuple[float, float, float]]) -> tuple[float, float] | None:
    """Return how far the host's clock is ahead, at least and at most, in seconds.

    Args:
        readings: the controller's time before, the host's, the controller's after, of each round trip.

    Returns:
        None if there are no readings, or they contradict each other: a clock was set meanwhile.
    """
    low, high = float("-inf"), float("inf")
    for before, there, after in readings:
        low, high = max(low, there - after), min(high, there - before)
    return (low, high) if float("-inf") < low <= high < float("inf") else None


class ActionModule(ActionBase):
    """Reads the clock; fails if the host does not tell its time."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `low_s` and `high_s`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        readings: list[tuple[float, float, float]] = []
        found: tuple[float, float] | None = None
        began = time.monotonic()
        for _ in range(_MOST_READINGS):
            before, tick = time.time(), time.monotonic()
            said = self._low_level_execute_command("date +%s.%N", sudoable=False)
            # The controller's own clock may be set in the middle; what has passed is told by one that is not.
            after = before + time.monotonic() - tick
            there = _TIME.search(str(said.get("stdout", "")))
            if said.get("rc") != 0 or there is None:
                return {**result, "failed": True, "msg": "date +%s.%N does not tell the time"}
            precision_s = 0.0 if "." in there[1] else 1.0
            readings.append((before, float(there[1]), after + precision_s))
            # The first one may have opened the connection.
            found = bounds(readings)
            if found is None or found[1] - found[0] <= _ENOUGH_S or time.monotonic() - began > _LONGEST_S:
                break
        if found is None:
            return {**result, "failed": True, "msg": "a clock was set while it was read: try again"}
        return {**result, "changed": False, "low_s": round(found[0], 6), "high_s": round(found[1], 6)}
