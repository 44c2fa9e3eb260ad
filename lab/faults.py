"""The faults that can be planted, as commands for the leaf.  Pure.

Loss, rate and delay are queueing disciplines on the leaf's port toward the node, so they hit traffic *into*
that node on that rail and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab.errors import LabError

# The handle marks a qdisc as ours, so that clearing never removes what the switch's configuration put there.
HANDLE = "fa17:"

LINK_DOWN = "link down"
NO_POWER = "no power"


@dataclass(frozen=True)
class PortFault:
    """A qdisc for a leaf port, and how to tell a person about it."""

    qdisc: tuple[str, ...]
    description: str


def loss(percent: float) -> PortFault:
    """Drop this share of packets at random (tc-netem(8))."""
    _within("--percent", percent, 0, 100)
    return PortFault(("netem", "loss", f"{percent:g}%"), f"loss {percent:g} %")


def delay(milliseconds: float) -> PortFault:
    """Hold every packet this long (tc-netem(8)); the limit keeps the delay from becoming loss."""
    _within("--ms", milliseconds, 0, 10_000)
    qdisc = ("netem", "delay", f"{milliseconds:g}ms", "limit", "100000")
    return PortFault(qdisc, f"delay {milliseconds:g} ms")


def rate(mbit_per_s: float) -> PortFault:
    """Send no faster than this, in 10^6 bit/s (tc-tbf(8)).

    The bucket holds a few packets of 9000 bytes and the queue is deep enough for one node's messages in
    flight, so that the port is slow rather than lossy.
    """
    _within("--mbit", mbit_per_s, 0, 100_000)
    qdisc = ("tbf", "rate", f"{mbit_per_s * 1e6:.0f}bit", "burst", "64kb", "limit", "16mb")
    return PortFault(qdisc, f"rate {mbit_per_s:g} Mbit/s")


def _within(option: str, value: float, low: float, high: float) -> None:
    if not math.isfinite(value) or not low < value <= high:
        raise LabError(
            f"{option} {value:g} is out of range", fix=f"give more than {low:g} and at most {high:g}"
        )


def plant_argv(port: str, fault: PortFault) -> list[str]:
    """Put the fault on a leaf port, in place of the port's present qdisc."""
    return ["tc", "qdisc", "replace", "dev", port, "root", "handle", HANDLE, *fault.qdisc]


def clear_argv(port: str) -> list[str]:
    """Remove what :func:`plant_argv` put there."""
    return ["tc", "qdisc", "del", "dev", port, "root", "handle", HANDLE]
