"""Collectives through PyTorch, on GPUs or CPUs, the second opinion beside nccl-tests: plan and object."""

from pathlib import Path

from shakedown.benchmarks.base import contract
from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    Launch,
    NotAtNight,
    Tool,
    all_tcp_paths,
    own_module,
)
from shakedown.benchmarks.gpu.state import gpu_nodes
from shakedown.benchmarks.nccl.benchmark import CORRECT, groups
from shakedown.benchmarks.torch_collectives.output import (
    TorchCollectives,
    TorchSettings,
    moved,
    ran_on,
    torch_collectives,
)
from shakedown.intent.acceptance import Section
from shakedown.plan.draft import PlanDraft
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count


def plan_torch(draft: PlanDraft, torch: TorchCollectives) -> None:
    """The same collectives through PyTorch, and one large message against many small ones."""
    contract.required(draft.site.software, "pytorch", by="acceptance.torch needs PyTorch")
    # gloo needs no GPU: as many processes as a node has GPUs, or one.
    nodes = gpu_nodes(draft) if torch.backend == "nccl" else draft.nodes
    for part in _parts(torch):
        at_once = part.nodes or len(nodes)
        with draft.piece(f"PyTorch's collectives of {count(at_once, 'node')}", "torch"):
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


def _torch_job(draft: PlanDraft, torch: TorchCollectives, nodes: tuple[str, ...], suffix: str) -> None:
    ranks = {node: draft.site.gpus.get(node) or 1 for node in nodes}
    params: Params = {"backend": torch.backend}

    def cell(test: str, metric: str, more: dict[str, int]) -> None:
        scope: dict[str, int | str] = {"nodes": len(nodes), "gpus": sum(ranks.values()), "dtype": "float"}
        entry = draft.reference(test, metric, {**scope, **more})
        draft.add(entry, test, nodes=[nodes], params={**params, **more})

    for operation in torch.operations:
        for size in torch.sweep_sizes():
            cell(f"torch_{operation}", "busbw", {"size_bytes": size})
            draft.forbid(CORRECT, f"torch_{operation}", nodes=[nodes], params={**params, "size_bytes": size})
    tests = [f"torch_{operation}" for operation in torch.operations]
    if torch.many:
        for messages in (1, torch.many):
            size = torch.large_bytes // messages
            cell("torch_all_reduce", "busbw", {"messages": messages, "size_bytes": size})
        cell("torch_all_reduce", "large_over_small", {"messages": torch.many})
        tests = [*dict.fromkeys([*tests, "torch_all_reduce"])]
    order = TorchSettings(
        **torch.model_dump(),
        sizes=torch.sweep_sizes(),
        ranks=ranks,
        shared_gpus=tuple(node for node in draft.site.shared_gpus if node in nodes),
        paths=all_tcp_paths(draft.site, nodes),
        params=params,
    )
    draft.job(
        f"collective.torch.{torch.backend}{suffix}",
        kind="torch_collectives",
        tests=tuple(tests),
        nodes=nodes,
        time_limit_s=60 + torch.timeout_s,
        expected_s=15,
        expected_from="15 s for PyTorch's collectives on four H200 of one node (recorded run h200x4_nccl)",
        settings=order.model_dump(),
        params=params,
        whole=True,
    )


def _launch(job: JobSpec, out: Path) -> Launch:
    order = TorchSettings.model_validate(job.settings)
    gpus = max(order.ranks.values()) if order.backend == "nccl" else 0
    return Launch(words=own_module("shakedown.benchmarks.torch_collectives.job", out), gpus=gpus)


BENCHMARK = Benchmark(
    name="torch_collectives",
    stage=Stage.COLLECTIVE,
    section=Section(
        key="torch",
        kind=TorchCollectives | None,
        joins_nodes=lambda asked: asked.nodes != 1,
        alone="give torch nodes: 1",
        takes_variables=True,
    ),
    plan=plan_torch,
    night=NotAtNight("at night it would add nothing to nccl-tests"),
    jobs={
        "torch_collectives": JobKind(
            catches="an nccl-tests build that misrepresents the hardware; what small messages cost",
            order=TorchSettings.model_validate,
            launch=_launch,
            uses=("pytorch",),
            by_srun=False,
            also_good=ExitStatus.INCOMPLETE.value,
        )
    },
    tools={
        "torch-collectives": Tool(metrics=torch_collectives, moved=moved, told_by_file="test", gpus=ran_on)
    },
)
