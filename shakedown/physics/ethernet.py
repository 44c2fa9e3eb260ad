"""Payload ceilings of Ethernet links: RoCE v2 and TCP, once every header is paid for."""

from __future__ import annotations

from enum import StrEnum
from math import ceil, inf

from shakedown.records.reading import BadInput

# Sources: IBTA Architecture Specification vol. 1, annexes A16/A17 (RoCE, RoCE v2: headers, ICRC, MTUs); IEEE
# 802.3 (preamble, inter-frame gap, minimum frame); RFC 791 and RFC 8200 (IP headers).

PREAMBLE_BYTES = 8  # with start-of-frame delimiter
INTER_FRAME_GAP_BYTES = 12
ETHERNET_HEADER_BYTES = 14
FCS_BYTES = 4
VLAN_TAG_BYTES = 4
IP_HEADER_BYTES = {4: 20, 6: 40}
UDP_HEADER_BYTES = 8
ROCE_UDP_PORT = 4791  # RoCE v2 (IBTA annex A17; IANA)
BTH_BYTES = 12
ICRC_BYTES = 4
RETH_BYTES = 16  # on the first (or only) packet of a WRITE
AETH_BYTES = 4  # on the first and the last (or only) packet of a READ response
MINIMUM_FRAME_BYTES = 64
# IBTA knows these RDMA MTUs and no others; a host takes the largest that its Ethernet MTU can hold.
RDMA_MTUS_BYTES = (256, 512, 1024, 2048, 4096)
# What Linux reserves for headers when it derives the RDMA MTU: GRH 40 + UDP 8 + BTH 12 + XRC 4 + AtomicETH 28
# + ICRC 4 (kernel, include/rdma/ib_addr.h, iboe_get_mtu).
KERNEL_RESERVE_BYTES = 96


class RoceOperation(StrEnum):
    """The RDMA operation whose data packets fill the link."""

    WRITE = "write"
    READ = "read"
    SEND = "send"


def rdma_mtu_bytes(ethernet_mtu_bytes: int) -> int:
    """Return the RDMA MTU that Linux derives from a netdev's MTU: 9000 -> 4096, 1500 -> 1024.

    Raises BadInput: the netdev's MTU is too small for any RDMA MTU.
    """
    room = ethernet_mtu_bytes - KERNEL_RESERVE_BYTES
    fitting = [mtu for mtu in RDMA_MTUS_BYTES if mtu <= room]
    if not fitting:
        raise BadInput(
            f"an Ethernet MTU of {ethernet_mtu_bytes} B holds no RDMA packet", fix="use 1500 or more"
        )
    return fitting[-1]


def packet_overhead_bytes(*, ip_version: int = 4, vlan: bool = False) -> int:
    """Return the wire bytes of a RoCE v2 packet beside its payload: 82 (IPv4), 102 (IPv6), +4 VLAN.

    Raises BadInput: an IP version other than 4 and 6.
    """
    if ip_version not in IP_HEADER_BYTES:
        raise BadInput(f"IP version {ip_version} does not exist", fix="use 4 or 6")
    return (
        PREAMBLE_BYTES
        + INTER_FRAME_GAP_BYTES
        + ETHERNET_HEADER_BYTES
        + (VLAN_TAG_BYTES if vlan else 0)
        + IP_HEADER_BYTES[ip_version]
        + UDP_HEADER_BYTES
        + BTH_BYTES
        + ICRC_BYTES
        + FCS_BYTES
    )


def message_wire_bytes(
    message_bytes: int,
    *,
    rdma_mtu_bytes: int,
    operation: RoceOperation = RoceOperation.WRITE,
    ip_version: int = 4,
    vlan: bool = False,
) -> int:
    """Return the bytes of link time that one message takes in the direction of its data.

    Acknowledgements and READ requests flow the other way and are not counted: the result is a lower bound,
    hence the ceiling made from it an upper one. Raises BadInput: no such MTU or IP version, or a message
    shorter than one byte.
    """
    _check_mtu(rdma_mtu_bytes)
    if message_bytes < 1:
        raise BadInput(f"a message of {message_bytes} B carries nothing", fix="use 1 B or more")
    overhead = packet_overhead_bytes(ip_version=ip_version, vlan=vlan)
    packets = ceil(message_bytes / rdma_mtu_bytes)
    if operation is RoceOperation.WRITE:
        extension = RETH_BYTES
    elif operation is RoceOperation.READ:
        extension = AETH_BYTES * min(packets, 2)
    else:
        extension = 0
    # The last packet is padded to four bytes (BTH pad count) and to the smallest Ethernet frame.
    padding = -message_bytes % 4
    frame = overhead - PREAMBLE_BYTES - INTER_FRAME_GAP_BYTES
    last = message_bytes - (packets - 1) * rdma_mtu_bytes + padding
    padding += max(0, MINIMUM_FRAME_BYTES - frame - last)
    return message_bytes + padding + packets * overhead + extension


def payload_efficiency(
    *,
    rdma_mtu_bytes: int,
    operation: RoceOperation = RoceOperation.WRITE,
    message_bytes: int | None = None,
    ip_version: int = 4,
    vlan: bool = False,
) -> float:
    """Return payload over wire bytes, 0 to 1: MTU / (MTU + 82) for endless messages (`message_bytes=None`).

    Raises BadInput: as `message_wire_bytes`.
    """
    if message_bytes is None:
        _check_mtu(rdma_mtu_bytes)
        return rdma_mtu_bytes / (rdma_mtu_bytes + packet_overhead_bytes(ip_version=ip_version, vlan=vlan))
    return message_bytes / message_wire_bytes(
        message_bytes, rdma_mtu_bytes=rdma_mtu_bytes, operation=operation, ip_version=ip_version, vlan=vlan
    )


def payload_ceiling_gbps(
    speed_gbps: float,
    *,
    rdma_mtu_bytes: int,
    operation: RoceOperation = RoceOperation.WRITE,
    message_bytes: int | None = None,
    ip_version: int = 4,
    vlan: bool = False,
) -> float:
    """Return the largest payload rate of one link and direction, in Gb/s (10^9 bit/s).

    Formula: link speed x payload bytes / wire bytes. `speed_gbps` is the MAC rate that the link is sold by;
    forward error correction and line coding are below it. 400 Gb/s at MTU 4096 over IPv4: 392.15 Gb/s. Raises
    BadInput: a speed that is not positive, or as `message_wire_bytes`.
    """
    if not 0 < speed_gbps < inf:
        raise BadInput(f"a link of {speed_gbps:g} Gb/s carries nothing", fix="give the link speed in Gb/s")
    return speed_gbps * payload_efficiency(
        rdma_mtu_bytes=rdma_mtu_bytes,
        operation=operation,
        message_bytes=message_bytes,
        ip_version=ip_version,
        vlan=vlan,
    )


def _check_mtu(mtu: int) -> None:
    if mtu not in RDMA_MTUS_BYTES:
        raise BadInput(
            f"RDMA MTU {mtu} B does not exist",
            fix="use 256, 512, 1024, 2048 or 4096 (an Ethernet MTU of 9000 gives 4096, 1500 gives 1024)",
        )


# Sources: IEEE 802.3 (preamble, inter-frame gap), RFC 791 and RFC 8200 (IP headers), RFC 9293 (TCP header),
# RFC 7323 (the timestamp option, which Linux sends by default).

TCP_HEADER_BYTES = 20
TIMESTAMP_BYTES = 12  # 10 and two of padding
SMALLEST_MTU_BYTES = 576  # what every IPv4 host must take (RFC 791)


def tcp_payload_ceiling_gbps(speed_gbps: float, *, mtu_bytes: int, ip_version: int = 4) -> float:
    """Return the largest payload rate of one link and direction, in Gb/s (10^9 bit/s).

    Formula: link speed x (MTU - IP - TCP - timestamps) / (MTU + Ethernet framing). 10 Gb/s at MTU 1500 over
    IPv4: 9.41 Gb/s; at 9000: 9.90 Gb/s. `mtu_bytes` is the interface's, an IP packet. Raises BadInput: a
    speed that is not positive, an MTU too small for a segment, or no such IP version.
    """
    if not 0 < speed_gbps < inf:
        raise BadInput(f"a link of {speed_gbps:g} Gb/s carries nothing", fix="give the link speed in Gb/s")
    if ip_version not in IP_HEADER_BYTES:
        raise BadInput(f"IP version {ip_version} does not exist", fix="use 4 or 6")
    if mtu_bytes < SMALLEST_MTU_BYTES:
        raise BadInput(f"an MTU of {mtu_bytes} B is no interface's", fix=f"use {SMALLEST_MTU_BYTES} or more")
    framing = PREAMBLE_BYTES + INTER_FRAME_GAP_BYTES + ETHERNET_HEADER_BYTES + FCS_BYTES
    payload = mtu_bytes - IP_HEADER_BYTES[ip_version] - TCP_HEADER_BYTES - TIMESTAMP_BYTES
    return speed_gbps * payload / (mtu_bytes + framing)
