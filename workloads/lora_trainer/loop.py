"""The training loop: one optimiser step after the other, each measured on every rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from lora_trainer.data import Batches
from lora_trainer.gpu import Gpu
from lora_trainer.layout import Adapters, Layout
from lora_trainer.log import RankLog
from lora_trainer.watchdog import Watchdog
from shakedown.benchmarks.lora.settings import TrainingSpec

# Places within a step for the watchdog; layers count from 1 to below these.
_EXCHANGE, _END = 100_000, 100_001


class Diverged(Exception):  # noqa: N818  (what happened, not an error of the program)
    """The loss or the gradients are no longer finite."""


class Stopwatch:
    """Marks on the device's own time line, read after the step: asking earlier would make the CPU wait."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def mark(self) -> Any:  # noqa: ANN401  (an event, or seconds)
        """Return a mark."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:  # noqa: ANN401
        """Return the time between two marks that both have passed."""
        return float(begin.elapsed_time(end) / 1e3 if self._cuda else end - begin)


@dataclass
class Layers:
    """Times each layer's forward, and tells the watchdog which layer this rank is in.

    With full sharding a layer's weights are gathered before it begins, so the time within layers is this
    rank's own; waiting for others lies between them. Of tensor parallelism, whose collectives lie within
    layers, the first layer's attention up to its output projection is this rank's own.
    """

    stopwatch: Stopwatch
    watchdog: Watchdog
    step: int = 0
    marks: list[tuple[Any, Any]] = field(default_factory=list)
    _begin: Any = None

    def watch(self, layout: Layout) -> None:
        """Hook into the layers; called once, after they are sharded."""
        for place, layer in enumerate(layout.trainee.base.model.layers, start=1):
            timed = layout.name != "tp" or place == 1
            layer.register_forward_pre_hook(self._entering(place, timed))
            if layout.name != "tp":
                layer.register_forward_hook(self._leave, prepend=True)
            elif place == 1:
                layer.self_attn.o_proj.register_forward_pre_hook(lambda *_: self._leave())

    def _entering(self, place: int, timed: bool) -> Any:  # noqa: ANN401
        def enter(*_: object) -> None:
            self.watchdog.mark(self.step, place, "forward")
            if timed:
                self._begin = self.stopwatch.mark()

        return enter

    def _leave(self, *_: object) -> None:
        self.marks.append((self._begin, self.stopwatch.mark()))


def learning_rate(spec: TrainingSpec, step: int) -> float:
    """Return the rate of a step: a cosine from the full rate to nothing (MLPerf llama2_70b_lora)."""
    return spec.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - 1) / spec.steps))


def train(
    spec: TrainingSpec,
    layout: Layout,
    adapters: Adapters,
    batches: Batches,
    *,
    log: RankLog,
    gpu: Gpu,
    watchdog: Watchdog,
    device: torch.device,
    rank: int,
    first_step: int,
    flop_per_token: float,
    peak_flop_per_s: float | None,
    nodes: int,
    save: Callable[[int], None],
) -> float:
    """Train from a step to the last, writing a record after each; return the seconds between the steps.

    Between them profiles are read and checkpoints written.

    Raises:
        Diverged: a gradient is not finite; the step's record has no loss then.
    """
    stopwatch = Stopwatch(device)
    layers = Layers(stopwatch, watchdog)
    layers.watch(layout)
    micro_batches = spec.micro_batches(nodes)
    tokens = spec.global_batch * spec.sequence_tokens
    ended, energy, nvlink = time.perf_counter(), gpu.energy_j(), gpu.nvlink_rx_bytes()
    aside_s = 0.0
    for step in range(first_step, spec.steps + 1):
        layers.step = step
        layers.marks.clear()
        profile = _profiler(device) if step == spec.warmup_steps and layout.name != "ddp" else None
        begin = stopwatch.mark()
        losses = []
        for micro_batch in range(micro_batches):
            layout.last_micro_batch(micro_batch == micro_batches - 1)
            sequences = batches.batch(step, micro_batch, layout.replica).to(device, non_blocking=True)
            watchdog.mark(step, 0, "forward")
            loss = layout.trainee(sequences) / micro_batches
            loss.backward()
            losses.append(loss.detach())
        computed = stopwatch.mark()
        watchdog.mark(step, _EXCHANGE, "exchange of gradients")
        adapters.exchange()
        exchanged = stopwatch.mark()
        norm = adapters.step(learning_rate(spec, step))
        loss_value = float(torch.stack(losses).sum())  # waits for the device
        norm_value = float(norm)
        hidden = _exposed_s(profile, stopwatch.seconds(begin, exchanged)) if profile else None
        now = time.perf_counter()
        used, received = gpu.energy_j(), gpu.nvlink_rx_bytes()
        step_s = now - ended
        rate = tokens / step_s
        inside = sum(stopwatch.seconds(*pair) for pair in layers.marks)
        if layout.name == "ddp":
            inside, hidden = stopwatch.seconds(begin, computed), stopwatch.seconds(computed, exchanged)
        log.write(
            type="step",
            step=step,
            rank=rank,
            step_time_s=step_s,
            samples=spec.global_batch,
            tokens=tokens,
            loss=loss_value,
            grad_norm=norm_value,
            memory_bytes=gpu.peak_memory_bytes(),
            power_w=(used - energy) / step_s if used is not None and energy is not None else None,
            compute_s=inside,
            comm_s=hidden,
            nvlink_rx_bytes=received - nvlink if received is not None and nvlink is not None else None,
            mfu=rate * flop_per_token / peak_flop_per_s if peak_flop_per_s else None,
        )
        ended, energy, nvlink = now, used, received
        watchdog.mark(step, _END, "end of the step")
        if not math.isfinite(norm_value):
            raise Diverged(f"loss {loss_value:g}, gradient norm {norm_value:g} at step {step}")
        if profile:
            # Reading a profile takes each rank its own time: none may wait for it in a step that is measured.
            dist.barrier()
            ended = time.perf_counter()
            aside_s += ended - now
        if spec.checkpoint_every and step % spec.checkpoint_every == 0 and step < spec.steps:
            begun = time.perf_counter()
            save(step)
            ended = time.perf_counter()  # a checkpoint is no part of the next step
            aside_s += ended - begun
    return aside_s


def _profiler(device: torch.device) -> Any:  # noqa: ANN401
    """Return a started profiler of one step's kernels, or None where there are none to see."""
    if device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    started = profile(activities=[ProfilerActivity.CUDA])
    started.start()
    return started


def _exposed_s(profiler: Any, step_s: float) -> float:  # noqa: ANN401
    """Return the time of a step in which no kernel but collectives' was running: lost to communication."""
    profiler.stop()
    spans: list[tuple[int, int, bool]] = []
    for event in profiler.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns() > 0:
            start = event.start_ns()
            spans.append((start, start + event.duration_ns(), "nccl" in event.name().lower()))
    computing = _covered_ns([(a, b) for a, b, collective in spans if not collective])
    either = _covered_ns([(a, b) for a, b, _ in spans])
    return min((either - computing) / 1e9, step_s)


def _covered_ns(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
