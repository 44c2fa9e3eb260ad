"""How a model and its batch are spread over ranks, and how gradients are combined.

ddp: every rank holds the model. tp: the ranks of a node share each layer, nodes are data-parallel. fsdp:
weights are sharded over all ranks and gathered layer by layer. hsdp: sharded within the node, replicated
between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from lora_trainer.cluster import Cluster
from lora_trainer.model import Trainee
from shakedown.benchmarks.lora.settings import TrainingSpec


@dataclass(frozen=True)
class Layout:
    """Where this rank stands. A group is None where it would hold one rank only."""

    name: str
    replica: int  # which part of the batch is this rank's
    replicas: int
    shard: int  # which part of the model is this rank's
    first_copy: bool  # the lowest rank that holds this shard; it writes the checkpoint
    gradients: dist.ProcessGroup | None  # over which gradients are averaged here, not by FSDP
    shards: dist.ProcessGroup | None  # over which a tensor's parts lie
    trainee: Trainee

    def last_micro_batch(self, last: bool) -> None:
        """Say before each micro-batch whether gradients are exchanged after it."""
        if self.name in {"fsdp", "hsdp"}:
            self.trainee.set_requires_gradient_sync(last)


def spread(trainee: Trainee, spec: TrainingSpec, cluster: Cluster) -> Layout:
    """Shard a model that is on the meta device, and return where this rank stands."""
    per_node, nodes, rank = cluster.gpus_per_node, cluster.nodes, cluster.rank
    kind = cluster.device.type
    if spec.layout == "ddp":
        group = dist.group.WORLD if cluster.world > 1 else None
        return Layout("ddp", rank, cluster.world, 0, rank == 0, group, None, trainee)
    if spec.layout == "tp":
        mesh = init_device_mesh(kind, (nodes, per_node), mesh_dim_names=("data", "tensor"))
        _split_layers(trainee, mesh["tensor"])
        return Layout(
            "tp",
            rank // per_node,
            nodes,
            rank % per_node,
            rank < per_node,
            mesh.get_group("data") if nodes > 1 else None,
            mesh.get_group("tensor") if per_node > 1 else None,
            trainee,
        )
    if spec.layout == "fsdp":
        mesh = init_device_mesh(kind, (cluster.world,), mesh_dim_names=("shard",))
    else:
        mesh = init_device_mesh(kind, (nodes, per_node), mesh_dim_names=("replicate", "shard"))
    _shard_fully(trainee, mesh)
    shard = rank if spec.layout == "fsdp" else rank % per_node
    return Layout(
        spec.layout,
        rank,
        cluster.world,
        shard,
        spec.layout == "fsdp" or rank < per_node,
        None,
        mesh.get_group("shard"),
        trainee,
    )


def _shard_fully(trainee: Trainee, mesh: Any) -> None:  # noqa: ANN401
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    layers = list(trainee.base.model.layers)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    fully_shard(trainee, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    # The next layer's weights travel while this one computes.
    for layer, following in pairwise(layers):
        layer.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([layer])


def _split_layers(trainee: Trainee, mesh: Any) -> None:  # noqa: ANN401
    """Split q, k, v, gate and up by columns, o and down by rows; adapters follow the side that they share.

    The other side of an adapter stays whole on each rank. Its gradients agree between ranks by themselves:
    before a split B the gradient is summed over the ranks, and so is the output of a split A.
    """
    column, row = ColwiseParallel(), RowwiseParallel()
    plan: dict[str, Any] = {"mlp.gate_proj": column, "mlp.up_proj": column, "mlp.down_proj": row}
    for name in ("q_proj", "k_proj", "v_proj"):
        plan |= {f"self_attn.{name}.base_layer": column, f"self_attn.{name}.lora_B.default": column}
    plan |= {"self_attn.o_proj.base_layer": row, "self_attn.o_proj.lora_A.default": row}
    for layer in trainee.base.model.layers:
        parallelize_module(getattr(layer, "_orig_mod", layer), mesh, plan)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Adapters:
    """The trained weights: float32 copies for the optimiser, their gradients averaged, clipped and
    applied."""

    def __init__(self, layout: Layout, spec: TrainingSpec) -> None:
        self._layout, self._spec = layout, spec
        named = [(n, p) for n, p in layout.trainee.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self._model: list[nn.Parameter] = [p for _, p in named]
        self._split = [isinstance(p, DTensor) for p in self._model]
        with torch.no_grad():
            self.masters = [nn.Parameter(local(p).detach().float().clone()) for p in self._model]
        fused = self.masters[0].device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.masters, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=fused
        )

    @property
    def count(self) -> int:
        """How many weights are trained, over all ranks that share the model."""
        return sum(p.numel() for p in self._model)

    def exchange(self) -> None:
        """Average the gradients over replicas in float32, in one all-reduce; FSDP has done so already."""
        flat = torch.cat([local(p.grad).flatten().float() for p in self._model if p.grad is not None])
        if self._layout.gradients is not None:
            dist.all_reduce(flat, group=self._layout.gradients)
            flat /= dist.get_world_size(self._layout.gradients)
        first = 0
        for master, parameter in zip(self.masters, self._model, strict=True):
            master.grad = flat[first : first + master.numel()].view_as(master)
            first += master.numel()
            parameter.grad = None

    def step(self, learning_rate: float) -> torch.Tensor:
        """Clip, update and copy the weights back into the model; return the gradients' norm before clipping.

        A norm that is not finite updates nothing: every rank sees the same norm and stops.
        """
        device = self.masters[0].device
        sums = {True: torch.zeros((), device=device), False: torch.zeros((), device=device)}
        for split in sums:
            chosen = [m.grad for m, s in zip(self.masters, self._split, strict=True) if s is split]
            if chosen:
                sums[split] = torch.stack(torch._foreach_norm(chosen)).square().sum()
        if self._layout.shards is not None:
            dist.all_reduce(sums[True], group=self._layout.shards)
        norm = (sums[True] + sums[False]).sqrt()
        scale = torch.clamp(self._spec.clip / (norm + 1e-6), max=1.0)
        torch._foreach_mul_([m.grad for m in self.masters], scale)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.publish()
        return norm

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the optimiser's weights into the model."""
        torch._foreach_copy_([local(p) for p in self._model], self.masters)
