"""The faults that can be planted, as commands for the leaf.  Pure.

Loss, rate and delay are queueing disciplines on the leaf's port toward the node, so they hit traffic *into*
that node on that rail and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


# A port that the switch role has configured carries its queues below the fault, and gets them back after it:
# a fault that took them away would show as two.
_RESEAT = """
reseat() {
    if [ -x /usr/local/sbin/roce-leaf ] && [ -e /var/lib/roce-leaf/intent.json ]; then
        /usr/local/sbin/roce-leaf reseat "$1" >/dev/null
    fi
}
planted() { tc qdisc show dev "$1" root | grep -q " fa17: "; }
"""
# tc does not replace a qdisc by one of another kind under the same handle, so an older fault goes first.
_PLANT = f"""set -eu{_RESEAT}
port=$1; shift
if planted "$port"; then tc qdisc del dev "$port" root; fi
tc qdisc replace dev "$port" root handle {HANDLE} "$@"
reseat "$port"
"""
_CLEAR = f"""set -eu{_RESEAT}
for port in "$@"; do
    if planted "$port"; then
        tc qdisc del dev "$port" root
        reseat "$port"
        echo "$port"
    fi
done
"""


def plant_argv(port: str, fault: PortFault) -> list[str]:
    """The leaf's command that puts the fault on a port."""
    return ["sh", "-c", _PLANT, "plant", port, *fault.qdisc]


def clear_argv(ports: Sequence[str]) -> list[str]:
    """The leaf's command that removes our faults from these ports; it prints the ports that had one."""
    return ["sh", "-c", _CLEAR, "clear", *ports]
