"""Plan the GPU part of the node stage: each GPU's own state, and nvbandwidth."""

from __future__ import annotations

from shakedown.benchmarks.gpu.options import GpuNode, GpuState
from shakedown.benchmarks.gpu.order import GpuNodeOrder
from shakedown.plan.draft import Draft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.errors import BadInput

STATE = none_allowed(
    "gpu.state", "the site's inventory and acceptance.gpu_node.state: what each GPU of a node must show"
)


def gpu_nodes(draft: Draft) -> tuple[str, ...]:
    """Return the nodes that have GPUs. Raises BadInput if none has any."""
    nodes = tuple(node for node in draft.nodes if draft.site.gpus.get(node))
    if not nodes:
        raise BadInput(
            "acceptance asks for GPU tests and no node has `gpus`", fix="list them in the inventory"
        )
    return nodes


def gpu_checks(state: GpuState) -> tuple[str, ...]:
    """Return the names of the checks on every GPU, in order."""
    asked = {
        "pcie": state.pcie_generation is not None or state.pcie_width is not None,
        "nvlink": state.nvlinks is not None,
        "topology": state.topology is not None,
        "numa": state.numa is not None,
        "ecc": state.ecc,
        "remapped": state.ecc,
        "slowdown": True,
    }
    return tuple(name for name, wanted in asked.items() if wanted)


def plan_gpu_node(draft: Draft, stage: GpuNode) -> None:
    """Every GPU's state, and every test of nvbandwidth on every GPU or pair; one job for all nodes."""
    nodes = gpu_nodes(draft)
    gpus = {node: draft.site.gpus[node] for node in nodes}
    cells: list[tuple[Params, list[str]]] = [({"check": "count"}, list(nodes))]
    if stage.state.xid:
        cells.append(({"check": "xid"}, list(nodes)))
    for check in gpu_checks(stage.state):
        for gpu in range(max(gpus.values())):
            cells.append(({"check": check, "gpu": gpu}, [node for node in nodes if gpus[node] > gpu]))
    for params, having in cells:
        draft.forbid(STATE, "gpu_state", stage=Stage.NODE, nodes=[(node,) for node in having], params=params)
    for test in stage.nvbandwidth:
        entry = draft.reference(test, "bandwidth", {"nodes": 1})
        for params in pairs(test, max(gpus.values())):
            highest = max(int(params["gpu"]), int(params.get("peer", 0)))
            having = [node for node in nodes if gpus[node] > highest]
            draft.add(entry, test, stage=Stage.NODE, nodes=[(node,) for node in having], params=params)
    order = GpuNodeOrder(gpus=gpus, **stage.model_dump())
    draft.jobs.append(
        JobSpec(
            name="node.gpu_node",
            kind="gpu_node",
            stage=Stage.NODE,
            nodes=nodes,
            tests=("gpu_state", *stage.nvbandwidth),
            time_limit_s=60 + stage.timeout_s * (stage.warmup + len(stage.nvbandwidth)),
            expected_s=2 + 8 * (stage.warmup + len(stage.nvbandwidth)),
            expected_from="8 s a test of nvbandwidth: 33 s for 5, 23 s for 2 and a warm-up, 4 x H200 "
            "(recorded runs h200x4_nccl, h200x4_nccl_healthy); eight GPUs were not measured",
            settings=order.model_dump(),
        )
    )


def pairs(test: str, gpus: int) -> list[Params]:
    """Return the parameters of a test's cells: every GPU, or every ordered pair of GPUs."""
    if not test.startswith("device_to_device"):
        return [{"gpu": gpu} for gpu in range(gpus)]
    return [{"gpu": gpu, "peer": peer} for gpu in range(gpus) for peer in range(gpus) if gpu != peer]
