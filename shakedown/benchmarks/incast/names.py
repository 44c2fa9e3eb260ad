"""Names that the plan, the job and the reader of its outputs share. Standard library only: nodes use it."""

from __future__ import annotations

NAME = "incast"
# Tests of the cells, which are the patterns.
INCAST, ALL_TO_ALL = "incast", "all_to_all"

# What shows that senders were held back: pause frames of the RoCE priority (`N`), at senders that the switch
# pauses and at a receiver that pauses the switch, and packets that arrived marked, with the notices of them.
# Linux, drivers/net/ethernet/mellanox/mlx5/core/en_stats.c and drivers/infiniband/hw/mlx5/counters.c;
# drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c and drivers/infiniband/hw/bnxt_re/hw_counters.c.
HELD_BACK = {
    "mlx5": (
        "ethtool.rx_prioN_pause",
        "ethtool.tx_prioN_pause",
        "rdma.np_ecn_marked_roce_packets",
        "rdma.np_cnp_sent",
        "rdma.rp_cnp_handled",
    ),
    "bnxt": (
        "ethtool.rx_pfc_ena_frames_priN",
        "ethtool.tx_pfc_ena_frames_priN",
        "rdma.rx_ecn_marked_pkts",
        "rdma.rx_cnp_pkts",
        "rdma.tx_cnp_pkts",
    ),
}


def held_back_counters(family: str, priority: int) -> tuple[str, ...]:
    """Return the counters of a family of drivers; none: it counts neither pause nor marks."""
    return tuple(name.replace("N", str(priority)) for name in HELD_BACK.get(family, ()))


def note_name(pattern: str, receiver: str, rail: str) -> str:
    """Return the file in which a receiver notes who sent to it and what the NICs counted."""
    return f"{pattern}.{receiver}.{rail}.json"


def output_name(pattern: str, sender: str, receiver: str, rail: str) -> str:
    """Return the file of a sender's perftest."""
    return f"{pattern}.{sender},{receiver}.{rail}.txt"
