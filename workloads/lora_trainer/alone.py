"""How long a step would take on this card alone: what a layout that shards is held against."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from lora_trainer.model import allocate, build, compile_layers
from shakedown.benchmarks.lora.settings import TrainingSpec

# Two depths tell a layer's time from that of embedding, head and loss: whole models do not fit on one card.
_DEPTHS = (2, 6)
# A card reaches its power cap within seconds, and until then it is faster than in training.
_WARM_S = {"cuda": 8.0, "cpu": 0.0}
_MEASURED = 10


def alone_step_s(spec: TrainingSpec, config: Any, device: torch.device, micro_batches: int) -> float:  # noqa: ANN401
    """Return the seconds of a step's forward and backward without any exchange, of the slowest rank.

    It is put together from a few layers: t = t0 + layers x slope, with recomputed layers for themselves.
    """
    layers = config.num_hidden_layers
    again = min(spec.recompute_layers, layers)
    whole = 0.0
    for count, recomputed in ((layers - again, False), (again, True)):
        if count:
            shallow, deep = (_micro_batch_s(spec, config, device, depth, recomputed) for depth in _DEPTHS)
            slope = (deep - shallow) / (_DEPTHS[1] - _DEPTHS[0])
            # The rest, embedding to loss, is there once, whatever the layers are like.
            whole += count * slope + (shallow - _DEPTHS[0] * slope) * (count / layers)
    slowest = torch.tensor(whole * micro_batches, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def _micro_batch_s(
    spec: TrainingSpec,
    config: Any,  # noqa: ANN401
    device: torch.device,
    depth: int,
    recomputed: bool,
) -> float:
    """Return the median seconds of one micro-batch, forward and backward, of a model of so many layers."""
    few = copy.deepcopy(config)
    few.num_hidden_layers = depth
    if getattr(few, "layer_types", None):  # Gemma 3 says of each layer what it attends to
        few.layer_types = few.layer_types[:depth]
    own = replace(spec, recompute_layers=depth if recomputed else 0)
    trainee = build(own, few)
    compile_layers(trainee, own)
    # Of another shape than the saved one: random weights take as long.
    allocate(trainee, own, few, device, saved=False)
    tokens = torch.randint(few.vocab_size, (spec.micro_batch, spec.sequence_tokens + 1), device=device)
    times: list[float] = []
    begun = None
    while begun is None or len(times) < _MEASURED or time.perf_counter() - begun < _WARM_S[device.type]:
        start = time.perf_counter()
        trainee(tokens).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if begun is None:  # the first one compiled
            begun = time.perf_counter()
            continue
        times.append(time.perf_counter() - start)
    del trainee
    # The model that is trained begins with the memory, the peak and the compiler's room of a fresh process.
    torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return median(times[-_MEASURED:])
