"""Which MAC this node's kernel has for the addresses of a rail's other NICs. Standard library only.

An ordinary user cannot send ARP requests, but can have the kernel send them: a datagram to an address of the
rail makes it look for the owner, and /proc/net/arp says whom it found.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Collection, Mapping
from pathlib import Path

TABLE = Path("/proc/net/arp")
# RFC 863: whoever listens there throws away what comes.
_DISCARD_PORT = 9
_WAIT_S = 1.5
_COMPLETE = 0x2  # ATF_COM of linux/if_arp.h
# A kernel keeps 512 neighbours before it forgets some (arp(7), gc_thresh2).
_MOST_PEERS = 128


def peers(spec: Mapping[str, object], node: str, target: str) -> list[str]:
    """Return the addresses of the other nodes' NICs on a NIC's rail, by the job's own `spec.json`."""
    targets, expect = spec["targets"], spec["expect"]
    assert isinstance(targets, dict)
    assert isinstance(expect, dict)
    rail = targets[node][target]
    found = [
        expect[other][name].get("ipv4")
        for other, names in targets.items()
        for name, on in names.items()
        if other != node and rail is not None and on == rail
    ]
    # With very many, those after this node in the round: each address is looked up by some node.
    mine = expect[node][target].get("ipv4") or ""
    ordered = sorted(address for address in found if isinstance(address, str))
    return [*(a for a in ordered if a > mine), *(a for a in ordered if a <= mine)][:_MOST_PEERS]


def neighbours(
    netdev: str, own: str, addresses: Collection[str], table: Path = TABLE
) -> dict[str, str] | None:
    """Return the MAC by address, for those that the kernel found on this NIC; None if it does not say.

    An address beyond a router has none. Takes 1.5 s at most.
    """
    for address in addresses:
        # No route, or no such address here: then there is no neighbour either.
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as poke:
            poke.bind((own, 0))
            poke.sendto(b"", (address, _DISCARD_PORT))
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            found = read_table(table.read_text(encoding="ascii", errors="replace"), netdev)
        except OSError:
            return None
        known = {address: mac for address, mac in found.items() if address in addresses}
        if len(known) == len(set(addresses)) or time.monotonic() > deadline:
            return known
        time.sleep(0.1)


def read_table(text: str, netdev: str) -> dict[str, str]:
    """Read /proc/net/arp (proc(5)): `IP address  HW type  Flags  HW address  Mask  Device`."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) == 6 and fields[5] == netdev and int(fields[2], 16) & _COMPLETE:
            found[fields[0]] = fields[3].lower()
    return found
