"""Collectives through PyTorch, with NCCL on GPUs or gloo on CPUs: the second opinion beside nccl-tests."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.torch_collectives.metrics import torch_collectives
from shakedown.benchmarks.torch_collectives.moved import moved
from shakedown.benchmarks.torch_collectives.options import TorchCollectives
from shakedown.benchmarks.torch_collectives.order import TorchOrder
from shakedown.benchmarks.torch_collectives.plan import plan_torch
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.errors import ExitStatus


def _launch(job: JobSpec, out: Path) -> Launch:
    order = TorchOrder.model_validate(job.settings)
    gpus = max(order.ranks.values()) if order.backend == "nccl" else 0
    return Launch(words=module("shakedown.benchmarks.torch_collectives.job", out), gpus=gpus)


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
            order=TorchOrder.model_validate,
            launch=_launch,
            uses=("pytorch",),
            by_srun=False,
            also_good=ExitStatus.INCOMPLETE.value,
        )
    },
    tools={"torch-collectives": Tool(metrics=torch_collectives, moved=moved, told_by_file="test")},
)
