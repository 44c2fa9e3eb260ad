"""Plan the servers' power over single message sizes: a load of its own for each, or why it is not run."""

from __future__ import annotations

from shakedown.benchmarks.gpu.plan import gpu_nodes
from shakedown.benchmarks.nccl.options import Nccl, NcclSweep, ServerPower
from shakedown.benchmarks.nccl.plan import nccl_job, network_facts, network_name, plan_nccl
from shakedown.benchmarks.nccl.server_power import METRIC
from shakedown.plan.draft import Draft
from shakedown.records.base import Params, Stage
from shakedown.records.errors import BadInput

NO_BMC = "no access to the servers' BMCs (acceptance.nccl.server_power.bmc: false)"


def plan_nccl_and_power(draft: Draft, nccl: Nccl) -> None:
    """Plan the sweeps, then the servers' power. Raises BadInput."""
    plan_nccl(draft, nccl)
    if nccl.server_power is not None:
        _plan_power(draft, nccl, nccl.server_power)


def _plan_power(draft: Draft, nccl: Nccl, asked: ServerPower) -> None:
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
                    stage=Stage.COLLECTIVE,
                    nodes=(nodes,),
                    params=params,
                    required=asked.bmc,
                    not_run="" if asked.bmc else NO_BMC,
                )
