"""Faults of a node: its clock, its shared folder, a second owner of its address on a rail."""

from __future__ import annotations

import math
import time

from lab import snapshots
from lab.errors import LabError
from lab.machines import Machines

CLOCK, STAGE, DUPLICATE = "clock off by", "stage read-only", "address owned by the leaf too"
RING = "rx ring of"
# Of virtio's ring: powers of two; the last is what it comes with (QEMU, rx_queue_size).
_RINGS = (8, 16, 32, 64, 128, 256)
_MOST_FRAMES = 10_000
# What the last frame may take from the switch to an emulated node.
_ARRIVAL_S = 2.0
# Class 3 pauses for 65,535 quanta; padded to the least that Ethernet sends.
_PAUSE = """import socket, sys, time
port, count = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind((port, 0))
    own = out.getsockname()[4]
    times = bytes(6) + bytes([255, 255]) + bytes(8)
    frame = bytes.fromhex("0180c2000001") + own + bytes.fromhex("880801010008") + times
    for _ in range(count):
        out.send(frame + bytes(60 - len(frame)))
        time.sleep(0.001)
"""
# A day: far beyond what munge bears (300 s), and no certificate of the image ends with it.
_MOST_SECONDS = 86_400

# Every file system that the node has from the network; it fails where there is none.
_REMOUNT = """set -eu
mode=$1
awk '$3 ~ /^nfs/ || $3 == "9p" { print $2 }' /proc/mounts | {
    read -r first
    mount -o "remount,$mode" "$first"
    while read -r next; do mount -o "remount,$mode" "$next"; done
}
"""


def clock(lab: Machines, node: str, seconds: float) -> str:
    """Set a node's clock ahead by so many seconds, or back; says what was planted."""
    if not math.isfinite(seconds) or not 0 < abs(seconds) <= _MOST_SECONDS:
        raise LabError(f"{seconds:g} s is out of range", fix=f"give up to {_MOST_SECONDS}, not 0")
    program = f"import time; time.clock_settime(time.CLOCK_REALTIME, time.time() + {seconds!r})"
    _on(lab, node, ["python3", "-c", program], "setting the clock")
    return _noted(lab, f"{node} clock", f"{CLOCK} {seconds:g} s")


def stage_readonly(lab: Machines, node: str) -> str:
    """Mount the shared folder read-only on a node; says what was planted."""
    _on(lab, node, ["sh", "-c", _REMOUNT, "remount", "ro"], "mounting the stage read-only")
    return _noted(lab, f"{node} stage", STAGE)


def duplicate_address(lab: Machines, node: str, rail: str) -> str:
    """Give a node's address on a rail to the leaf's bridge as well; says what was planted."""
    link = lab.topology.link(node, rail)
    _on(lab, link.leaf, ["ip", "address", "add", link.ipv4, "dev", f"br-{rail}"], "adding the address")
    return _noted(lab, f"{node} {rail}", DUPLICATE)


def small_rx_ring(lab: Machines, node: str, rail: str, entries: int) -> str:
    """Give a node's NIC so few receive buffers; says what was planted.

    A driver that cannot (virtio before Linux 6.0, or without queue reset) says so, and nothing changes.
    """
    if entries not in _RINGS:
        raise LabError(f"{entries} is out of range", fix=f"give one of {', '.join(map(str, _RINGS))}")
    link = lab.topology.link(node, rail)
    _on(lab, node, ["ethtool", "-G", link.netdev, "rx", str(entries)], "making the ring small")
    return _noted(lab, f"{node} {rail}", f"{RING} {entries}")


def pause_frames(lab: Machines, node: str, rail: str, count: int) -> str:
    """Send so many PFC pause frames out of the leaf's port toward a node; nothing of it is left to clear.

    IEEE 802.1Qbb: to 01:80:c2:00:00:01, type 0x8808, opcode 0x0101, the classes that pause, then their times.
    A switch never forwards such a frame, so it must leave by the port itself. virtio-net throws away what is
    for a group that nobody joined: meanwhile the node takes all groups.
    """
    if not 0 < count <= _MOST_FRAMES:
        raise LabError(f"{count} is out of range", fix=f"give 1 to {_MOST_FRAMES}")
    port = lab.topology.port(node, rail)
    command = ["python3", "-c", _PAUSE, port.name, str(count)]
    groups = ["ip", "link", "set", lab.topology.link(node, rail).netdev, "allmulticast"]
    _on(lab, node, [*groups, "on"], "taking all groups")
    try:
        _on(lab, port.switch, command, "sending pause frames")
        time.sleep(_ARRIVAL_S)
    finally:
        _on(lab, node, [*groups, "off"], "taking only joined groups")
    return f"{count} pause frames on {port.switch} {port.name}, into {port.toward}"


def clear(lab: Machines) -> list[str]:
    """Undo the faults of this kind; says what it did."""
    done = []
    for key, fault in list(lab.state.faults.items()):
        node, what = (*key.split(), "")[:2]
        if fault.startswith(CLOCK):
            if not snapshots.set_clock(lab, lab.topology.machine(node)):
                raise LabError(f"{node} does not take the time", fix="see python -m lab console")
            done.append(f"{node} has the time again")
        elif fault == STAGE:
            _on(lab, node, ["sh", "-c", _REMOUNT, "remount", "rw"], "mounting the stage writable")
            done.append(f"{node} can write to its stage again")
        elif fault == DUPLICATE:
            link = lab.topology.link(node, what)
            command = ["ip", "address", "del", link.ipv4, "dev", f"br-{what}"]
            _on(lab, link.leaf, command, "removing the address")
            done.append(f"{node} {what} is the only owner of its address again")
        elif fault.startswith(f"{RING} "):
            netdev = lab.topology.link(node, what).netdev
            _on(lab, node, ["ethtool", "-G", netdev, "rx", str(_RINGS[-1])], "making the ring as it was")
            done.append(f"{node} {what} has its ring again")
        else:
            continue
        del lab.state.faults[key]
        lab.save_state()
    return done


def _noted(lab: Machines, key: str, fault: str) -> str:
    lab.state.faults[key] = fault
    lab.save_state()
    return f"{key}: {fault}"


def _on(lab: Machines, machine: str, command: list[str], what: str) -> None:
    done = lab.ssh(machine, command, timeout_s=120)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LabError(f"{what} on {machine} failed: {last}")
