"""How many bytes a NIC says that it sent and received, from the counters that its driver has."""

from __future__ import annotations

from collections.abc import Mapping

# Counters of bytes that RDMA moved: (sent, received, bytes a unit).
RDMA_BYTES = (
    # IBTA's port counters, in words of four bytes (Linux, Documentation/ABI/stable/sysfs-class-infiniband);
    # mlx5 counts RoCE in them, and not in the netdev's.
    ("ib.port_xmit_data", "ib.port_rcv_data", 4),
    ("rdma.tx_bytes", "rdma.rx_bytes", 1),  # bnxt_re, hw_counters.c
    ("rdma.ip4OutOctets", "rdma.ip4InOctets", 1),  # irdma, hw.c
)
# Soft-RoCE sends through its netdev, which therefore counts all of it (drivers/infiniband/sw/rxe).
_SOFT_ROCE = ("rdma.sent_pkts", "rdma.rcvd_pkts")
NETDEV_BYTES = ("netdev.tx_bytes", "netdev.rx_bytes", 1)


def counts_rdma_bytes(counters: Mapping[str, int]) -> bool:
    """Whether a device has any counter in which the bytes of RDMA must show."""
    known = any(sent in counters and received in counters for sent, received, _ in RDMA_BYTES)
    return known or all(name in counters for name in (*_SOFT_ROCE, *NETDEV_BYTES[:2]))


def bytes_moved(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, int]:
    """Return the most bytes that a device can have (sent, received) between two readings.

    RDMA's counters and the netdev's are added, since either may leave out what the other counts. It is
    a bound from above: whoever claims to have moved more did not.
    """

    def grown(name: str) -> int:
        return max(after.get(name, 0) - before.get(name, 0), 0)

    rdma = [(unit * grown(sent), unit * grown(received)) for sent, received, unit in RDMA_BYTES]
    sent, received, _ = NETDEV_BYTES
    return max(s for s, _ in rdma) + grown(sent), max(r for _, r in rdma) + grown(received)
