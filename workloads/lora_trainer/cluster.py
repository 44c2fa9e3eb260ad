"""The job as one rank sees it: its number, its device, and how the ranks connect."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.records.reading import BadInput

# Store operations are small: one that takes longer has lost its server.
_STORE_TIMEOUT = timedelta(seconds=15)


@dataclass(frozen=True)
class Cluster:
    """One rank's view of the job."""

    rank: int
    world: int
    local_rank: int
    gpus_per_node: int
    node: str
    device: torch.device
    store: dist.Store

    @property
    def nodes(self) -> int:
        """How many nodes take part."""
        return self.world // self.gpus_per_node


def join(spec: TrainingSpec) -> Cluster:
    """Join the job that torchrun started.

    Raises:
        BadInput: not started by torchrun, or with other numbers than the spec's.
    """
    try:
        rank, world, local_rank, local_world = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        )
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        raise BadInput(f"not started by torchrun: {error}", fix="start it with torchrun") from None
    if local_world != spec.gpus_per_node:
        raise BadInput(f"{local_world} processes on this node, the settings say {spec.gpus_per_node}")
    if spec.device == "cuda":
        if torch.cuda.device_count() < local_world:
            raise BadInput(f"{torch.cuda.device_count()} GPUs are visible to {local_world} processes")
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // local_world))
    # torchrun's agent serves the store, so it outlives every rank.
    served_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        host,
        port,
        world,
        is_master=rank == 0 and not served_by_agent,
        timeout=_STORE_TIMEOUT,
        wait_for_workers=False,
    )
    backend = "nccl" if spec.device == "cuda" else "gloo"
    dist.init_process_group(
        backend,
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=world,
        # Longer than the watchdog's patience: the watchdog knows which rank is at fault, the backend does
        # not.
        timeout=timedelta(seconds=spec.start_s + 60),
        device_id=device if spec.device == "cuda" else None,
    )
    node = os.environ.get("SLURMD_NODENAME") or platform.node()
    return Cluster(rank, world, local_rank, local_world, node, device, store)
