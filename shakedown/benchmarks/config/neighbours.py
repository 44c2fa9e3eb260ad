"""Which MAC this node's kernel has for the addresses of a rail's other NICs. Standard library only.

An ordinary user cannot send ARP requests, but can have the kernel send them: a datagram to an address of the
rail makes it look for the owner, and `ip neigh` says whom it found. An entry counts once its owner has
answered (REACHABLE): a kernel keeps the MAC of a NIC that was swapped long ago, and calls it STALE.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

_TABLE = ("ip", "-j", "-4", "neigh", "show")
# RFC 863: whoever listens there throws away what comes.
_DISCARD_PORT = 9
# An old entry's owner is asked 5 s after it was used (arp(7), delay_first_probe_time), three times a second
# apart, and then everybody.
_WAIT_S = 12.0
_AGAIN_S = 1.0
_ANSWERED = {"REACHABLE", "PERMANENT", "NOARP"}
# A kernel keeps 512 neighbours of all its NICs before it forgets some (arp(7), gc_thresh2).
_MOST_KEPT, _MOST_PEERS = 512, 128


def on_rail(spec: Mapping[str, object], rail: str) -> list[tuple[str, str]]:
    """Return address and node of every NIC on a rail, in the order of addresses, by the job's `spec.json`."""
    targets, expect = spec["targets"], spec["expect"]
    assert isinstance(targets, dict)
    assert isinstance(expect, dict)
    found = [
        (expect[node][name].get("ipv4"), node)
        for node, names in targets.items()
        for name, on in names.items()
        if on == rail
    ]
    return sorted((address, node) for address, node in found if isinstance(address, str))


def peers(
    spec: Mapping[str, object], node: str, target: str, nics: list[tuple[str, str]] | None = None
) -> list[str]:
    """Return the addresses of the other nodes' NICs on a NIC's rail, by the job's own `spec.json`.

    `nics`: what `on_rail` returns of it, where somebody asks for many nodes.
    """
    targets, expect = spec["targets"], spec["expect"]
    assert isinstance(targets, dict)
    assert isinstance(expect, dict)
    own = targets[node]
    if nics is None:
        nics = on_rail(spec, own[target]) if own[target] is not None else []
    # With very many, those after this node in the round: each address is looked up by some node.
    mine = expect[node][target].get("ipv4") or ""
    most = min(_MOST_PEERS, _MOST_KEPT // max(sum(on is not None for on in own.values()), 1))
    others = [address for address, other in nics if other != node]
    return [*(a for a in others if a > mine), *(a for a in others if a <= mine)][:most]


class Wanted(NamedTuple):
    """Whom to look for on a NIC: its own address, and those of the others on its rail."""

    own: str
    addresses: list[str]


def neighbours(
    nics: Mapping[str, Wanted], table: Callable[[], str | None] | None = None, wait_s: float = _WAIT_S
) -> dict[str, dict[str, str]] | None:
    """Return by NIC the MAC of each address whose owner answered; None if the kernel's table cannot be read.

    An address beyond a router has none. Takes no longer than `wait_s`, and ends once all have answered. One
    that has answered counts, though its entry may be old again, or forgotten, before the last one answers.
    """
    found: dict[str, dict[str, str]] = {netdev: {} for netdev in nics}
    deadline = time.monotonic() + wait_s
    while True:
        for wanted in nics.values():
            _poke(wanted)
        time.sleep(min(_AGAIN_S, wait_s / 4))
        text = (table or _table)()
        if text is None:
            return None
        for netdev, wanted in nics.items():
            found[netdev] |= _of(read_table(text, netdev), wanted)
        if all(len(found[n]) == len(w.addresses) for n, w in nics.items()) or time.monotonic() > deadline:
            return found


def _of(known: Mapping[str, str], wanted: Wanted) -> dict[str, str]:
    return {address: known[address] for address in wanted.addresses if address in known}


def _poke(wanted: Wanted) -> None:
    for address in wanted.addresses:
        # No route, or no such address here: then there is no neighbour either.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as poke:
            poke.bind((wanted.own, 0))
            poke.sendto(b"", (address, _DISCARD_PORT))


def _table() -> str | None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            _TABLE, capture_output=True, text=True, check=False, timeout=10, env={"PATH": path, "LC_ALL": "C"}
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def read_table(text: str, netdev: str) -> dict[str, str]:
    """Read `ip -j neigh show`: the MAC by address of the NIC's neighbours that have answered."""
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        return {}
    return {
        str(entry["dst"]): str(entry["lladdr"]).lower()
        for entry in entries
        if entry.get("dev") == netdev and "lladdr" in entry and _ANSWERED & set(entry.get("state", ()))
    }
