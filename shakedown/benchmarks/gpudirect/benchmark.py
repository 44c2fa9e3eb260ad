"""GPUDirect by perftest: what every NIC carries from GPU memory to GPU memory."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import NotAtNight
from shakedown.benchmarks.gpudirect.metrics import gpudirect, moved
from shakedown.benchmarks.gpudirect.names import NAME
from shakedown.benchmarks.gpudirect.options import GpuDirect, Operation
from shakedown.benchmarks.gpudirect.order import GpuDirectOrder
from shakedown.benchmarks.gpudirect.plan import plan_gpudirect
from shakedown.benchmarks.perftest.mesh.schedule import drop_superseded
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Better, Stage
from shakedown.records.errors import ExitStatus


def _launch(job: JobSpec, out: Path) -> Launch:
    gpus = GpuDirectOrder.model_validate(job.settings).memory.gpus
    return Launch(words=module(f"shakedown.benchmarks.{NAME}.job", out), gpus=gpus, step_gpus=gpus)


BENCHMARK = Benchmark(
    name=NAME,
    stage=Stage.FABRIC,
    section=Section(key=NAME, kind=GpuDirect | None, needs_fabric=True),
    plan=plan_gpudirect,
    night=NotAtNight("drivers and PCI settings change it, not nights: `shakedown rerun` after either"),
    jobs={
        NAME: JobKind(
            catches="GPU memory that a NIC reaches slowly or by a detour: ACS that sends it over the host "
            "bridge, a read request too small, a GPU behind the wrong switch, a missing peer-memory module",
            order=GpuDirectOrder.model_validate,
            launch=_launch,
            uses=("perftest",),
            # A perftest without CUDA leaves cells with that reason; the others are good.
            also_good=ExitStatus.INCOMPLETE.value,
            wait_s=0,
        )
    },
    tools={
        NAME: Tool(
            metrics=gpudirect,
            that_count=drop_superseded,
            moved=moved,
            own_bytes=lambda text: " PSN 0x" in text,
        )
    },
    words={f"{NAME}_{operation}": f"GPUDirect {operation}" for operation in get_args(Operation)},
    measures={
        (f"{NAME}_{operation}", metric): (unit, Better.HIGHER)
        for operation in get_args(Operation)
        for metric, unit in (("bandwidth", "Gb/s"), ("bandwidth_both", "Gb/s"), ("share_of_host", "%"))
    },
)
