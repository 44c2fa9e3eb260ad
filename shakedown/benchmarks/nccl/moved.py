"""What nccl-tests must have sent between nodes: the least that its operation needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shakedown.benchmarks.base.metrics import Moved, Output
from shakedown.benchmarks.nccl.metrics import repeats
from shakedown.benchmarks.nccl.order import NcclOrder
from shakedown.benchmarks.nccl.output_model import NcclResult, NcclRow
from shakedown.physics.collectives import Collective, least_crossing_bytes


def moved(output: Output[NcclOrder]) -> Iterator[Moved]:
    """Yield the least that each node must have sent and received over its NICs under test, in bytes.

    Nothing is said of one node, of a sweep over a network of its own (`tcp_fabrics`), of groups that run side
    by side (NCCL_TESTS_SPLIT), and of a run that was told to leave RDMA out: its way fails by NCCL's log.
    Warm-up, checks and the tuning run come on top. Counted are timings whose data were checked: nccl-tests
    cannot check every operation in place. Raises BadInput as `nccl` does.
    """
    order, nodes = output.order, output.record.nodes
    if len(nodes) < 2 or order.network or order.split != "none" or _leaves_rdma_out(order):
        return
    operation = Collective(output.record.test.removeprefix("nccl_"))
    sums = {node: [0.0, 0.0] for node in nodes}
    for run in repeats(output):
        calls = run.iterations * max(run.aggregated_iterations, 1)
        for row in run.rows:
            root_at = _node_of_root(run, row, nodes)
            timings = sum(1 for one in (row.out_of_place, row.in_place) if one and one.wrong is not None)
            for node, least in least_by_node(operation, row.size_bytes, order.gpus, root_at).items():
                for way, bytes_ in enumerate(least):
                    sums[node][way] += bytes_ * calls * timings
    for node, (sent, received) in sums.items():
        yield Moved(node, None, sent, received)


def least_by_node(
    operation: Collective, size_bytes: int, gpus: Mapping[str, int], root_at: str | None
) -> dict[str, tuple[float, float]]:
    """Return the least that each node must (send, receive) in one call, given the ranks of each."""
    return {
        node: least_crossing_bytes(
            operation,
            size_bytes=size_bytes,
            ranks=sum(gpus.values()),
            of_node=of_node,
            root=None if root_at is None else node == root_at,
        )
        for node, of_node in gpus.items()
    }


def _leaves_rdma_out(order: NcclOrder) -> bool:
    """Whether NCCL was told to use no verbs, where they are planned (NCCL user guide, environment)."""
    return not order.expect.interfaces and without_rdma(order.variables)


def without_rdma(variables: Mapping[str, str]) -> bool:
    """Whether NCCL uses no verbs with these variables (NCCL user guide, environment)."""
    return variables.get("NCCL_IB_DISABLE", "0") != "0" or variables.get("NCCL_NET", "IB").upper() != "IB"


def _node_of_root(run: NcclResult, row: NcclRow, nodes: tuple[str, ...]) -> str | None:
    """Return the node whose rank is the root; None if there is no root, or no node of its host's name."""
    # JSON lists the first rank of each process only.
    return node_of(next((d.host for d in reversed(run.devices) if d.rank <= row.root), ""), nodes)


def node_of(host: str, nodes: Iterable[str]) -> str | None:
    """Return the node of a host's own name, with or without its domain; None if there is none, or several."""
    found = [node for node in nodes if node in (host, host.partition(".")[0])]
    return found[0] if len(found) == 1 else None
