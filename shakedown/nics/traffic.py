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
# Frames of the port, as ethtool tells them: mlx5 (en_stats.c), bnxt (bnxt_ethtool.c), ice (ice_ethtool.c).
# Every packet of RDMA is in one; where they stand still, the driver shows what it knew before: mlx5 after an
# error of its firmware, bnxt where the firmware was told to leave no statistics (ethtool -C,
# stats-block-usecs 0).
_FRAMES = tuple(
    f"ethtool.{way}_{name}" for way in ("rx", "tx") for name in ("packets_phy", "good_frames", "unicast.nic")
)
# Less may be within a NIC alone, or counted when a driver looks again.
_ENOUGH_BYTES = 10_000_000


def counts_rdma_bytes(counters: Mapping[str, int]) -> bool:
    """Whether a device has any counter in which the bytes of RDMA must show."""
    known = any(sent in counters and received in counters for sent, received, _ in RDMA_BYTES)
    return known or all(name in counters for name in (*_SOFT_ROCE, *NETDEV_BYTES[:2]))


def ethtool_stood_still(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether RDMA moved bytes over a port whose frames, as ethtool tells them, did not become more."""
    told = [name for name in _FRAMES if name in before and name in after]
    moved = [
        unit * (after[name] - before[name])
        for *both, unit in RDMA_BYTES
        for name in map(str, both)
        if name in before and name in after
    ]
    return bool(told) and max(moved, default=0) >= _ENOUGH_BYTES and all(after[n] == before[n] for n in told)


def bytes_moved(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, int]:
    """Return the most bytes that a device can have (sent, received) between two readings.

    RDMA's counters and the netdev's are added, since either may leave out what the other counts. It is
    a bound from above: whoever claims to have moved more did not. A counter that was read once alone tells
    nothing: it may have counted for months.
    """

    def grown(name: str) -> int:
        return max(after[name] - before[name], 0) if name in before and name in after else 0

    rdma = [(unit * grown(sent), unit * grown(received)) for sent, received, unit in RDMA_BYTES]
    sent, received, _ = NETDEV_BYTES
    return max(s for s, _ in rdma) + grown(sent), max(r for _, r in rdma) + grown(received)
