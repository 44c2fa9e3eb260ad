"""Plan nccl-tests."""

from __future__ import annotations

from shakedown.benchmarks.gpu.plan import gpu_nodes
from shakedown.benchmarks.nccl.options import Launcher, Nccl, NcclSweep, Split
from shakedown.benchmarks.nccl.order import ExpectedWay, NcclOrder
from shakedown.plan.draft import Draft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.errors import BadInput
from shakedown.references.catalogue import Entry

CORRECT = none_allowed("nccl.correct", "nccl-tests checks every element (-c 1): none may be wrong")
TRANSPORT = none_allowed(
    "nccl.transport",
    "acceptance.nccl.expect and the planned NICs, held against NCCL's own log of the measured run",
)
# What each run's log is checked for; the network's checks only where data leave the node.
LOCAL_CHECKS = ("ranks", "intra_node", "nvls")
NETWORK_CHECKS = ("network", "gdr", "nics")


def plan_nccl(draft: Draft, nccl: Nccl) -> None:
    """Every sweep on every group of nodes, by every launcher."""
    nodes = gpu_nodes(draft)
    for number, sweep in enumerate(nccl.sweeps):
        for many in sweep.nodes or (len(nodes),):
            if many > len(nodes):
                raise BadInput(f"acceptance.nccl asks for {many} nodes, {len(nodes)} have GPUs")
            for split in sweep.split if many > 1 else ("none",):
                for launcher in nccl.launchers:
                    if launcher != "one-process" or many == 1:
                        for group in groups(nodes, many):
                            _nccl_job(draft, nccl, sweep, group, split, launcher, number)


def groups(nodes: tuple[str, ...], many: int) -> list[tuple[str, ...]]:
    """Return groups of so many neighbours that hold every node; the last may overlap the one before."""
    starts = [*range(0, len(nodes) - many + 1, many)]
    if starts[-1] + many < len(nodes):
        starts.append(len(nodes) - many)
    return [nodes[start : start + many] for start in starts]


def _nccl_job(
    draft: Draft,
    nccl: Nccl,
    sweep: NcclSweep,
    group: tuple[str, ...],
    split: Split,
    launcher: Launcher,
    number: int,
) -> None:
    gpus = {draft.site.gpus[node] for node in group}
    if len(gpus) > 1:
        raise BadInput(f"{', '.join(group)} have {sorted(gpus)} GPUs; nccl-tests wants as many on each node")
    per_node = gpus.pop()
    params: Params = {"dtype": sweep.dtype}
    if len(nccl.launchers) > 1:
        params["launcher"] = launcher
    if len(sweep.split) > 1:
        params["split"] = split
    for operation in sweep.operations:
        _cells(draft, nccl, sweep, group, operation, launcher, params, per_node)
        for metric in ("power", "energy", "temperature") if nccl.power else ():
            facts = {"nodes": len(group), "gpus": per_node * len(group)}
            _add(
                draft, draft.reference(f"nccl_{operation}", metric, facts), f"nccl_{operation}", group, params
            )
        for check in (*LOCAL_CHECKS, *(NETWORK_CHECKS if len(group) > 1 else ())):
            draft.forbid(
                TRANSPORT,
                "nccl_transport",
                stage=Stage.COLLECTIVE,
                nodes=[group],
                params={**params, "operation": operation, "check": check},
            )
    nics = {node: tuple(nic.rdma_device for nic in draft.site.nics[node]) for node in group}
    order = NcclOrder(
        **sweep.model_dump(exclude={"nodes", "split"}),
        split=split,
        launcher=launcher,
        gpus=dict.fromkeys(group, per_node),
        variables=nccl.variables,
        params=params,
        power=nccl.power,
        timeout_s=nccl.run_timeout_s,
        sizes=sweep.sizes(),
        smallest={f"nccl_{op}": smallest_bytes(op, per_node * len(group)) for op in sweep.operations},
        expect=ExpectedWay(**nccl.expect.model_dump(), nics=nics),
    )
    name = f"collective.nccl{number}.{launcher}.{len(group)}x.{group[0]}"
    runs = len(sweep.operations) * (sweep.repeats + sweep.tuning)
    draft.jobs.append(
        JobSpec(
            name=name if split == "none" else f"{name}.{split}",
            kind="nccl",
            stage=Stage.COLLECTIVE,
            tests=(*(f"nccl_{operation}" for operation in sweep.operations), "nccl_transport"),
            nodes=group,
            time_limit_s=60 + nccl.run_timeout_s * runs,
            settings=order.model_dump(),
            params=params,
            whole=True,
        )
    )


def _cells(
    draft: Draft,
    nccl: Nccl,
    sweep: NcclSweep,
    group: tuple[str, ...],
    operation: str,
    launcher: Launcher,
    params: Params,
    per_node: int,
) -> None:
    test = f"nccl_{operation}"
    # At sizes that are judged by busbw NVLink SHARP alone decides which algorithm a reference holds for.
    algorithm = "nvls" if nccl.expect.nvls and operation in NVLS_OPERATIONS else "ring"
    ranks = per_node * len(group)
    for size in (size for size in sweep.sizes() if size >= smallest_bytes(operation, ranks)):
        scope: dict[str, int | str] = {
            "nodes": len(group),
            "gpus": ranks,
            "dtype": sweep.dtype,
            "size_bytes": size,
            "algorithm": algorithm,
            "operation": operation,
            "launcher": launcher,
        }
        entry = draft.reference(test, "time" if size < sweep.time_below_bytes else "busbw", scope)
        _add(draft, entry, test, group, {**params, "size_bytes": size})
        draft.forbid(
            CORRECT, test, stage=Stage.COLLECTIVE, nodes=[group], params={**params, "size_bytes": size}
        )


# nccl-tests rounds these down to a multiple of 16 bytes a rank; what is smaller moves nothing.
ROUNDED_OPERATIONS = frozenset({"all_gather", "alltoall", "reduce_scatter"})
_ROUND_BYTES = 16


def smallest_bytes(operation: str, ranks: int) -> int:
    """Return the smallest message that an operation moves (nccl-tests, *GetCollByteCount)."""
    return _ROUND_BYTES * ranks if operation in ROUNDED_OPERATIONS else 0


# NCCL's user guide, NCCL_ALGO: NVLS serves all_reduce, all_gather and reduce_scatter.
NVLS_OPERATIONS = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


def _add(draft: Draft, entry: Entry, test: str, group: tuple[str, ...], params: Params) -> None:
    draft.add(entry, test, stage=Stage.COLLECTIVE, nodes=[group], params=params)
