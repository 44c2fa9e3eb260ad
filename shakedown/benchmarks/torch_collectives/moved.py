"""What the collectives through PyTorch must have sent between nodes: the least that they need."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.benchmarks.base.metrics import Moved, Output
from shakedown.benchmarks.nccl.moved import least_by_node, node_of, without_rdma
from shakedown.benchmarks.torch_collectives.metrics import as_ordered
from shakedown.benchmarks.torch_collectives.order import TorchOrder
from shakedown.benchmarks.torch_collectives.program import burst_iterations
from shakedown.physics.collectives import Collective


def moved(output: Output[TorchOrder]) -> Iterator[Moved]:
    """Yield the least that each node must have sent and received over its NICs under test, in bytes.

    Nothing is said of one node, of gloo, which has a network of its own choice, and of a run that was told to
    leave RDMA out. Warm-up and checks come on top. Raises BadInput as `torch_collectives` does.
    """
    order, nodes = output.order, tuple(output.order.ranks)
    if len(nodes) < 2 or order.backend != "nccl" or without_rdma(order.variables):
        return
    operation = Collective(output.record.test.removeprefix("torch_"))
    result = as_ordered(output)
    root_at = node_of(result.header.hosts[0], nodes)  # rank 0 is the root of all that have one
    sums = {node: [0.0, 0.0] for node in nodes}
    for row in result.rows:
        if row.operation != operation:
            continue
        times = order.iterations if row.checked else burst_iterations(order.iterations)
        for node, least in least_by_node(operation, row.size_bytes, order.ranks, root_at).items():
            for way, bytes_ in enumerate(least):
                sums[node][way] += bytes_ * row.messages * times
    for node, (sent, received) in sums.items():
        yield Moved(node, None, sent, received)
