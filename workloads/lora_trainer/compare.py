"""Plain transformers + PEFT beside this trainer, on one GPU in one run.

    python -m lora_trainer.compare [--model llama2-7b] [--micro-batch 8 16] [--steps 12] [--json FILE]

Every row trains the same shape on the same data with the same adapters (rank 16 on q, k, v, o; bfloat16).
Plain is what the two libraries give by themselves: their loss, their adapters' types, torch's AdamW; eager,
and with torch.compile around the whole model. *Plain, best settings* is the fastest that was found without
code of ours: adapters in bfloat16, each layer compiled, cuDNN's attention, our micro-batch. It runs before
and after ours, so that a card that warms up favours neither. MFU counts matrix products against the dense
peak of their type.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from lora_trainer.cluster import join
from lora_trainer.data import Batches, Bytes
from lora_trainer.layout import Adapters, spread
from lora_trainer.loop import learning_rate
from lora_trainer.main import choose_attention
from lora_trainer.model import TARGETS, allocate, build, compile_layers, config_of, shape_of
from shakedown.benchmarks.lora.settings import TrainingSpec

# A step of some kind: takes its number, trains, and returns the loss without waiting for it.
TakeStep = Callable[[int], torch.Tensor]


def plain(spec: TrainingSpec, batches: Batches, *, device: torch.device, compiled: str) -> TakeStep:
    """Return a step of plain transformers + PEFT. Compiled: "", model, or layers with the best settings."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(spec.seed)
    with device:
        base = AutoModelForCausalLM.from_config(config_of(spec), dtype=torch.bfloat16)
        model: Any = get_peft_model(
            base,
            LoraConfig(r=spec.lora_rank, lora_alpha=spec.lora_alpha, target_modules=list(TARGETS)),
            autocast_adapter_dtype=compiled != "layers",
        )
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=spec.learning_rate)
    more = {"use_cache": False} if compiled == "layers" else {}
    called = torch.compile(model) if compiled == "model" else model
    if compiled == "layers":
        for layer in model.get_base_model().model.layers:
            layer.compile(dynamic=False)

    def take(step: int) -> torch.Tensor:
        sequences = batches.batch(step, 0, 0).to(device)[:, :-1]
        loss: torch.Tensor = called(input_ids=sequences, labels=sequences, **more).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return take


def ours(spec: TrainingSpec, batches: Batches) -> TakeStep:
    """Return a step of this trainer, as `lora_trainer.loop` takes it."""
    cluster = join(spec) if not torch.distributed.is_initialized() else _joined[0]
    _joined[:] = [cluster]
    config = config_of(spec)
    trainee = build(spec, config)
    compile_layers(trainee, spec)
    layout = spread(trainee, spec, cluster)
    allocate(trainee, spec, config, cluster.device)
    adapters = Adapters(layout, spec)

    def take(step: int) -> torch.Tensor:
        loss: torch.Tensor = layout.trainee(batches.batch(step, 0, 0).to(cluster.device))
        loss.backward()
        adapters.exchange()
        adapters.step(learning_rate(spec, min(step, spec.steps)))
        return loss.detach()

    return take


_joined: list[Any] = []
_PLAIN = "plain transformers + PEFT"


def measure(name: str, spec: TrainingSpec, take: TakeStep, steps: int, profile: bool) -> dict[str, Any]:
    """Time steps, each to its end; the first three compile and warm up."""
    begin = time.perf_counter()
    first = last = 0.0
    for step in range(1, 4):
        last = float(take(step))
        first = first or last
    warm_s = time.perf_counter() - begin
    torch.cuda.reset_peak_memory_stats()
    times = []
    for step in range(4, 4 + steps):
        begin = time.perf_counter()
        last = float(take(step))
        times.append(time.perf_counter() - begin)
    if profile:
        _print_kernels(take)
    rate = spec.micro_batch * spec.sequence_tokens * len(times) / sum(times)
    flop = spec.flop_per_token(shape_of(config_of(spec)))
    peak = spec.peak_tflop_per_s(torch.cuda.get_device_name())
    return {
        "variant": name,
        "micro_batch": spec.micro_batch,
        "tokens_per_s": rate,
        "mfu_percent": 100 * rate * flop / (peak * 1e12) if peak else None,
        "step_ms": 1e3 * statistics.median(times),
        "spread_percent": 100 * (max(times) / min(times) - 1),
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
        "warm_s": warm_s,
        "steps": len(times),
        "loss_first": first,
        "loss_last": last,
    }


def _print_kernels(take: TakeStep) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        float(take(1))
    print(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=28, max_name_column_width=70))


def main() -> int:
    """Measure every variant and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="llama2-7b")
    parser.add_argument("--sequence-tokens", type=int, default=2048)
    parser.add_argument("--micro-batch", type=int, nargs="+", default=[8])
    parser.add_argument("--plain-micro-batch", type=int, default=4, help="0: leave plain out")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--dtype", choices=("bf16", "fp8"), nargs="+", default=["bf16"], help="of ours")
    parser.add_argument("--flash", action="store_true", help="FlashAttention 2 instead of cuDNN's attention")
    parser.add_argument("--profile", action="store_true", help="print the kernels of one step of ours")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    chosen = parser.parse_args()
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29511"),
    ):
        os.environ.setdefault(name, value)
    device = torch.device("cuda", 0)
    torch.set_float32_matmul_precision("high")
    rows: list[dict[str, Any]] = []

    def row(
        name: str,
        micro_batch: int,
        make: Callable[[TrainingSpec, Batches], TakeStep],
        profile: bool = False,
        dtype: Literal["bf16", "fp8"] = "bf16",
    ) -> None:
        spec = TrainingSpec(
            model=chosen.model,
            sequence_tokens=chosen.sequence_tokens,
            micro_batch=micro_batch,
            global_batch=micro_batch,
            steps=chosen.steps + 8,
            dtype=dtype,
        )
        batches = Batches(spec, Bytes(), 1)
        try:
            rows.append(measure(name, spec, make(spec, batches), chosen.steps, profile))
        except torch.OutOfMemoryError:
            rows.append({"variant": name, "micro_batch": micro_batch, "tokens_per_s": None})
        print(json.dumps(rows[-1]), flush=True)
        torch.compiler.reset()
        torch.cuda.empty_cache()

    if chosen.plain_micro_batch:
        for compiled, said in (("", "eager"), ("model", "compiled")):
            row(
                f"{_PLAIN}, {said}",
                chosen.plain_micro_batch,
                partial(plain, device=device, compiled=compiled),
            )
    choose_attention(flash=chosen.flash)
    best = partial(plain, device=device, compiled="layers")
    for micro_batch in chosen.micro_batch:
        row(f"{_PLAIN}, best settings", micro_batch, best)
        for dtype in chosen.dtype:
            said = f"ours, {dtype}" + (", FlashAttention 2" if chosen.flash else "")
            row(said, micro_batch, ours, chosen.profile, dtype)
            row(said, micro_batch, ours, False, dtype)
        row(f"{_PLAIN}, best settings", micro_batch, best)
    print(f"\n{'variant':44} {'batch':>5} {'tokens/s':>9} {'MFU %':>6} {'step ms':>8} {'GB':>6}")
    for r in rows:
        if r["tokens_per_s"] is None:
            print(f"{r['variant']:44} {r['micro_batch']:>5} out of memory")
        else:
            print(
                f"{r['variant']:44} {r['micro_batch']:>5} {r['tokens_per_s']:>9.0f} "
                f"{r['mfu_percent'] or 0:>6.1f} {r['step_ms']:>8.1f} {r['memory_gb']:>6.1f}"
            )
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
