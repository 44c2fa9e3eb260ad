"""Bus bandwidth of collectives: the factors of nccl-tests, and what the network or NVLink allows at most.

Source of busbw and its factors: NVIDIA nccl-tests, doc/PERFORMANCE.md. The ceilings are derived in the
docstrings. All rates are GB/s (10^9 B/s) per direction; `ranks` are GPUs.
"""

from collections.abc import Sequence
from enum import StrEnum

from shakedown.records.reading import BadInput


class Collective(StrEnum):
    """The operations of nccl-tests."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALLTOALL = "alltoall"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SENDRECV = "sendrecv"


def busbw_factor(collective: Collective, ranks: int) -> float:
    """Return busbw / algbw: 2(n-1)/n for all_reduce, (n-1)/n for gather, scatter and alltoall, else 1.

    Raises BadInput: fewer than two ranks.
    """
    if ranks < 2:
        raise BadInput(f"a collective of {ranks} rank(s) moves nothing", fix="use 2 ranks or more")
    share = (ranks - 1) / ranks
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * share
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALLTOALL:
            return share
        case Collective.BROADCAST | Collective.REDUCE | Collective.SENDRECV:
            return 1.0


def busbw_gb_per_s(collective: Collective, *, ranks: int, size_bytes: int, time_us: float) -> float:
    """Return the bus bandwidth of a measured time, in GB/s: size / time x factor, as nccl-tests computes it.

    `size_bytes` is nccl-tests' size column. 1 B/us is 1 MB/s, hence the 1e3. Raises BadInput: fewer than two
    ranks, or a time that is not positive.
    """
    if not time_us > 0:
        raise BadInput(f"a time of {time_us:g} us was not measured", fix="give the time in microseconds")
    return size_bytes / time_us / 1e3 * busbw_factor(collective, ranks)


def least_crossing_bytes(
    collective: Collective, *, size_bytes: int, ranks: int, of_node: int, root: bool | None = None
) -> tuple[float, float]:
    """Return the least that one node must (send, receive) in one call, in bytes, whatever the algorithm.

    Ring, tree or a switch that sums (SHARP): what only this node has must leave it, and what only others have
    must reach it. Of a reduction that is one message, since a node may sum its own ranks' first. Whatever an
    algorithm copies or repeats comes on top.

    Args:
        collective: which; its ranks are all in one communicator.
        size_bytes: nccl-tests' size column: of all_gather and reduce_scatter all ranks' parts together.
        ranks: of all nodes.
        of_node: of this one.
        root: whether the root is among them, of an operation that has one; None: that is not known, and then
            nothing is certain.

    Raises BadInput: a number of ranks that a node cannot have.
    """
    if not 0 < of_node <= ranks:
        raise BadInput(f"{of_node} of {ranks} ranks on one node", fix="count the ranks of each node")
    if of_node == ranks:
        return 0.0, 0.0
    size = float(size_bytes)
    mine, theirs = size * of_node / ranks, size * (ranks - of_node) / ranks
    to_all = (size, 0.0) if root else (0.0, size) if root is False else (0.0, 0.0)
    return {
        Collective.ALL_REDUCE: (size, size),
        Collective.ALL_GATHER: (mine, theirs),
        Collective.REDUCE_SCATTER: (theirs, mine),
        Collective.ALLTOALL: (of_node * theirs, of_node * theirs),
        Collective.BROADCAST: to_all,
        Collective.REDUCE: (to_all[1], to_all[0]),
        # A ring of all ranks leaves every node at least once, in whatever order they are placed.
        Collective.SENDRECV: (size, size),
    }[collective]


def flat_ring_busbw_gb_per_s(nic_gb_per_s: Sequence[float]) -> float:
    """Return the busbw ceiling of NCCL's Ring over several nodes, given the payload rates of one node's NICs.

    Every NIC carries its own ring channels with an equal share of the data, and in a ring every link carries
    busbw: g NICs give g x the slowest NIC. 8 x 400G at MTU 4096: 392.1 GB/s; with one of them at half rate
    196.1. More than this is legal only when the algorithm is not Ring. Raises BadInput: no NIC, or one
    without a rate.
    """
    if not nic_gb_per_s or not min(nic_gb_per_s) > 0:
        raise BadInput("a ring needs at least one NIC, each with a rate above 0", fix="list every NIC's GB/s")
    return len(nic_gb_per_s) * min(nic_gb_per_s)


def hierarchical_busbw_gb_per_s(node_gb_per_s: float, *, ranks: int, ranks_per_node: int) -> float:
    """Return the all_reduce busbw ceiling when each node reduces first and only 1/g crosses each NIC.

    k = n/g nodes move 2(k-1)/k x S through the node's NICs together, so busbw <= B_node x (n-1)/(n-g), more
    than a flat ring's by up to 2 x at two nodes. Applies to Tree, CollNet-like and NVLS-Tree schedules as an
    upper bound. Raises BadInput: a single node, or ranks that do not fill whole nodes.
    """
    _check_nodes(ranks, ranks_per_node)
    return node_gb_per_s * (ranks - 1) / (ranks - ranks_per_node)


def alltoall_busbw_gb_per_s(rank_gb_per_s: float, *, ranks: int, ranks_per_node: int) -> float:
    """Return the alltoall busbw ceiling per rank, given the NIC payload rate that one rank can use.

    Of n blocks, n - g leave the node through the NIC, so busbw <= B_nic x (n-1)/(n-g). Raises BadInput: a
    single node, or ranks that do not fill whole nodes.
    """
    _check_nodes(ranks, ranks_per_node)
    return rank_gb_per_s * (ranks - 1) / (ranks - ranks_per_node)


def nvls_all_reduce_busbw_gb_per_s(nvlink_gb_per_s: float, *, ranks: int) -> float:
    """Return the all_reduce busbw ceiling of NVLink SHARP, given one GPU's NVLink rate per direction.

    Model: the switch reduces, so a GPU hands out its S once for the others' sums and multicasts its own sum
    of S/n: (n+1)/n x S in all. busbw still counts 2(n-1)/n and so may reach B x 2(n-1)/(n+1). Measured nodes
    reach 0.60 to 0.69 of it (8 x H100: 480 of 700 GB/s). Raises BadInput: fewer than two ranks.
    """
    busbw_factor(Collective.ALL_REDUCE, ranks)
    return nvlink_gb_per_s * 2 * (ranks - 1) / (ranks + 1)


def _check_nodes(ranks: int, ranks_per_node: int) -> None:
    if ranks_per_node < 1 or ranks % ranks_per_node:
        raise BadInput(
            f"{ranks} ranks do not fill whole nodes of {ranks_per_node}",
            fix="use a multiple of ranks per node",
        )
    if ranks == ranks_per_node:
        raise BadInput(
            f"{ranks} ranks on one node never cross a NIC", fix="use the NVLink ceiling, or two nodes or more"
        )
