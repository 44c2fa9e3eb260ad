"""Payload ceiling of TCP over Ethernet: what a link without RDMA can carry once every header is paid for.

Sources: IEEE 802.3 (preamble, inter-frame gap), RFC 791 and RFC 8200 (IP headers), RFC 9293 (TCP header),
RFC 7323 (the timestamp option, which Linux sends by default).
"""

from __future__ import annotations

from math import inf

from shakedown.physics.roce import (
    ETHERNET_HEADER_BYTES,
    FCS_BYTES,
    INTER_FRAME_GAP_BYTES,
    IP_HEADER_BYTES,
    PREAMBLE_BYTES,
)
from shakedown.records.errors import BadInput

TCP_HEADER_BYTES = 20
TIMESTAMP_BYTES = 12  # 10 and two of padding
SMALLEST_MTU_BYTES = 576  # what every IPv4 host must take (RFC 791)


def tcp_payload_ceiling_gbps(speed_gbps: float, *, mtu_bytes: int, ip_version: int = 4) -> float:
    """Return the largest payload rate of one link and direction, in Gb/s (10^9 bit/s).

    Formula: link speed x (MTU - IP - TCP - timestamps) / (MTU + Ethernet framing). 10 Gb/s at MTU 1500 over
    IPv4: 9.41 Gb/s; at 9000: 9.90 Gb/s. `mtu_bytes` is the interface's, an IP packet.

    Raises:
        BadInput: a speed that is not positive, an MTU too small for a segment, or no such IP version.
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
