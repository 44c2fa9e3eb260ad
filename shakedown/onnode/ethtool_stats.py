"""What `ethtool -S` and `ethtool -I --show-fec` print, asked of the kernel itself: no process, no root.

Linux, include/uapi/linux/ethtool.h and ethtool_netlink.h; net/ethtool/ioctl.c (dev_ethtool) lets anybody read
statistics, net/ethtool/netlink.c anybody read FEC. Standard library only: it runs on the nodes.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATS_SET = 1  # ETH_SS_STATS
_NAME_BYTES = 32  # ETH_GSTRING_LEN
# A thousand rings with twenty counters each. The kernel writes as many values as the driver has when it is
# asked for them, which may be more than it said a moment before: there is room for as many again.
_MOST = 32_768
# Counters of single rings: "rx12_packets", "tx0_3_cqes", "ch4_events" (mlx5), "[7]: rx_discards" (bnxt),
# "rx_queue_3_bytes" (ice, older virtio_net), "rx-3.bytes" (i40e). A 400G NIC has thousands; none is judged.
_OF_RING = re.compile(r"\[\d+\]|(?:rx|tx|ch|rx_queue_|tx_queue_|rx-|tx-|veb\.tc_)\d+[_.]")
UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")  # what the names of the records have not: blanks, brackets, colons

Ioctl = Callable[[int, int, bytearray], object]


# What the kernel and its drivers answer where there is nothing of the kind to be read: no such command,
# family or file; 524 is the kernel's own ENOTSUPP, which some drivers let through.
_NOTHING_THERE = frozenset({errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, 524})


class NoStatisticsError(OSError):
    """A device has no statistics, or what it gave is not to be trusted."""


def nothing_there(error: OSError) -> bool:
    """Whether an error says that a device, driver or kernel has no such counters, not that reading failed."""
    return error.errno in _NOTHING_THERE


def statistics(netdev: str, ioctl: Ioctl = fcntl.ioctl) -> dict[str, int]:
    """Return the counters of a network device by the driver's own names, without those of single rings.

    A name that stands there twice (vmxnet3 repeats its own for each queue) tells nothing and is left out.
    Raises OSError: the device has none, or their number changed while they were read (NoStatisticsError).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def ask(command: array.array[int]) -> None:
            address, _ = command.buffer_info()
            request = struct.pack("16sP16x", netdev.encode()[:15], address)
            ioctl(control.fileno(), _SIOCETHTOOL, bytearray(request))

        info = _buffer(struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATS_SET, 0))
        ask(info)
        mask, number = struct.unpack_from("=QI", info, 8)
        if not mask or not number:
            raise NoStatisticsError(errno.EOPNOTSUPP, "it has no statistics")
        if number > _MOST:
            raise NoStatisticsError(errno.EOVERFLOW, f"it says that it has {number} counters")
        names = _buffer(struct.pack("=III", _GSTRINGS, _STATS_SET, number) + bytes(2 * _NAME_BYTES * number))
        values = _buffer(struct.pack("=II", _GSTATS, number) + bytes(2 * 8 * number))
        ask(names)
        ask(values)
    if struct.unpack_from("=I", names, 8)[0] != number or struct.unpack_from("=I", values, 4)[0] != number:
        raise NoStatisticsError(errno.EAGAIN, "the number of counters changed while they were read")
    found: dict[str, int] = {}
    twice: set[str] = set()
    numbers = struct.unpack_from(f"={number}Q", values, 8)
    raw = names.tobytes()
    for at, value in enumerate(numbers):
        field = raw[12 + at * _NAME_BYTES : 12 + (at + 1) * _NAME_BYTES]
        text = field.split(b"\0")[0].decode("ascii", "replace").strip()
        name = UNFIT.sub("_", text)
        if not name or _OF_RING.match(text):
            continue
        if name in found:
            twice.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in twice}


def _buffer(content: bytes) -> array.array[int]:
    return array.array("B", content)


_NETLINK_GENERIC, _CONTROL_FAMILY, _GET_FAMILY = 16, 0x10, 3  # linux/netlink.h, linux/genetlink.h
_FAMILY_ID, _FAMILY_NAME = 1, 2
_ERROR, _REQUEST = 2, 1
_FEC_GET, _FEC_HEADER, _FEC_STATS = 29, 1, 5
_DEV_NAME, _FLAGS, _WITH_STATS = 2, 3, 1 << 2
# ETHTOOL_A_FEC_STAT_*: arrays of 64 bits, the total first, then each lane.
_FEC_NAMES = {2: "corrected_blocks", 3: "uncorrectable_blocks", 4: "corrected_bits"}
_TIMEOUT_S = 2.0


def fec(netdev: str, family: int) -> dict[str, int]:
    """Return what a device's FEC corrected and could not, since the driver was loaded; `family`: see below.

    Raises OSError: the device or its driver tells none of it.
    """
    header = attribute(_DEV_NAME, netdev.encode()[:15] + b"\0")
    header += attribute(_FLAGS, struct.pack("=I", _WITH_STATS))
    reply = _ask(family, _FEC_GET, attribute(_FEC_HEADER | 0x8000, header))
    return fec_counters(reply)


def fec_counters(reply: bytes) -> dict[str, int]:
    """Return the totals in the attributes of an answer to ETHTOOL_MSG_FEC_GET."""
    found = {}
    for kind, content in attributes(reply):
        if kind != _FEC_STATS:
            continue
        for name, values in attributes(content):
            if name in _FEC_NAMES and len(values) >= 8:
                found[_FEC_NAMES[name]] = int(struct.unpack_from("=Q", values)[0])
    return found


def ethtool_family() -> int:
    """Return the number under which this kernel has ethtool's netlink (5.6). Raises OSError as below."""
    return netlink_family("ethtool")


def netlink_family(name: str) -> int:
    """Return the number of a family of generic netlink.

    Raises OSError: there is none (`nothing_there`), or no answer.
    """
    reply = _ask(_CONTROL_FAMILY, _GET_FAMILY, attribute(_FAMILY_NAME, name.encode() + b"\0"))
    for kind, content in attributes(reply):
        if kind == _FAMILY_ID and len(content) >= 2:
            return int(struct.unpack_from("=H", content)[0])
    raise OSError(errno.EPROTO, f"the kernel did not say the netlink family of {name}")


def _ask(family: int, command: int, attributes: bytes) -> bytes:
    """Send one request and return the attributes of its answer. Raises OSError."""
    answer = ask_kernel(_NETLINK_GENERIC, family, struct.pack("=BBH", command, 1, 0) + attributes)
    if len(answer) < 20:
        raise OSError(errno.EPROTO, "no answer by netlink")
    length, kind = struct.unpack_from("=IH", answer)
    if kind == _ERROR:
        number = -struct.unpack_from("=i", answer, 16)[0]
        raise OSError(number, os.strerror(number))
    return answer[20:length]


def ask_kernel(protocol: int, kind: int, body: bytes) -> bytes:
    """Send one request of netlink and return its answer, headers and all. Raises OSError: there is none."""
    message = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        kernel.send(message)
        return kernel.recv(1 << 16)


def attribute(kind: int, content: bytes) -> bytes:
    """Return one attribute of a netlink message."""
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and content of each attribute of a netlink message."""
    at = 0
    while at + 4 <= len(content):
        length, kind = struct.unpack_from("=HH", content, at)
        if length < 4 or at + length > len(content):
            return
        yield kind & 0x3FFF, content[at + 4 : at + length]
        at += length + -length % 4
