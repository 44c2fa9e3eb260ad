"""Plan the way between CPU and GPU (node stage) and inference over it (application stage)."""

from __future__ import annotations

from typing import Any

from shakedown.benchmarks.interconnect.options import Inference, Interconnect
from shakedown.plan.draft import Draft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Better, Params, Stage
from shakedown.records.plan import PlanItem, Reference, ReferenceKind
from shakedown.references.catalogue import Entry, MissingReference

PATH = none_allowed("interconnect.path", "the site's plan of its PCIe paths (acceptance.interconnect.path)")
# What a wrong pin costs is shown; how much it may cost nobody says.
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
_START_S = 240  # PyTorch, CUDA and recording graphs on a slow host, for time limits only
_ENGINE_S = 240.0  # TensorRT builds its engine: 61 s on an H200 host with 16 CPUs


def plan_interconnect(draft: Draft) -> None:
    """Paths of all GPUs of every node, then copies. Raises MissingReference."""
    for node in draft.nodes:
        section, gpus = draft.site.of(node).interconnect, draft.site.gpus.get(node, 0)
        if section is None or not gpus:
            continue
        python = {"python": section.python, "pythonpath": list(section.pythonpath)}
        for gpu in range(gpus):
            for what in section.path.judged():
                params: Params = {"gpu": gpu, "what": what}
                draft.forbid(PATH, "pcie_path", stage=Stage.NODE, nodes=[(node,)], params=params)
        _job(
            draft,
            "pcie_path",
            Stage.NODE,
            node,
            300,
            {**python, "gpus": gpus, "path": section.path.model_dump()},
        )
        if section.copies:
            _plan_copies(draft, section, node, gpus, python)


def _plan_copies(draft: Draft, section: Interconnect, node: str, gpus: int, python: dict[str, Any]) -> None:
    copies = section.copies
    assert copies is not None
    at_once = tuple(n for n in copies.at_once if n <= gpus)
    scope: dict[str, int | str] = {"path": section.path.name, "pcie_generation": section.path.generation}
    for direction in COPIES:
        entry = draft.reference("copy", "bandwidth", {**scope, "direction": direction, "gpus": 1}, node)
        for gpu in range(gpus):
            draft.add(
                entry,
                "copy",
                stage=Stage.NODE,
                nodes=((node,),),
                directions=(direction,),
                params={"gpus": 1, "gpu": gpu},
            )
        for count in at_once:
            if count > 1:
                facts = {**scope, "direction": direction, "gpus": count}
                entry = draft.reference("copy", "bandwidth", facts, node)
                draft.add(
                    entry,
                    "copy",
                    stage=Stage.NODE,
                    nodes=((node,),),
                    directions=(direction,),
                    params={"gpus": count},
                )
        if copies.far_pin:
            draft.references[FAR_PIN.id] = FAR_PIN
            draft.items.extend(
                PlanItem(
                    stage=Stage.NODE,
                    test="copy",
                    metric="far_pin",
                    unit=FAR_PIN.unit,
                    better=FAR_PIN.better,
                    nodes=((node,),),
                    directions=(direction,),
                    params={"gpu": gpu},
                    reference=FAR_PIN.id,
                    required=False,
                )
                for gpu in range(gpus)
            )
    settings = {
        **python,
        **copies.model_dump(exclude={"far_pin", "at_once"}),
        "gpus": gpus,
        "at_once": [1, *(n for n in at_once if n > 1)],
        "pins": ["near", "far"] if copies.far_pin else ["near"],
    }
    _job(draft, "copies", Stage.NODE, node, _START_S + 30 * gpus, settings, test="copy")


def plan_inference(draft: Draft) -> None:
    """One search for each number of GPUs on every node that has as many. Raises MissingReference."""
    for node in draft.nodes:
        section = draft.site.of(node).inference
        if section is None:
            continue
        have = draft.site.gpus.get(node, 0) if section.device == "cuda" else max(section.gpus)
        counts = [n for n in section.gpus if n <= have]
        for gpus in counts:
            for entry in _inference_entries(draft, section, node, gpus):
                draft.add(
                    entry, "resnet50_server", stage=Stage.APPLICATION, nodes=((node,),), params={"gpus": gpus}
                )
        if counts:
            settings = {**section.model_dump(), "gpus": counts}
            full_s = section.confirm_s * (section.confirmations + 4) + 16 * section.probe_s
            start_s = _START_S + (_ENGINE_S if section.engine == "tensorrt" else 0)
            _job(
                draft,
                "inference",
                Stage.APPLICATION,
                node,
                int(start_s + len(counts) * 1.2 * full_s),
                settings,
                test="resnet50_server",
            )


def _inference_entries(draft: Draft, section: Inference, node: str, gpus: int) -> list[Entry]:
    """Return the references of one search: of the rate in one or both of its units, and what else is due."""
    scope: dict[str, int | str] = {"path": section.path, "gpus": gpus, "model": section.model}
    scope["dtype"] = section.dtype
    rates, missing = [], []
    for metric in section.metrics:
        try:
            rates.append(draft.reference("resnet50_server", metric, scope, node))
        except MissingReference as refused:
            missing.append(refused)
    if not rates:
        raise missing[-1]
    more = ("latency_p99", "accuracy") if section.labels else ("latency_p99",)
    return [*rates, *(draft.reference("resnet50_server", metric, scope, node) for metric in more)]


def _job(
    draft: Draft,
    kind: Any,  # noqa: ANN401
    stage: Stage,
    node: str,
    limit_s: int,
    settings: dict[str, Any],
    test: str = "",
) -> None:
    draft.jobs.append(
        JobSpec(
            name=f"{stage.value}.{kind}.{node}",
            kind=kind,
            stage=stage,
            tests=(test or kind,),
            nodes=(node,),
            time_limit_s=limit_s,
            settings=settings,
        )
    )
