"""nccl-tests on the GPUs of one or several nodes, with proof of which way the data went."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Parser, Tool, module
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.nccl.metrics import nccl, nccl_log
from shakedown.benchmarks.nccl.moved import moved
from shakedown.benchmarks.nccl.options import Nccl
from shakedown.benchmarks.nccl.order import NcclOrder
from shakedown.benchmarks.nccl.server_power_plan import plan_nccl_and_power
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.errors import ExitStatus


def _launch(job: JobSpec, out: Path) -> Launch:
    return Launch(
        words=module("shakedown.benchmarks.nccl.job", out),
        gpus=max(NcclOrder.model_validate(job.settings).gpus.values()),
        optional_source=("/etc/shakedown/mpi.env",),
    )


BENCHMARK = Benchmark(
    name="nccl",
    stage=Stage.COLLECTIVE,
    section=Section(
        key="nccl",
        kind=Nccl | None,
        joins_nodes=lambda asked: any(set(sweep.nodes) != {1} for sweep in asked.sweeps),
        alone="give nccl.sweeps nodes: [1]",
        takes_variables=True,
    ),
    plan=plan_nccl_and_power,
    night=NotAtNight("a sweep over all nodes leaves no node idle for anything else"),
    jobs={
        "nccl": JobKind(
            catches="a wrong sum, a collective slower than its reference, and data that go another way than "
            "planned: through host memory, by TCP, without GPUDirect RDMA, over fewer NICs, without NVLink "
            "SHARP",
            order=NcclOrder.model_validate,
            launch=_launch,
            uses=("nccl_tests", "openmpi"),
            by_srun=False,
            # Some runs have a problem instead of numbers; each is recorded with its reason.
            also_good=ExitStatus.INCOMPLETE.value,
        )
    },
    tools={
        "nccl": Tool(metrics=nccl, moved=moved, own_bytes=lambda text: True),
        "nccl-log": Tool(metrics=nccl_log),
    },
    parsers=(
        Parser(tool="nccl", module="shakedown.benchmarks.nccl.output", function="parse_nccl"),
        Parser(
            tool="nccl-log",
            module="shakedown.benchmarks.nccl.log",
            function="parse_nccl_log",
            options={"--partial": "allow_unfinished"},
        ),
    ),
    words={"nccl_transport": "NCCL transport"},
)
