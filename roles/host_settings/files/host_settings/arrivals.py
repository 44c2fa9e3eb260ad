"""`host-settings arrivals`: count by DSCP and ECN which RoCE packets reach the fabric NICs of this host.

What a switch read back from itself is no proof of what it does to a packet; the headers that arrive are.
Where packets of RoCE pass through the kernel (Soft-RoCE, or a NIC whose driver shows them), a sample of their
headers is counted here for whoever is connected. It says `ready`, counts until the other side has closed its
half of the connection, and answers with one JSON document. It takes nothing in, shows no packet, and ends by
itself: after LONGEST_S seconds, and on each NIC after MOST_PACKETS.

A NIC that handles RoCE in hardware shows the kernel nothing of it; then nothing is counted.
"""

from __future__ import annotations

import ctypes
import ipaddress
import json
import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from host_settings.targets import HOST_TARGETS, all_targets

SCHEMA = 1
LONGEST_S = 60.0
MOST_PACKETS = 20_000
# Different packets of a sample are few: addresses of the fabric, and a handful of classes.
_MOST_KINDS = 1_000
# One arriving packet of so many is kept, by chance: enough to see a class, little work for a slow host.
ONE_OF = 8
# IPv6 header, UDP and the BTH: as much as is looked at.
_HEADER_BYTES = 40 + 8 + 12

_ROCE_PORT = 4791  # RoCEv2 (InfiniBand Architecture, Annex A17)
_UDP = 17
_FRAGMENT = 0x1FFF  # offset within the IPv4 flags
_ETH_P_ALL, _IPV4, _IPV6 = 0x0003, 0x0800, 0x86DD  # include/uapi/linux/if_ether.h
_PACKET_OUTGOING = 4  # include/uapi/linux/if_packet.h: what this host sends is shown too
_SO_ATTACH_FILTER, _SOL_PACKET, _PACKET_STATISTICS = 26, 263, 6

# Opcodes of the BTH (InfiniBand Architecture, 9.2.1): three bits of transport, then what is done.
_RELIABLE, _UNRELIABLE, _EXTENDED = 0, 1, 5  # those that carry data of RDMA; management travels as datagrams
_DATA = (
    *range(0x0C),
    *range(0x0D, 0x11),
    0x16,
    0x17,
)  # sends and writes, answers to reads, sends that invalidate
_ACKS = (0x11, 0x12)
_CNP = 0x81  # RoCE's congestion notification, Annex A17

# Classic BPF (include/uapi/linux/bpf_common.h): code, constant, and where a jump goes if true and if not.
_LOAD, _LOAD_HALF, _LOAD_BYTE, _LOAD_IP_LENGTH, _LOAD_HALF_AFTER_IP = 0x20, 0x28, 0x30, 0xB1, 0x48
_EQUAL, _ANY_BIT, _AND, _RETURN = 0x15, 0x45, 0x54, 0x06
# include/uapi/linux/filter.h: what the kernel knows of a packet, beside its bytes.
_PROTOCOL, _PACKET_TYPE, _RANDOM = 0xFFFFF000, 0xFFFFF004, 0xFFFFF038
# Arriving UDP to RoCE's port over IPv4 or IPv6, one packet of ONE_OF. The socket is of SOCK_DGRAM, so byte 0
# is that of the IP header, whether or not the frame had a VLAN tag.
_FILTER: tuple[tuple[str, int, int, str, str], ...] = (
    ("", _LOAD, _PACKET_TYPE, "", ""),
    ("", _EQUAL, _PACKET_OUTGOING, "drop", ""),
    ("", _LOAD, _PROTOCOL, "", ""),
    ("", _EQUAL, _IPV6, "ipv6", ""),
    ("", _EQUAL, _IPV4, "", "drop"),
    ("", _LOAD_BYTE, 9, "", ""),
    ("", _EQUAL, _UDP, "", "drop"),
    ("", _LOAD_HALF, 6, "", ""),
    ("", _ANY_BIT, _FRAGMENT, "drop", ""),
    ("", _LOAD_IP_LENGTH, 0, "", ""),
    ("", _LOAD_HALF_AFTER_IP, 2, "", ""),
    ("", _EQUAL, _ROCE_PORT, "some", "drop"),
    ("ipv6", _LOAD_BYTE, 6, "", ""),
    ("", _EQUAL, _UDP, "", "drop"),
    ("", _LOAD_HALF, 42, "", ""),
    ("", _EQUAL, _ROCE_PORT, "", "drop"),
    ("some", _LOAD, _RANDOM, "", ""),
    ("", _AND, ONE_OF - 1, "", ""),
    ("", _EQUAL, 0, "", "drop"),
    ("", _RETURN, _HEADER_BYTES, "", ""),
    ("drop", _RETURN, 0, "", ""),
)


def program() -> bytes:
    """Return the filter as the kernel takes it: struct sock_filter, eight bytes an instruction."""
    places = {label: place for place, (label, *_) in enumerate(_FILTER) if label}

    def skip(label: str, place: int) -> int:
        return places[label] - place - 1 if label else 0

    return b"".join(
        struct.pack("=HBBI", code, skip(yes, place), skip(no, place), constant)
        for place, (_, code, constant, yes, no) in enumerate(_FILTER)
    )


@dataclass
class Sample:
    """What was seen on one NIC.

    Attributes:
        packets: how many, by source, destination, DSCP, ECN and kind (data, ack, cnp, other).
        taken: how many were looked at.
        error: why nothing could be seen.
    """

    packets: Counter[tuple[str, str, int, int, str]] = field(default_factory=Counter)
    taken: int = 0
    error: str = ""

    @property
    def full(self) -> bool:
        """Whether there is enough of it."""
        return self.taken >= MOST_PACKETS or len(self.packets) >= _MOST_KINDS

    def take(self, packet: bytes, packet_type: int) -> None:
        """Count one packet, from its IP header on; what this host sent itself never counts."""
        header = parsed(packet) if packet_type != _PACKET_OUTGOING else None
        if header is not None:
            self.taken += 1
            self.packets[header] += 1


def parsed(packet: bytes) -> tuple[str, str, int, int, str] | None:
    """Return source, destination, DSCP, ECN and kind of a RoCE packet, from its IP header on, else None."""
    version = packet[0] >> 4 if packet else 0
    if version == 4:
        length, following, wide = (packet[0] & 0xF) * 4, 9, (12, 4)
    elif version == 6:
        length, following, wide = 40, 6, (8, 16)
    else:
        return None
    if len(packet) < max(length, 20) + 8 + 1 or packet[following] != _UDP:
        return None
    if int.from_bytes(packet[length + 2 : length + 4], "big") != _ROCE_PORT:
        return None
    tos = packet[1] if version == 4 else int.from_bytes(packet[:2], "big") >> 4 & 0xFF
    at, size = wide
    source, destination = (
        str(ipaddress.ip_address(packet[place : place + size])) for place in (at, at + size)
    )
    return source, destination, tos >> 2, tos & 3, kind_of(packet[length + 8])


def kind_of(opcode: int) -> str:
    """Return what a BTH's opcode says: data, ack, cnp or other."""
    if opcode == _CNP:
        return "cnp"
    if opcode >> 5 not in (_RELIABLE, _UNRELIABLE, _EXTENDED):
        return "other"
    operation = opcode & 0x1F
    return "data" if operation in _DATA else "ack" if operation in _ACKS else "other"


def listen(netdev: str) -> socket.socket:
    """Return a socket that sees the sample on a NIC. Raises OSError, as without CAP_NET_RAW."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    try:
        code = program()
        kept = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog; no packet is seen before the filter is there, as the socket is bound after it.
        sock.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_FILTER), ctypes.addressof(kept))
        )
        sock.setblocking(False)
        sock.bind((netdev, _ETH_P_ALL))
    except BaseException:
        sock.close()
        raise
    return sock


def count(
    netdevs: Iterable[str],
    hear: socket.socket,
    ready: Callable[[], None],
    *,
    longest_s: float = LONGEST_S,
    opener: Callable[[str], socket.socket] = listen,
) -> dict[str, Any]:
    """Count on these NICs until the other side of a connection ends its half, or time is up: the document.

    Args:
        netdevs: which.
        hear: the connection; whatever it says is thrown away.
        ready: called once every NIC is listened to.
        longest_s: seconds after which it ends by itself.
        opener: what opens a NIC.
    """
    samples = {netdev: Sample() for netdev in netdevs}
    begin = time.monotonic()
    lost: dict[str, int] = {}
    with selectors.DefaultSelector() as waiting:
        for netdev, sample in samples.items():
            try:
                waiting.register(opener(netdev), selectors.EVENT_READ, netdev)
            except OSError as error:
                sample.error = f"{netdev} cannot be listened to: {error.strerror or error}"
        ready()
        waiting.register(hear, selectors.EVENT_READ, None)
        ended = False
        while not ended and (left := begin + longest_s - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                if key.data is None:
                    ended = _hung_up(hear)
                else:
                    _drain(key.fileobj, samples[key.data])  # type: ignore[arg-type]
        waiting.unregister(hear)
        for key in list(waiting.get_map().values()):
            sock: Any = key.fileobj
            _drain(sock, samples[key.data])
            lost[key.data] = _dropped(sock)
            waiting.unregister(sock)
            sock.close()
    return {
        "schema": SCHEMA,
        "one_of": ONE_OF,
        "seconds": round(time.monotonic() - begin, 3),
        "netdevs": {
            netdev: {
                "error": sample.error,
                "full": sample.full,
                "missed": lost.get(netdev, 0),
                "packets": [
                    {
                        "source": source,
                        "destination": destination,
                        "dscp": dscp,
                        "ecn": ecn,
                        "kind": kind,
                        "count": n,
                    }
                    for (source, destination, dscp, ecn, kind), n in sorted(sample.packets.items())
                ],
            }
            for netdev, sample in samples.items()
        },
    }


def _hung_up(hear: socket.socket) -> bool:
    try:
        return not hear.recv(4096)
    except OSError:
        return True


def _drain(sock: Any, sample: Sample) -> None:  # noqa: ANN401  (a socket, or a test's stand-in for one)
    """Take what a socket holds; once the sample is full it is emptied all the same, so that select rests."""
    for _ in range(256):
        try:
            packet, address = sock.recvfrom(_HEADER_BYTES)
        except OSError:  # nothing is left, or the NIC went down
            return
        if not sample.full:
            sample.take(packet, address[2])


def _dropped(sock: Any) -> int:  # noqa: ANN401  (as above)
    """Return how many packets of the sample the kernel had no room for (struct tpacket_stats)."""
    try:
        _, drops = struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
    except (OSError, AttributeError):
        return 0
    return int(drops)


def serve(folder: Path, connection: BinaryIO) -> int:
    """Count on the fabric NICs of this host for whoever is connected; returns the exit status."""
    netdevs = [name for name in all_targets(folder) if name not in HOST_TARGETS]
    with socket.socket(fileno=connection.fileno()) as hear:
        try:
            document = count(netdevs, hear, lambda: hear.sendall(b"ready\n"))
            hear.settimeout(10)
            hear.sendall(json.dumps(document).encode() + b"\n")
        except OSError:
            return 1  # who asked is gone
        finally:
            hear.detach()
    return 0
