"""The count of arriving RoCE packets: which are taken, as what, and what is never counted."""

import ipaddress
import json
import os
import socket
import struct
import threading
import time
from typing import Any

import pytest
from host_settings import arrivals

from tests.kit.cases import cases

HOST, OUTGOING = 0, 4
WRITE, ACK, CNP, DATAGRAM = 0x07, 0x11, 0x81, 0x64


def packet(
    source: str = "10.0.0.1",
    destination: str = "10.0.0.2",
    *,
    tos: int = 106,
    opcode: int = WRITE,
    port: int = 4791,
    protocol: int = 17,
    options: bytes = b"",
    fragment: int = 0,
) -> bytes:
    """The start of a RoCE packet, from its IP header on."""
    ends = [ipaddress.ip_address(end) for end in (source, destination)]
    udp = struct.pack("!HHHH", 50000, port, 20, 0) + bytes([opcode]) + bytes(11)
    if ends[0].version == 6:
        return (
            struct.pack("!IHBB", 6 << 28 | tos << 20, len(udp), protocol, 64)
            + b"".join(end.packed for end in ends)
            + udp
        )
    length = 5 + len(options) // 4
    header = struct.pack(
        "!BBHHHBBH", 4 << 4 | length, tos, 4 * length + len(udp), 1, fragment, 64, protocol, 0
    )
    return header + b"".join(end.packed for end in ends) + options + udp


def kept(program: bytes, frame: bytes, *, ethertype: int, packet_type: int = HOST, random: int = 0) -> int:
    """What the kernel makes of the filter: bytes kept of a packet (Documentation/networking/filter.rst)."""
    code = list(struct.iter_unpack("=HBBI", program))
    extra = {0xFFFFF000: ethertype, 0xFFFFF004: packet_type, 0xFFFFF038: random}
    at = value = index = 0
    while True:
        operation, yes, no, constant = code[at]
        at += 1
        if operation == 0x06:
            return int(constant)
        if operation in (0x20, 0x28, 0x30, 0x48):
            size = {0x20: 4, 0x28: 2, 0x30: 1, 0x48: 2}[operation]
            start = constant + (index if operation == 0x48 else 0)
            if constant in extra:
                value = extra[constant]
            elif start + size > len(frame):
                return 0
            else:
                value = int.from_bytes(frame[start : start + size], "big")
        elif operation == 0xB1:
            index = 4 * (frame[constant] & 0xF)
        elif operation == 0x54:
            value &= constant
        else:
            holds = value == constant if operation == 0x15 else bool(value & constant)
            at += yes if holds else no


@cases(
    "frame, more, taken",
    (packet(), {}, True),
    (packet(options=bytes(8)), {}, True),
    (packet("fd00::1", "fd00::2"), {"ethertype": 0x86DD}, True),
    (packet(), {"packet_type": OUTGOING}, False),
    (packet("fd00::1", "fd00::2"), {"packet_type": OUTGOING, "ethertype": 0x86DD}, False),
    (packet(), {"random": 1}, False),
    (packet(port=4790), {}, False),
    (packet("fd00::1", "fd00::2", port=53), {"ethertype": 0x86DD}, False),
    (packet(protocol=6), {}, False),
    (packet("fd00::1", "fd00::2", protocol=6), {"ethertype": 0x86DD}, False),
    (packet(fragment=185), {}, False),
    (packet(), {"ethertype": 0x0806}, False),
)
def test_the_filter_keeps_arriving_roce_alone(frame, more, taken):
    """Catches a filter that shows this program other traffic, or what the host itself sent."""
    kept_bytes = kept(arrivals.program(), frame, **{"ethertype": 0x0800, **more})
    assert (kept_bytes > 0) is taken
    assert kept_bytes in (0, 60)


@cases(
    "frame, read",
    (packet(), ("10.0.0.1", "10.0.0.2", 26, 2, "data")),
    (packet(tos=0), ("10.0.0.1", "10.0.0.2", 0, 0, "data")),
    (packet(tos=0x6B, options=bytes(4)), ("10.0.0.1", "10.0.0.2", 26, 3, "data")),
    (packet("fd00::1", "fd00::2", tos=104), ("fd00::1", "fd00::2", 26, 0, "data")),
    (packet(opcode=ACK), ("10.0.0.1", "10.0.0.2", 26, 2, "ack")),
    (packet(opcode=CNP, tos=192), ("10.0.0.1", "10.0.0.2", 48, 0, "cnp")),
    (packet(opcode=DATAGRAM), ("10.0.0.1", "10.0.0.2", 26, 2, "other")),
    (packet(opcode=0x0C), ("10.0.0.1", "10.0.0.2", 26, 2, "other")),
    (packet(opcode=0x0E), ("10.0.0.1", "10.0.0.2", 26, 2, "data")),
    (packet(port=4790), None),
    (packet(protocol=6), None),
    (packet()[:28], None),
    (packet("fd00::1", "fd00::2")[:48], None),
    (b"", None),
    (b"\x4f" + bytes(59), None),
)
def test_a_header_is_read_as_what_it_is(frame, read):
    """Catches a DSCP read from wrong bits, management taken for data, a cut packet that ends the count."""
    assert arrivals.parsed(frame) == read


def test_what_the_host_sent_itself_never_counts():
    """Catches outgoing packets counted as arriving, should a kernel's filter let them through."""
    sample = arrivals.Sample()
    sample.take(packet(), OUTGOING)
    sample.take(packet(tos=0), HOST)
    assert dict(sample.packets) == {("10.0.0.1", "10.0.0.2", 0, 0, "data"): 1}


def counted(netdevs: list[str], opener: Any, send: Any, *, longest_s: float = 10) -> dict[str, Any]:
    """Run the count in a thread, as for a job that sends and then hangs up."""
    mine, theirs = socket.socketpair()
    ready, found = threading.Event(), {}

    def run() -> None:
        found.update(arrivals.count(netdevs, theirs, ready.set, longest_s=longest_s, opener=opener))

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(5)
    send()
    mine.shutdown(socket.SHUT_WR)
    thread.join(15)
    assert not thread.is_alive()
    mine.close()
    theirs.close()
    return found


def no_right(_netdev: str) -> socket.socket:
    """Refuse as the kernel refuses who lacks CAP_NET_RAW."""
    raise PermissionError(1, "Operation not permitted")


def test_without_the_right_to_listen_it_says_so():
    """Catches a sampler without rights that reports an empty count as if nothing had come."""
    found = counted(["eth9"], no_right, lambda: None)
    assert found["netdevs"]["eth9"]["error"] == "eth9 cannot be listened to: Operation not permitted"
    assert found["netdevs"]["eth9"]["packets"] == []


class Frames:
    """A socket that has so many packets to give."""

    def __init__(self, frames: int) -> None:
        self.left = frames
        self.readable, self._writer = os.pipe()
        os.write(self._writer, b"x")

    def fileno(self) -> int:
        """What select waits on."""
        return self.readable

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[object, ...]]:
        """Return a packet, until there is none."""
        if not self.left:
            if self.readable >= 0 and self._writer >= 0:
                os.read(self.readable, 1)
                os.close(self._writer)
                self._writer = -1
            raise BlockingIOError
        self.left -= 1
        return packet(), ("eth9", 0x0800, HOST)

    def close(self) -> None:
        """Done."""
        os.close(self.readable)


def test_the_count_is_bounded_in_packets_and_in_time(monkeypatch):
    """Catches a flood that keeps a service of the host busy, or one that waits for ever for who asked."""
    monkeypatch.setattr(arrivals, "MOST_PACKETS", 300)
    mine, theirs = socket.socketpair()
    begin = time.monotonic()
    found = arrivals.count(["eth9"], theirs, lambda: None, longest_s=0.5, opener=lambda _: Frames(2000))  # type: ignore[arg-type,return-value]
    assert 0.4 < time.monotonic() - begin < 5
    assert found["netdevs"]["eth9"]["full"] is True
    assert [p["count"] for p in found["netdevs"]["eth9"]["packets"]] == [300]
    mine.close()
    theirs.close()


def _may_listen() -> bool:
    try:
        arrivals.listen("lo").close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _may_listen(), reason="this user may not see packets")
def test_packets_on_a_real_interface_are_counted_once_each():
    """Catches a filter that the kernel takes and that lets through what it should not, or nothing."""

    def send() -> None:
        four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        four.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 106)
        with four:
            for _ in range(1600):
                four.sendto(bytes([WRITE]) + bytes(20), ("127.0.0.1", 4791))
                four.sendto(bytes([WRITE]) + bytes(20), ("127.0.0.1", 4790))
        time.sleep(0.3)

    found = counted(["lo"], arrivals.listen, send)["netdevs"]["lo"]
    mine = [p for p in found["packets"] if p["source"] == "127.0.0.1"]
    assert [(p["dscp"], p["ecn"], p["kind"]) for p in mine] == [(26, 2, "data")]
    # One of eight, by chance: 200 +- 13; both ways of the loopback would be 400.
    assert 120 < mine[0]["count"] < 290
    json.dumps(found)
