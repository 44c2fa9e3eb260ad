"""nccl-tests on the GPUs of one or several nodes, with proof of which way the data went: plan and object.

Also the plan of the servers' power over single message sizes."""

from collections.abc import Sequence
from pathlib import Path

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    Launch,
    NotAtNight,
    Parser,
    Tool,
    own_module,
    tcp_paths,
)
from shakedown.benchmarks.gpu.state import gpu_nodes
from shakedown.benchmarks.nccl.metrics import METRIC, moved, moved_over, nccl, nccl_log
from shakedown.benchmarks.nccl.output import gpu_names
from shakedown.benchmarks.nccl.settings import (
    ExpectedWay,
    Launcher,
    Nccl,
    NcclSettings,
    NcclSweep,
    ServerPower,
    Split,
)
from shakedown.intent.acceptance import Section
from shakedown.intent.site import Fabric
from shakedown.intent.tcp_rules import ALL_TCP, ROCE
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Params, Stage
from shakedown.records.reading import BadInput, ExitStatus
from shakedown.records.wording import count

CORRECT = none_allowed("nccl.correct", "nccl-tests checks every element (-c 1): none may be wrong")
TRANSPORT = none_allowed(
    "nccl.transport",
    "acceptance.nccl.expect and the planned NICs, held against NCCL's own log of the measured run",
)
# What each run's log is checked for; the network's checks only where data leave the node.
LOCAL_CHECKS = ("ranks", "intra_node", "nvls")
NETWORK_CHECKS = ("network", "gdr", "nics")
TCP_CHECKS = ("network", "nics")


def plan_nccl(draft: PlanDraft, nccl: Nccl) -> None:
    """Every sweep on every group of nodes, by every launcher."""
    nodes = gpu_nodes(draft)
    for number, sweep in enumerate(nccl.sweeps):
        for many in sweep.at_once(len(nodes)):
            with draft.piece(f"{', '.join(sweep.operations)} of {count(many, 'node')}", "nccl.sweeps"):
                _sweep(draft, nccl, sweep, many, str(number))


def _sweep(draft: PlanDraft, nccl: Nccl, sweep: NcclSweep, many: int, number: str) -> None:
    """Plan a sweep on groups of so many nodes."""
    nodes = gpu_nodes(draft)
    if many > len(nodes):
        raise BadInput(f"acceptance.nccl asks for {many} nodes, {len(nodes)} have GPUs")
    for split in sweep.split if many > 1 else ("none",):
        for launcher in nccl.launchers:
            if launcher != "one-process" or many == 1:
                for group in groups(nodes, many):
                    nccl_job(draft, nccl, sweep, group, split, launcher, number)


def groups(nodes: tuple[str, ...], many: int) -> list[tuple[str, ...]]:
    """Return groups of so many neighbours that hold every node; the last may overlap the one before."""
    starts = [*range(0, len(nodes) - many + 1, many)]
    if starts[-1] + many < len(nodes):
        starts.append(len(nodes) - many)
    return [nodes[start : start + many] for start in starts]


def nccl_job(
    draft: PlanDraft,
    nccl: Nccl,
    sweep: NcclSweep,
    group: tuple[str, ...],
    split: Split,
    launcher: Launcher,
    number: str,
    size_class: str = "",
) -> None:
    """Add one job and its cells.

    `number` tells the job from the others; `size_class`: the servers' power is read over it, for that class.
    """
    gpus = {draft.site.gpus[node] for node in group}
    if len(gpus) > 1:
        raise BadInput(
            f"{', '.join(group)} have {sorted(gpus)} GPUs; nccl-tests needs the same number on each node"
        )
    per_node = gpus.pop()
    params: Params = {"dtype": sweep.dtype}
    if len(nccl.launchers) > 1:
        params["launcher"] = launcher
    if len(sweep.split) > 1:
        params["split"] = split
    if any(other.network for other in nccl.sweeps):
        params["network"] = network_name(draft, sweep.network)
    if size_class:
        params["size_class"] = size_class
    interfaces = _interfaces(draft, nccl, sweep, group)
    for operation in sweep.operations:
        _cells(draft, nccl, sweep, group, operation, launcher, params, per_node)
        for metric in ("power", "energy", "temperature") if nccl.power else ():
            facts = {"nodes": len(group), "gpus": per_node * len(group), **network_facts(draft, sweep)}
            entry = draft.reference(f"nccl_{operation}", metric, facts)
            draft.add(entry, f"nccl_{operation}", nodes=[group], params=params)
        across: tuple[str, ...] = TCP_CHECKS if interfaces else NETWORK_CHECKS
        if nccl.expect.network == "nvlink" and not interfaces:
            across = ("network",)
        # One process has no place of its own beside one GPU.
        placed = ("pinning",) if nccl.expect.pinned and launcher != "one-process" else ()
        for check in (*LOCAL_CHECKS, *(across if len(group) > 1 else ()), *placed):
            draft.forbid(
                TRANSPORT,
                "nccl_transport",
                nodes=[group],
                params={**params, "operation": operation, "check": check},
            )
    nics = {node: tuple(nic.rdma_device for nic in draft.site.nics[node]) for node in group}
    order = NcclSettings(
        **sweep.model_dump(exclude={"nodes", "split", "network"}),
        split=split,
        network=sweep.network or "",
        launcher=launcher,
        gpus=dict.fromkeys(group, per_node),
        shared_gpus=tuple(node for node in draft.site.shared_gpus if node in group),
        # What the site or one run says itself comes last: the log shows whether it kept to the plan.
        variables=_tcp_variables(interfaces) | nccl.variables
        if not sweep.network
        else nccl.variables | _tcp_variables(interfaces),
        params=params,
        power=nccl.power,
        server_power=bool(size_class),
        timeout_s=nccl.run_timeout_s,
        sizes=sweep.sizes(),
        smallest={f"nccl_{op}": smallest_bytes(op, per_node * len(group)) for op in sweep.operations},
        expect=ExpectedWay(
            **nccl.expect.model_dump(exclude={"pinned"}),
            pinned=bool(placed),
            nics=nics,
            interfaces=interfaces,
        ),
        paths=tcp_paths(draft.site, interfaces),
    )
    name = f"collective.nccl{number}.{launcher}.{len(group)}x.{group[0]}"
    runs = len(sweep.operations) * (sweep.repeats + sweep.tuning)
    draft.job(
        name if split == "none" else f"{name}.{split}",
        kind="nccl",
        tests=(*(f"nccl_{operation}" for operation in sweep.operations), "nccl_transport"),
        nodes=group,
        time_limit_s=60 + nccl.run_timeout_s * runs,
        expected_s=2 + 10 * runs,
        expected_from="10 s a run of nccl-tests: 178 s for 18 sweeps of 8 B to 8 GiB on four H200 of "
        "one node (recorded run h200x4_nccl); several nodes were not measured",
        settings=order.model_dump(),
        params=params,
        whole=True,
    )


def network_name(draft: PlanDraft, network: str | None) -> str:
    """Return what the cells of a sweep call their network: a TCP fabric by its name, or what there is."""
    return network or (ROCE if isinstance(draft.site.fabric, Fabric) else ALL_TCP)


def network_facts(draft: PlanDraft, sweep: NcclSweep) -> dict[str, int | str]:
    """Return what a reference must know of a TCP fabric. The draft knows the RoCE fabric itself.

    Raises BadInput: the site has no such fabric.
    """
    if sweep.network is None:
        return {}
    for fabric in draft.site.tcp_fabrics:
        if fabric.name == sweep.network:
            return {"configuration": fabric.name, "nic_speed_gbps": fabric.link_speed_gbps}
    raise BadInput(
        f"acceptance.nccl measures network {sweep.network}, which tcp_fabrics does not describe",
        fix="add it to group_vars/all, or correct the name",
    )


def _interfaces(
    draft: PlanDraft, nccl: Nccl, sweep: NcclSweep, group: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return the interfaces of each node that data goes over by TCP; none where it goes by RDMA.

    Raises BadInput: RDMA is expected of a site that has none.
    """
    tcp = draft.site.tcp_nics
    if sweep.network:
        return {
            node: tuple(nic.netdev for nic in tcp.get(node, ()) if nic.fabric == sweep.network)
            for node in group
        }
    has_fabric = isinstance(draft.site.fabric, Fabric)
    if len(group) > 1 and nccl.expect.network not in ("socket", "nvlink") and not has_fabric:
        raise BadInput(
            "acceptance.nccl expects RDMA between nodes, and the site has no fabric with RDMA",
            fix="say nccl.expect.network: socket, or describe the fabric",
        )
    if len(group) == 1 or nccl.expect.network != "socket":
        return {}
    nics = draft.site.nics if has_fabric else tcp
    return {node: tuple(nic.netdev for nic in nics[node]) for node in group}


def _nics(draft: PlanDraft, sweep: NcclSweep, group: Sequence[str]) -> dict[str, int | str]:
    """Return how many NICs of a node are at work: every rail's, between nodes that talk over the fabric."""
    if sweep.network is not None or len(group) < 2 or not draft.site.fabric.rails:
        return {}
    return {"nics": len(draft.site.fabric.rails)}


def _tcp_variables(interfaces: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return NCCL's variables that keep it to TCP over these interfaces (NCCL user guide, environment)."""
    names = sorted({name for mine in interfaces.values() for name in mine})
    if not names:
        return {}
    # "=": the very names, not all that begin with them.
    return {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": f"={','.join(names)}"}


def _cells(
    draft: PlanDraft,
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
            **_nics(draft, sweep, group),
            **network_facts(draft, sweep),
        }
        entry = draft.reference(test, "time" if size < sweep.time_below_bytes else "busbw", scope)
        draft.add(entry, test, nodes=[group], params={**params, "size_bytes": size})
        draft.forbid(CORRECT, test, nodes=[group], params={**params, "size_bytes": size})


# nccl-tests rounds these down to a multiple of 16 bytes a rank; what is smaller moves nothing.
ROUNDED_OPERATIONS = frozenset({"all_gather", "alltoall", "reduce_scatter"})
_ROUND_BYTES = 16


def smallest_bytes(operation: str, ranks: int) -> int:
    """Return the smallest message that an operation moves (nccl-tests, *GetCollByteCount)."""
    return _ROUND_BYTES * ranks if operation in ROUNDED_OPERATIONS else 0


# NCCL's user guide, NCCL_ALGO: NVLS serves all_reduce, all_gather and reduce_scatter.
NVLS_OPERATIONS = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


NO_BMC = "no access to the servers' BMCs (acceptance.nccl.server_power.bmc: false)"


def plan_nccl_and_power(draft: PlanDraft, nccl: Nccl) -> None:
    """Plan the sweeps, then the servers' power. Raises BadInput."""
    plan_nccl(draft, nccl)
    if nccl.server_power is not None:
        _plan_power(draft, nccl, nccl.server_power)


def _plan_power(draft: PlanDraft, nccl: Nccl, asked: ServerPower) -> None:
    nodes = gpu_nodes(draft)
    gpus = [draft.site.gpus[node] for node in nodes]
    if len(set(gpus)) > 1 or nccl.launchers[0] == "one-process":
        raise BadInput(
            "acceptance.nccl.server_power needs as many GPUs on each node and a launcher of several nodes",
            fix="leave server_power out, or name srun or mpirun first",
        )
    for network in asked.networks:
        for size_class, load in asked.loads.items():
            sweep = NcclSweep(
                operations=asked.operations,
                dtype=asked.dtype,
                min_bytes=load.bytes,
                max_bytes=load.bytes,
                iterations=load.iterations,
                time_below_bytes=0,
                network=network,
            )
            if asked.bmc:
                label = f"-power-{size_class}-{network_name(draft, network)}"
                nccl_job(draft, nccl, sweep, nodes, "none", nccl.launchers[0], label, size_class)
            params: Params = {"dtype": asked.dtype, "size_class": size_class}
            if len(nccl.launchers) > 1:
                params["launcher"] = nccl.launchers[0]
            if any(other.network for other in nccl.sweeps):
                params["network"] = network_name(draft, network)
            facts: dict[str, int | str] = {
                "nodes": len(nodes),
                "gpus": sum(gpus),
                "dtype": asked.dtype,
                "size_class": size_class,
                **network_facts(draft, sweep),
            }
            for operation in asked.operations:
                test = f"nccl_{operation}"
                draft.add(
                    draft.reference(test, METRIC, facts),
                    test,
                    nodes=(nodes,),
                    params=params,
                    required=asked.bmc,
                    not_run="" if asked.bmc else NO_BMC,
                )


def _launch(job: JobSpec, out: Path) -> Launch:
    return Launch(
        words=own_module("shakedown.benchmarks.nccl.job", out),
        gpus=max(NcclSettings.model_validate(job.settings).gpus.values()),
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
            order=NcclSettings.model_validate,
            launch=_launch,
            uses=("nccl_tests", "openmpi"),
            by_srun=False,
            # Some runs have a problem instead of numbers; each is recorded with its reason.
            also_good=ExitStatus.INCOMPLETE.value,
        )
    },
    tools={
        "nccl": Tool(
            metrics=nccl, moved=moved, own_bytes=lambda text: True, gpus=lambda output: gpu_names(output.text)
        ),
        "nccl-log": Tool(metrics=nccl_log, moved=moved_over, moved_check="nics"),
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
