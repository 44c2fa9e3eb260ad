"""MPI over the fabric, plan and object: ping-pong of neighbours, and a checked all-reduce over all nodes."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from shakedown.benchmarks.base.contract import (
    Benchmark,
    JobKind,
    Launch,
    NotAtNight,
    Tool,
    all_tcp_paths,
    module,
    of,
    own_module,
    within,
)
from shakedown.benchmarks.mpi import job as mpi_job
from shakedown.benchmarks.mpi.output import Mpi, MpiSettings, SizeSweep, moved, moved_over, mpi, mpi_log
from shakedown.intent.acceptance import Section
from shakedown.intent.site import Fabric
from shakedown.plan.draft import PlanDraft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage
from shakedown.records.program import SOURCE
from shakedown.records.reading import ExitStatus

TRANSPORT = none_allowed(
    "mpi.transport", "acceptance.mpi.transport and the planned NICs, held against UCX's own log of the run"
)
PINNING = none_allowed("mpi.pinning", "the rank file that roles/numa_pinning writes on every node")
WAY_CHECKS = ("network", "nics")  # where messages leave the node


def plan_mpi(draft: PlanDraft, mpi: Mpi) -> None:
    """Ping-pong between neighbours and a checked all-reduce over all nodes."""
    nodes = draft.nodes
    allreduce, pingpong = mpi.allreduce, mpi.pingpong
    with draft.piece("mpi_pingpong", "mpi"):
        if pingpong:
            sizes = pingpong.powers_of_two()
            # Neighbours in the order of names: every node is tested, each against two others.
            pairs = list(pairwise(nodes))
            for size in sizes:
                entry = draft.reference("mpi_pingpong", "bandwidth", {"size_bytes": size, "nodes": 2})
                draft.add(entry, "mpi_pingpong", nodes=pairs, params={"size_bytes": size})
            for pair in pairs:
                _mpi_job(draft, mpi, "mpi_pingpong", pair, pingpong, suffix=f".{'-'.join(pair)}")
    with draft.piece("mpi_allreduce", "mpi"):
        if allreduce:
            steps = allreduce.steps()
            for size in steps:
                # A small message's bandwidth says nothing that its time does not.
                for metric in ("time", "wrong", "busbw") if size == steps[-1] else ("time", "wrong"):
                    scope = {"size_bytes": size, "nodes": len(nodes)}
                    entry = draft.reference("mpi_allreduce", metric, scope)
                    draft.add(entry, "mpi_allreduce", nodes=[nodes], params={"size_bytes": size})
            _mpi_job(draft, mpi, "mpi_allreduce", nodes, allreduce)


# For time limits only: starting MPI on slow hosts, all messages at a hundredth of the link's speed, and what
# is taken for a link where the site has no fabric.
_START_S, _SLOWEST_SHARE, _UNKNOWN_GBPS = 300, 0.01, 10


def _mpi_job(
    draft: PlanDraft, mpi: Mpi, kind: str, nodes: tuple[str, ...], sweep: SizeSweep, suffix: str = ""
) -> None:
    # There and back, of every size that either benchmark steps through.
    payload_bits = 8 * 2 * sweep.iterations * sum({*sweep.steps(), *sweep.powers_of_two()})
    fabric = draft.site.fabric
    speed_gbps = fabric.link_speed_gbps if isinstance(fabric, Fabric) else _UNKNOWN_GBPS
    slowest_bps = speed_gbps * 1e9 * _SLOWEST_SHARE
    order = MpiSettings(
        **sweep.model_dump(),
        transport=mpi.transport,
        devices=_devices(draft, mpi, nodes),
        pinned=mpi.pinned,
        variables=mpi.variables,
        paths=all_tcp_paths(draft.site, nodes),
        timed=kind == "mpi_pingpong",
    )
    for reference, checks in (
        (TRANSPORT, WAY_CHECKS if len(nodes) > 1 else ()),
        (PINNING, ("pinning",) if mpi.pinned else ()),
    ):
        for check in checks:
            draft.forbid(reference, f"{kind}_transport", nodes=[nodes], params={"check": check})
    draft.job(
        f"collective.{kind}{suffix}",
        kind=kind,
        tests=(kind, f"{kind}_transport"),
        nodes=nodes,
        time_limit_s=_START_S + math.ceil(payload_bits / slowest_bps),
        expected_s=26 + math.ceil(_SLOWEST_SHARE * payload_bits / slowest_bps),
        expected_from="26 s to start MPI, beside the payload at the link's speed: 16 and 26 s for two "
        "emulated nodes (recorded run lab_healthy)",
        settings=order.model_dump(),
        whole=True,
    )


def _devices(draft: PlanDraft, mpi: Mpi, nodes: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the devices of the fabric that UCX may use on each node."""
    if not isinstance(draft.site.fabric, Fabric):
        return {node: tuple(nic.netdev for nic in draft.site.tcp_nics.get(node, ())) for node in nodes}
    return {
        node: tuple(
            nic.netdev if mpi.transport == "tcp" else nic.rdma_device for nic in draft.site.nics[node]
        )
        for node in nodes
    }


def _started(words: Callable[[MpiSettings], tuple[str, ...]]) -> Callable[[JobSpec, Path], Launch]:
    def launch(job: JobSpec, out: Path) -> Launch:
        name, source = of(job, "openmpi")
        # A container has a Python of its own, with its own mpi4py; any other software is found by this one.
        order = MpiSettings.model_validate(job.settings)
        inner = words(order)
        inner = (source.interpreter, *inner[1:]) if source and source.contained else inner
        started, options = within(source, name, inner, out, gpus=False)
        # Each rank on the CPUs of its node's rank file.
        pin = module("shakedown.onnode.pin", "--note", out)
        pin = (source.interpreter, *pin[1:]) if source and options else pin
        return Launch(
            words=(*pin, *started),
            step_options=options,
            # Keeps what rank 0 prints and what UCX logs, and notes which cells they measure.
            keep=own_module("shakedown.benchmarks.mpi.job", out, job.tests[0], ",".join(job.nodes), "--"),
            variables={
                # The heading of mpi4py's table has a plus-minus sign, whatever the site's language.
                "PYTHONIOENCODING": "utf-8",
                **order.variables,
                **mpi_job.variables(out),
                **({"PYTHONPATH": str(SOURCE)} if source and source.contained else {}),
            },
            # The transport that the site allows, and no other: its own words, or what roles/openmpi wrote.
            source=() if order.variables else ("/etc/shakedown/mpi.env",),
        )

    return launch


def _allreduce(sweep: MpiSettings) -> tuple[str, ...]:
    return module(
        "shakedown.benchmarks.mpi.allreduce",
        f"--min={sweep.min_bytes}",
        f"--max={sweep.max_bytes}",
        f"--factor={sweep.factor}",
        f"--iterations={sweep.iterations}",
    )


def _pingpong(sweep: MpiSettings) -> tuple[str, ...]:
    # mpi4py's own numbers of iterations, 10,000 up to 16 KiB, 1,000 up to 1 MiB and 10 above, suit hardware.
    loops = tuple(f"--{name}={sweep.iterations}" for name in ("loop", "loop-large", "loop-huge"))
    sizes = (f"--min-size={sweep.min_bytes}", f"--max-size={sweep.max_bytes}")
    # The times and samples are the second witness of each bandwidth.
    plain = () if sweep.timed else ("--no-stats",)
    return module("mpi4py.bench", "pingpong", *plain, *sizes, *loops, "--skip=2")


BENCHMARK = Benchmark(
    name="mpi",
    stage=Stage.COLLECTIVE,
    section=Section(
        key="mpi", kind=Mpi, absent=Mpi(), joins_nodes=lambda asked: bool(asked.pingpong or asked.allreduce)
    ),
    plan=plan_mpi,
    night=NotAtNight("one job over all nodes leaves no node idle for anything else"),
    jobs={
        "mpi_pingpong": JobKind(
            catches="point-to-point MPI that does not go as planned or is slower than its reference",
            order=MpiSettings.model_validate,
            launch=_started(_pingpong),
            mpi="pmix",
            also_good=ExitStatus.INCOMPLETE.value,
            uses=("openmpi",),
        ),
        "mpi_allreduce": JobKind(
            catches="MPI that does not go as planned, a wrong sum, a collective slower than its reference",
            order=MpiSettings.model_validate,
            launch=_started(_allreduce),
            mpi="pmix",
            also_good=ExitStatus.INCOMPLETE.value,
            uses=("openmpi",),
        ),
    },
    tools={
        "mpi": Tool(metrics=mpi, moved=moved),
        "mpi-log": Tool(metrics=mpi_log, moved=moved_over, moved_check="nics"),
    },
    words={
        "mpi_allreduce_transport": "MPI all-reduce's transport",
        "mpi_pingpong_transport": "MPI ping-pong's transport",
    },
)
