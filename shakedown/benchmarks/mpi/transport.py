"""UCX's own log and the ranks' notes against which way MPI had to go, and where its ranks had to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shakedown.benchmarks.base.pinning import Deviation
from shakedown.benchmarks.mpi.options import Transport
from shakedown.benchmarks.mpi.ucx_log import Lane, UcxLog

# Names that UCX gives the transports of each kind (ucx_info -d): by plain verbs, and by mlx5's own interface.
FAMILIES: Mapping[str, Transport] = {
    "rc_verbs": "rc",
    "rc_mlx5": "rc",
    "ud_verbs": "ud",
    "ud_mlx5": "ud",
    "dc_mlx5": "dc",
    "tcp": "tcp",
}


def judge_way(
    log: UcxLog, wanted: Transport, nodes: int, devices: Mapping[str, Sequence[str]]
) -> Iterator[Deviation]:
    """Yield the two checks of a run over several nodes.

    Args:
        log: the joined log of all ranks.
        wanted: the transport that is planned.
        nodes: how many nodes there are; each must have told its way.
        devices: by node, the planned devices: RDMA devices, or for TCP interfaces.
    """
    told = {lane.host for lane in log.lanes}
    if not told:
        yield _without_ucx(log, wanted)
        yield Deviation("nics", None, "UCX's log names no connection between nodes")
        return
    other = [lane for lane in log.lanes if FAMILIES.get(lane.transport) != wanted]
    few = f"; {len(told)} of {nodes} nodes told their way" if len(told) < nodes else ""
    if other:
        hint = ": TCP fallback, no RDMA" if any(lane.transport == "tcp" for lane in other) else ""
        yield Deviation("network", 1, f"UCX chose {_ways(other)}, {wanted} wanted{hint}{few}"[:900])
    else:
        yield Deviation("network", None if few else 0, f"UCX chose {_ways(log.lanes)}{few}"[:900])
    every = {name for mine in devices.values() for name in mine}
    strange = [lane for lane in log.lanes if lane.device not in devices.get(lane.host, every)]
    if strange:
        yield Deviation("nics", 1, f"UCX uses {_ways(strange)}, no planned device of the fabric"[:900])
    else:
        yield Deviation("nics", None if few else 0, f"UCX uses {_ways(log.lanes)}{few}"[:900])


def _without_ucx(log: UcxLog, wanted: Transport) -> Deviation:
    chosen = [layer for layer in log.layers if layer != "ucx"]
    if chosen and wanted != "tcp":
        text = f"OpenMPI chose its layer {', '.join(chosen)} and not UCX, {wanted} wanted: no proof of RDMA"
        return Deviation("network", 1, f"{text}; set OMPI_MCA_pml=ucx in openmpi_transport")
    why = f"OpenMPI chose {', '.join(chosen)}" if chosen else "is OpenMPI built with UCX, and is its pml ucx?"
    return Deviation("network", None, f"UCX's log names no connection between nodes: {why}")


def _ways(lanes: Iterable[Lane]) -> str:
    """Write lanes by host: `rc_verbs/rxe0 on n1 and n2`."""
    hosts: dict[str, list[str]] = {}
    for lane in lanes:
        hosts.setdefault(f"{lane.transport}/{lane.device}", []).append(lane.host)
    return "; ".join(f"{way} on {', '.join(sorted(on))}" for way, on in sorted(hosts.items()))
