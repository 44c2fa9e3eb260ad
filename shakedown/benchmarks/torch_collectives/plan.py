"""Plan the collectives through PyTorch."""

from __future__ import annotations

from shakedown.benchmarks.base import software
from shakedown.benchmarks.base.tcp import all_tcp_paths
from shakedown.benchmarks.gpu.plan import gpu_nodes
from shakedown.benchmarks.nccl.plan import CORRECT, groups
from shakedown.benchmarks.torch_collectives.options import TorchCollectives
from shakedown.benchmarks.torch_collectives.order import TorchOrder
from shakedown.plan.draft import Draft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.errors import BadInput


def plan_torch(draft: Draft, torch: TorchCollectives) -> None:
    """The same collectives through PyTorch, and one large message against many small ones."""
    software.required(draft.site.software, "pytorch", by="acceptance.torch needs PyTorch")
    # gloo needs no GPU: as many processes as a node has GPUs, or one.
    nodes = gpu_nodes(draft) if torch.backend == "nccl" else draft.nodes
    for part in _parts(torch):
        at_once = part.nodes or len(nodes)
        if at_once > len(nodes):
            raise BadInput(f"acceptance.torch asks for {at_once} nodes, there are {len(nodes)}")
        for group in groups(nodes, at_once):
            _torch_job(draft, part, group, "" if part.nodes is None else f".{at_once}x.{group[0]}")


def _parts(torch: TorchCollectives) -> tuple[TorchCollectives, ...]:
    """Return what runs together: sweep and comparison, or each by itself if they take other nodes."""
    if torch.many_nodes in {None, torch.nodes} or not (torch.many and torch.operations):
        nodes = torch.nodes if torch.operations or torch.many_nodes is None else torch.many_nodes
        return (torch.model_copy(update={"nodes": nodes}),)
    sweep = torch.model_copy(update={"many": 0})
    return sweep, torch.model_copy(update={"operations": (), "nodes": torch.many_nodes})


def _torch_job(draft: Draft, torch: TorchCollectives, nodes: tuple[str, ...], suffix: str) -> None:
    ranks = {node: draft.site.gpus.get(node) or 1 for node in nodes}
    params: Params = {"backend": torch.backend}

    def cell(test: str, metric: str, more: dict[str, int]) -> None:
        scope: dict[str, int | str] = {"nodes": len(nodes), "gpus": sum(ranks.values()), "dtype": "float"}
        entry = draft.reference(test, metric, {**scope, **more})
        draft.add(entry, test, stage=Stage.COLLECTIVE, nodes=[nodes], params={**params, **more})

    for operation in torch.operations:
        for size in torch.sweep_sizes():
            cell(f"torch_{operation}", "busbw", {"size_bytes": size})
            draft.forbid(
                CORRECT,
                f"torch_{operation}",
                stage=Stage.COLLECTIVE,
                nodes=[nodes],
                params={**params, "size_bytes": size},
            )
    tests = [f"torch_{operation}" for operation in torch.operations]
    if torch.many:
        for messages in (1, torch.many):
            size = torch.large_bytes // messages
            cell("torch_all_reduce", "busbw", {"messages": messages, "size_bytes": size})
        cell("torch_all_reduce", "large_over_small", {"messages": torch.many})
        tests = [*dict.fromkeys([*tests, "torch_all_reduce"])]
    order = TorchOrder(
        **torch.model_dump(),
        sizes=torch.sweep_sizes(),
        ranks=ranks,
        shared_gpus=tuple(node for node in draft.site.shared_gpus if node in nodes),
        paths=all_tcp_paths(draft.site, nodes),
        params=params,
    )
    draft.jobs.append(
        JobSpec(
            name=f"collective.torch.{torch.backend}{suffix}",
            kind="torch_collectives",
            stage=Stage.COLLECTIVE,
            tests=tuple(tests),
            nodes=nodes,
            time_limit_s=60 + torch.timeout_s,
            expected_s=15,
            expected_from="15 s for PyTorch's collectives on four H200 of one node (recorded run "
            "h200x4_nccl)",
            settings=order.model_dump(),
            params=params,
            whole=True,
        )
    )
