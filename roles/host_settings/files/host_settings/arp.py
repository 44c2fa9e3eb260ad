"""Who else owns an address on a NIC's network: ARP probes, as a host sends before it takes an address.

RFC 5227, section 2.1.1: a request for the address whose sender has none yet, so that no cache learns anything
from it. Whoever owns the address answers; this host's own kernel does not hear its own probe.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time

_ETH_ARP = 0x0806
_IPV4 = 0x0800
_ETHERNET = 1
_REQUEST, _REPLY = 1, 2
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_HEADER = 14
_PROBES = 3
_BETWEEN_S = 0.2
LISTEN_S = 1.2


def probe(mac: bytes, address: bytes) -> bytes:
    """The Ethernet frame of an ARP probe for an IPv4 address."""
    arp = _ARP.pack(_ETHERNET, _IPV4, 6, 4, _REQUEST, mac, bytes(4), bytes(6), address)
    return b"\xff" * 6 + mac + struct.pack("!H", _ETH_ARP) + arp


def owner(frame: bytes, address: bytes) -> str | None:
    """The MAC that a frame claims the address for; None if it claims it for none."""
    if len(frame) < _HEADER + _ARP.size or frame[12:14] != struct.pack("!H", _ETH_ARP):
        return None
    hardware, protocol, long, short, what, sender, claimed, _, _ = _ARP.unpack_from(frame, _HEADER)
    if (hardware, protocol, long, short) != (_ETHERNET, _IPV4, 6, 4) or what not in (_REQUEST, _REPLY):
        return None
    return sender.hex(":") if claimed == address else None


def owners(netdev: str, mac: str, address: str) -> list[str]:
    """The MACs other than the NIC's own that claim its address, sorted. Raises OSError without the rights."""
    mine, wanted = bytes.fromhex(mac.replace(":", "")), ipaddress.IPv4Address(address).packed
    found: set[str] = set()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_ARP)) as wire:
        wire.bind((netdev, _ETH_ARP))
        end = time.monotonic() + LISTEN_S
        sent, due = 0, time.monotonic()
        while (now := time.monotonic()) < end:
            if sent < _PROBES and now >= due:
                wire.send(probe(mine, wanted))
                sent, due = sent + 1, now + _BETWEEN_S
            wire.settimeout(max(0.01, min(due if sent < _PROBES else end, end) - now))
            try:
                frame = wire.recv(2048)
            except socket.timeout:  # which is not TimeoutError before Python 3.10
                continue
            claimed = owner(frame, wanted)
            if claimed is not None and claimed != mac:
                found.add(claimed)
    return sorted(found)
