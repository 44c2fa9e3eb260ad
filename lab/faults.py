"""The faults that can be planted, as commands for the leaf.  Pure.

Loss, rate and delay are queueing disciplines on the leaf's port toward the node, so they hit traffic *into*
that node on that rail and nothing else. The others are wrong settings of the switch, as a person leaves them.
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
MISWIRED = "cables swapped"


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


def reorder(percent: float) -> PortFault:
    """Let this share of packets overtake the others, which wait a moment (tc-netem(8)); none is lost."""
    _within("--percent", percent, 0, 99)
    qdisc = ("netem", "delay", "5ms", "reorder", f"{percent:g}%", "limit", "100000")
    return PortFault(qdisc, f"reordering {percent:g} %")


def rate(mbit_per_s: float) -> PortFault:
    """Send no faster than this, in 10^6 bit/s (tc-tbf(8)).

    The bucket holds a few packets of 9000 bytes and the queue is deep enough for one node's messages in
    flight, so that the port is slow rather than lossy.
    """
    _within("--mbit", mbit_per_s, 0, 100_000)
    qdisc = ("tbf", "rate", f"{mbit_per_s * 1e6:.0f}bit", "burst", "64kb", "limit", "16mb")
    return PortFault(qdisc, f"rate {mbit_per_s:g} Mbit/s")


@dataclass(frozen=True)
class SettingFault:
    """A wrong setting of one leaf port: a shell script that gets the port, and words for it."""

    script: str
    description: str


# The switch's own settings must have been made before they can be spoiled.
_CONFIGURED = """set -eu
port=$1
if [ ! -e /var/lib/roce-leaf/intent.json ]; then
    echo "the switch is not configured yet, run site.yml first" >&2
    exit 1
fi
"""


# The ToS of the RoCE class, as the switch itself was told.
_ROCE_TOS = """
tos=$(tc -j filter show dev "$port" ingress | python3 -c '
import json, sys
rules = [r for r in json.load(sys.stdin) if r["pref"] == 10 and "options" in r]
tos = rules[0]["options"]["keys"]["ip_tos"]
print(tos if isinstance(tos, int) else int(tos, 16))
')
"""


def ecn_off() -> SettingFault:
    """Let the port's RoCE queue grow without marking (tc-red(8) without `ecn`)."""
    # Everything but the two flags stays: read what is there and set it again. burst as in tc-red(8).
    script = (
        _CONFIGURED
        + """
options=$(tc -d -j qdisc show dev "$port" | python3 -c '
import json, sys
red = next(q["options"] for q in json.load(sys.stdin) if q["kind"] == "red" and q["handle"] == "20:")
burst = (2 * red["min"] + red["max"]) // 3000 + 2
print("limit", red["limit"], "min", red["min"], "max", red["max"], "probability", red["probability"],
      "avpkt 1000 burst", burst, "bandwidth 10gbit")
')
# shellcheck disable=SC2086  # several words
tc qdisc change dev "$port" parent 1:2 handle 20: red $options
"""
    )
    return SettingFault(script, "ECN off")


def wrong_dscp_map() -> SettingFault:
    """Classify what comes into the port with RoCE's DSCP as other traffic."""
    script = (
        _CONFIGURED
        + _ROCE_TOS
        + """
tc filter replace dev "$port" ingress protocol ip pref 10 handle 1 flower ip_tos "$tos/0xfc" \\
    action skbedit priority 1 pass
"""
    )
    return SettingFault(script, "wrong DSCP map")


# Marks a filter as ours, as HANDLE marks a qdisc.
REWRITE_PREF = 0xFA17


def rewrite_dscp(dscp: int) -> SettingFault:
    """Send RoCE out of the port with another DSCP; ECN stays, and all that the switch reads back."""
    if not 0 <= dscp <= 63:
        raise LabError(f"--dscp {dscp} is out of range", fix="give 0 to 63")
    return SettingFault(_rewrite(dscp << 2, 0xFC), f"DSCP rewritten to {dscp:d}")


def bleach_ecn() -> SettingFault:
    """Send RoCE out of the port as if its sender did not know ECN; its DSCP stays."""
    return SettingFault(_rewrite(0, 0x03), "ECN bleached")


def _rewrite(tos: int, bits: int) -> str:
    """Write these bits of RoCE's ToS on its way out (tc-pedit(8): `retain` names the bits that change)."""
    return (
        _CONFIGURED
        + _ROCE_TOS
        + f"""
tc filter replace dev "$port" egress protocol ip pref {REWRITE_PREF} handle 1 flower ip_tos "$tos/0xfc" \\
    action pedit ex munge ip dsfield set {tos:#04x} retain {bits:#04x} pipe action csum ip4h
"""
    )


def port_mtu(mtu_bytes: int) -> SettingFault:
    """Give the port another MTU, in bytes."""
    _within("--bytes", mtu_bytes, 67, 9000)
    return SettingFault(f'{_CONFIGURED}ip link set dev "$port" mtu {mtu_bytes:d}\n', f"MTU {mtu_bytes:d}")


def port_down() -> SettingFault:
    """Shut the port."""
    return SettingFault(f'{_CONFIGURED}ip link set dev "$port" down\n', "port shut")


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
_REWRITING = f"""
rewriting() {{ tc filter show dev "$1" egress 2>/dev/null | grep -q " pref {REWRITE_PREF} "; }}
"""
# tc does not replace a qdisc by one of another kind under the same handle, so an older fault is removed
# first.
_PLANT = f"""set -eu{_RESEAT}
port=$1; shift
if planted "$port"; then tc qdisc del dev "$port" root; fi
tc qdisc replace dev "$port" root handle {HANDLE} "$@"
reseat "$port"
"""
_CLEAR = f"""set -eu{_RESEAT}{_REWRITING}
for port in "$@"; do
    if planted "$port"; then
        tc qdisc del dev "$port" root
        reseat "$port"
        echo "$port"
    fi
    if rewriting "$port"; then
        tc filter del dev "$port" egress pref {REWRITE_PREF}
        echo "$port"
    fi
done
"""


# Two cables that change places are two ports that change names: nothing else moves with a cable.
_SWAP = """set -eu
for port in "$@"; do ip link set dev "$port" down; done
ip link set dev "$1" name swapped
ip link set dev "$2" name "$1"
ip link set dev swapped name "$2"
for port in "$@"; do ip link set dev "$port" up; done
systemctl restart lldpd
"""
# The saved intent again; it says whether anything had to be changed.
_RESTORE = """set -eu
for port in "$@"; do ip link set dev "$port" up; done
if [ -x /usr/local/sbin/roce-leaf ] && [ -e /var/lib/roce-leaf/intent.json ]; then
    /usr/local/sbin/roce-leaf apply --saved
fi
"""


def setting_argv(port: str, fault: SettingFault) -> list[str]:
    """The leaf's command that spoils a port's setting."""
    return ["sh", "-c", fault.script, "plant", port]


def swap_argv(one: str, other: str) -> list[str]:
    """The leaf's command that swaps the cables of two ports, or swaps them back."""
    return ["sh", "-c", _SWAP, "swap", one, other]


def restore_argv(ports: Sequence[str]) -> list[str]:
    """The leaf's command that brings every setting back; it prints JSON with `changed`, or nothing."""
    return ["sh", "-c", _RESTORE, "restore", *ports]


def plant_argv(port: str, fault: PortFault) -> list[str]:
    """The leaf's command that puts the fault on a port."""
    return ["sh", "-c", _PLANT, "plant", port, *fault.qdisc]


def clear_argv(ports: Sequence[str]) -> list[str]:
    """The leaf's command that removes our faults from these ports; it prints the ports that had one."""
    return ["sh", "-c", _CLEAR, "clear", *ports]
