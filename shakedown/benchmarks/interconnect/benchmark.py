"""The way between CPU and every GPU against the plan, and copies over it: plan and object."""

import math
from collections.abc import Mapping
from pathlib import Path

from shakedown.benchmarks.base import contract
from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    Launch,
    NodeAlone,
    Tool,
    nodes_with_gpus,
    own_module,
    workload,
)
from shakedown.benchmarks.interconnect.output import (
    Copies,
    CopiesSettings,
    Interconnect,
    PathSettings,
    PlannedPath,
    copies,
    pcie_path,
)
from shakedown.intent.acceptance import Section
from shakedown.physics.host_links import raw_gb_per_s
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Better, Params, Stage
from shakedown.records.plan import Reference, ReferenceKind

PATH = none_allowed("interconnect.path", "the site's plan of its PCIe paths (acceptance.interconnect.path)")
# The cost of a wrong pin is shown, not judged: no source says how much it may be.
FAR_PIN = Reference(
    id="interconnect.far-pin",
    value=1,
    tolerance=0.99,
    unit="x",
    better=Better.HIGHER,
    kind=ReferenceKind.BASELINE,
    source="the same run's rate with the right pin",
    note="shown, never decides",
)
# Directions of the copies: alone, and each while the other is under way.
COPIES = ("h2d", "d2h", "h2d_duplex", "d2h_duplex")
# For time limits only: starting PyTorch and CUDA on a slow host; copies at a quarter of one planned link,
# which all GPUs may share; the warm-up sample, and the copies around a timed block (loadgen_harness.copies).
START_S, _SLOWEST_SHARE, _WARMUP_SAMPLES, _AROUND = 240, 0.25, 1, 1.5


def plan_interconnect(draft: PlanDraft, asked: Mapping[str, Interconnect]) -> None:
    """Paths of all GPUs of every node that asks for it, then copies."""
    for node, section in asked.items():
        gpus = draft.site.gpus.get(node, 0)
        if not gpus:
            continue
        for gpu in range(gpus):
            for what in section.path.judged():
                params: Params = {"gpu": gpu, "what": what}
                draft.forbid(PATH, "pcie_path", nodes=[node], params=params)
        order = PathSettings(gpus=gpus, path=section.path)
        draft.job(
            f"node.pcie_path.{node}",
            kind="pcie_path",
            tests=("pcie_path",),
            nodes=(node,),
            time_limit_s=300,
            expected_s=7,
            expected_from="7 s for the PCIe paths of a node: 0 to 7 s (recorded runs h200_int8, "
            "h200_int8_short, h200x4_interconnect)",
            settings=order.model_dump(),
        )
        if section.copies:
            _plan_copies(draft, section, node, gpus)


def _copying_s(copies: Copies, path: PlannedPath, gpus: int, at_once: tuple[int, ...]) -> int:
    """Return how long all copies may take, in seconds: GPUs x traffic x samples x iterations x size."""
    pins = 2 if copies.far_pin else 1
    lanes = pins * gpus + sum(count for count in at_once if count > 1)
    # Each way by itself and both at once: four times the size.
    payload = 4 * lanes * copies.size_mib * 2**20 * copies.iterations * (copies.samples + _WARMUP_SAMPLES)
    slowest_gb_per_s = _SLOWEST_SHARE * raw_gb_per_s(path.generation, path.width)
    return math.ceil(_AROUND * payload / (slowest_gb_per_s * 1e9))


def _plan_copies(draft: PlanDraft, section: Interconnect, node: str, gpus: int) -> None:
    copies = section.copies
    assert copies is not None
    at_once = tuple(n for n in copies.at_once if n <= gpus)
    scope: dict[str, int | str] = {"path": section.path.name, "pcie_generation": section.path.generation}
    for direction in COPIES:
        entry = draft.reference("copy", "bandwidth", {**scope, "direction": direction, "gpus": 1}, node)
        for gpu in range(gpus):
            draft.add(entry, "copy", nodes=[node], directions=(direction,), params={"gpus": 1, "gpu": gpu})
        for count in at_once:
            if count > 1:
                facts = {**scope, "direction": direction, "gpus": count}
                entry = draft.reference("copy", "bandwidth", facts, node)
                draft.add(entry, "copy", nodes=[node], directions=(direction,), params={"gpus": count})
        if copies.far_pin:
            for gpu in range(gpus):
                draft.forbid(
                    FAR_PIN,
                    "copy",
                    metric="far_pin",
                    nodes=[node],
                    directions=(direction,),
                    params={"gpu": gpu},
                    required=False,
                )
    contract.required(draft.site.software, "pytorch", by="acceptance.interconnect.copies need PyTorch")
    order = CopiesSettings(
        **copies.model_dump(exclude={"far_pin", "at_once"}),
        gpus=gpus,
        at_once=(1, *(n for n in at_once if n > 1)),
        pins=("near", "far") if copies.far_pin else ("near",),
    )
    draft.job(
        f"node.copies.{node}",
        kind="copies",
        tests=("copy",),
        nodes=(node,),
        time_limit_s=START_S + _copying_s(copies, section.path, gpus, at_once),
        # The limit is for a share of the link's speed.
        expected_s=round(6 + _SLOWEST_SHARE * _copying_s(copies, section.path, gpus, at_once)),
        expected_from="6 s beside the copies at their link's speed: 7 to 11 s in all with one H200, "
        "26 s with four "
        "(recorded runs h200_int8, h200x4_interconnect)",
        settings=order.model_dump(),
    )


def _read_path(job: JobSpec, out: Path) -> Launch:
    gpus = PathSettings.model_validate(job.settings).gpus
    return Launch(words=own_module("shakedown.benchmarks.interconnect.job", out), gpus=gpus)


def _copy(job: JobSpec, out: Path) -> Launch:
    order = CopiesSettings.model_validate(job.settings)
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
            order=PathSettings.model_validate,
            launch=_read_path,
            uses=("pytorch",),
        ),
        "copies": JobKind(
            catches="a slow link, an uplink that several GPUs share, host memory on the wrong NUMA node",
            order=CopiesSettings.model_validate,
            launch=_copy,
            uses=("pytorch",),
        ),
    },
    tools={"pcie-path": Tool(metrics=pcie_path), "copies": Tool(metrics=copies, told_by_file="direction")},
    words={"copy": "copy between host and GPU", "pcie_path": "PCIe path"},
)
