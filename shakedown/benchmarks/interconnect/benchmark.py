"""The way between CPU and every GPU: its switches and links against the plan, and copies over it."""

from __future__ import annotations

from pathlib import Path

from shakedown.benchmarks.base.contract import Benchmark, JobKind, Launch, Tool, module
from shakedown.benchmarks.base.night import NodeAlone, nodes_with_gpus
from shakedown.benchmarks.base.site_python import workload
from shakedown.benchmarks.interconnect.metrics import copies, pcie_path
from shakedown.benchmarks.interconnect.options import Interconnect
from shakedown.benchmarks.interconnect.order import CopiesOrder, PathOrder
from shakedown.benchmarks.interconnect.plan import plan_interconnect
from shakedown.intent.acceptance import Section
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage


def _read_path(job: JobSpec, out: Path) -> Launch:
    gpus = PathOrder.model_validate(job.settings).gpus
    return Launch(words=module("shakedown.benchmarks.interconnect.path_job", out), gpus=gpus)


def _copy(job: JobSpec, out: Path) -> Launch:
    order = CopiesOrder.model_validate(job.settings)
    return workload("loadgen_harness.copies", job, out, "pytorch", gpus=order.gpus)


BENCHMARK = Benchmark(
    name="interconnect",
    stage=Stage.NODE,
    section=Section(key="interconnect", kind=Interconnect | None, of_each_node=True),
    plan=plan_interconnect,
    night=NodeAlone(nodes_with_gpus),
    jobs={
        "pcie_path": JobKind(
            catches="a link that trained down (x8, a generation lower), more or fewer switches than planned, "
            "an uplink shared by more GPUs than planned, a GPU missing or pinned to the wrong NUMA node",
            order=PathOrder.model_validate,
            launch=_read_path,
            uses=("pytorch",),
        ),
        "copies": JobKind(
            catches="a slow link, an uplink that several GPUs share, host memory on the wrong NUMA node",
            order=CopiesOrder.model_validate,
            launch=_copy,
            uses=("pytorch",),
        ),
    },
    tools={"pcie-path": Tool(metrics=pcie_path), "copies": Tool(metrics=copies, told_by_file="direction")},
    words={"copy": "copy between host and GPU", "pcie_path": "PCIe path"},
)
