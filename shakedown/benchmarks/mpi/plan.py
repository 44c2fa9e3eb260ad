"""Plan the collective stage: MPI over all nodes, and proof of which way its messages went."""

from __future__ import annotations

import math
from itertools import pairwise

from shakedown.benchmarks.base.tcp import all_tcp_paths
from shakedown.benchmarks.mpi.options import Mpi, MpiOrder, Sweep
from shakedown.intent.site import Fabric
from shakedown.plan.draft import Draft, none_allowed
from shakedown.plan.jobs import JobSpec
from shakedown.records.base import Stage

TRANSPORT = none_allowed(
    "mpi.transport", "acceptance.mpi.transport and the planned NICs, held against UCX's own log of the run"
)
PINNING = none_allowed("mpi.pinning", "the rank file that roles/numa_pinning writes on every node")
# Where messages leave the node.
WAY_CHECKS = ("network", "nics")


def plan_mpi(draft: Draft, mpi: Mpi) -> None:
    """Ping-pong between neighbours and a checked all-reduce over all nodes."""
    nodes = draft.nodes
    allreduce, pingpong = mpi.allreduce, mpi.pingpong
    if pingpong:
        sizes = pingpong.powers_of_two()
        # Neighbours in the order of names: every node is tested, each against two others.
        pairs = list(pairwise(nodes))
        for size in sizes:
            entry = draft.reference("mpi_pingpong", "bandwidth", {"size_bytes": size, "nodes": 2})
            draft.add(entry, "mpi_pingpong", stage=Stage.COLLECTIVE, nodes=pairs, params={"size_bytes": size})
        for pair in pairs:
            _mpi_job(draft, mpi, "mpi_pingpong", pair, pingpong, suffix=f".{'-'.join(pair)}")
    if allreduce:
        steps = allreduce.steps()
        for size in steps:
            # A small message's bandwidth says nothing that its time does not.
            for metric in ("time", "wrong", "busbw") if size == steps[-1] else ("time", "wrong"):
                scope = {"size_bytes": size, "nodes": len(nodes)}
                entry = draft.reference("mpi_allreduce", metric, scope)
                draft.add(
                    entry, "mpi_allreduce", stage=Stage.COLLECTIVE, nodes=[nodes], params={"size_bytes": size}
                )
        _mpi_job(draft, mpi, "mpi_allreduce", nodes, allreduce)


# For time limits only: starting MPI on slow hosts, all messages at a hundredth of the link's speed, and what
# is taken for a link where the site has no fabric.
_START_S, _SLOWEST_SHARE, _UNKNOWN_GBPS = 300, 0.01, 10


def _mpi_job(
    draft: Draft, mpi: Mpi, kind: str, nodes: tuple[str, ...], sweep: Sweep, suffix: str = ""
) -> None:
    # There and back, of every size that either benchmark steps through.
    payload_bits = 8 * 2 * sweep.iterations * sum({*sweep.steps(), *sweep.powers_of_two()})
    fabric = draft.site.fabric
    speed_gbps = fabric.link_speed_gbps if isinstance(fabric, Fabric) else _UNKNOWN_GBPS
    slowest_bps = speed_gbps * 1e9 * _SLOWEST_SHARE
    order = MpiOrder(
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
            draft.forbid(
                reference, f"{kind}_transport", stage=Stage.COLLECTIVE, nodes=[nodes], params={"check": check}
            )
    draft.jobs.append(
        JobSpec(
            name=f"collective.{kind}{suffix}",
            kind=kind,
            stage=Stage.COLLECTIVE,
            tests=(kind, f"{kind}_transport"),
            nodes=nodes,
            time_limit_s=_START_S + math.ceil(payload_bits / slowest_bps),
            expected_s=26 + math.ceil(_SLOWEST_SHARE * payload_bits / slowest_bps),
            expected_from="26 s to start MPI, beside the payload at the link's speed: 16 and 26 s for two "
            "emulated nodes (recorded run lab_healthy)",
            settings=order.model_dump(),
            whole=True,
        )
    )


def _devices(draft: Draft, mpi: Mpi, nodes: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the devices of the fabric that UCX may use on each node."""
    if not isinstance(draft.site.fabric, Fabric):
        return {node: tuple(nic.netdev for nic in draft.site.tcp_nics.get(node, ())) for node in nodes}
    return {
        node: tuple(
            nic.netdev if mpi.transport == "tcp" else nic.rdma_device for nic in draft.site.nics[node]
        )
        for node in nodes
    }
