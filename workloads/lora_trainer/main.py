"""One rank's life: join, build, train, and say why it ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from lora_trainer import checkpoint
from lora_trainer.alone import alone_step_s
from lora_trainer.cluster import Cluster, join
from lora_trainer.data import Batches
from lora_trainer.gpu import Gpu
from lora_trainer.layout import Adapters, spread
from lora_trainer.log import RankLog, give_reason
from lora_trainer.loop import Diverged, train
from lora_trainer.model import allocate, build, compile_layers, config_of, shape_of, tokenizer_of
from lora_trainer.watchdog import Watchdog
from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.physics import training as physics
from shakedown.records.reading import BadInput

EXIT_BAD_INPUT, EXIT_OUT_OF_MEMORY = 2, 76


def main(settings: Path, folder: Path) -> NoReturn:
    """Train as a JSON file says and write into a folder; never returns.

    Exit status: 0 trained, or diverged, which the log shows; 2 bad input, 75 hung, 76 out of memory, 1
    anything else, with the reason in `reason.json` in the folder. torchrun makes 1 of all but 0.
    """
    rank = int(os.environ.get("RANK", "0"))
    where = f"rank {rank} on {os.environ.get('SLURMD_NODENAME') or os.uname().nodename}"
    # torchrun ends its other processes with SIGTERM when one fails: die at once, also within a collective.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = 0
    try:
        spec = TrainingSpec.from_json(json.loads(settings.read_bytes()))
        _run(spec, folder)
    except BadInput as refused:
        give_reason(folder, "setup", f"{refused}")
        status = EXIT_BAD_INPUT
    except torch.OutOfMemoryError as error:
        text = str(error).split(" GPU ")[0]
        give_reason(
            folder, "setup", f"{where}: out of memory: {text}; lower micro_batch or raise recompute_layers"
        )
        status = EXIT_OUT_OF_MEMORY
    except Exception as error:  # the last line of defence: named, never lost
        traceback.print_exc()
        give_reason(folder, "other", f"{where}: {type(error).__name__}: {error}")
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if status == 0:
        dist.destroy_process_group()
    os._exit(status)  # a collective that others never enter must not hold up the exit


def _run(spec: TrainingSpec, folder: Path) -> None:
    checkpoints = folder.parent.parent / "checkpoints" / folder.name.rpartition(".a")[0]
    config = config_of(spec)
    tokenizer = tokenizer_of(spec)
    cluster = join(spec)
    log = RankLog(folder, cluster.rank)
    watchdog = Watchdog(
        cluster.store,
        cluster.rank,
        cluster.world,
        cluster.node,
        hang_s=spec.hang_s,
        start_s=spec.start_s,
        give_reason=lambda kind, message: give_reason(folder, kind, message),
    )
    watchdog.start()
    torch.set_float32_matmul_precision("high")
    if spec.device == "cuda":
        choose_attention()
    batches = Batches(spec, tokenizer, spec.replicas(cluster.nodes))
    if batches.largest_token >= config.vocab_size:
        raise BadInput(
            f"token {batches.largest_token} is outside the vocabulary of {config.vocab_size}",
            fix="use the model's own tokenizer",
        )
    alone = None
    if "layout_overhead" in spec.metrics:
        alone = alone_step_s(spec, config, cluster.device, spec.micro_batches(cluster.nodes))
    torch.manual_seed(spec.seed + cluster.rank)  # dropout only; weights and data have generators of their own
    trainee = build(spec, config)
    compile_layers(trainee, spec)
    layout = spread(trainee, spec, cluster)
    # Counted, not computed: models have biases and norms of their own.
    held = sum(p.numel() for name, p in trainee.named_parameters() if "lora_" not in name)
    allocate(trainee, spec, config, cluster.device)
    adapters = Adapters(layout, spec)
    done = checkpoint.latest(checkpoints, spec) if spec.checkpoint_every else 0
    if done:
        checkpoint.load(checkpoints, done, adapters, layout)
    shape = shape_of(config)
    flop = spec.flop_per_token(shape)
    gpu = Gpu(cluster.device)
    peak = spec.peak_tflop_per_s(gpu.name)
    if cluster.rank == 0:
        _header(spec, cluster, log, shape, held, adapters.count, flop, peak, gpu.name, done, alone)
    log.write(type="place", rank=cluster.rank, node=cluster.node, pid=os.getpid())
    dist.barrier()
    begin, aside_s = time.perf_counter(), 0.0
    try:
        aside_s = train(
            spec,
            layout,
            adapters,
            batches,
            log=log,
            gpu=gpu,
            watchdog=watchdog,
            device=cluster.device,
            rank=cluster.rank,
            first_step=done + 1,
            flop_per_token=flop,
            peak_flop_per_s=peak * 1e12 * cluster.world if peak else None,
            nodes=cluster.nodes,
            save=lambda step: checkpoint.save(checkpoints, step, adapters, layout, spec),
        )
    except Diverged as diverged:  # on every rank at the same step, since all know the same norm
        print(f"rank {cluster.rank} on {cluster.node}: {diverged}", file=sys.stderr)
    watchdog.stop()
    log.write(type="end", rank=cluster.rank, elapsed_s=time.perf_counter() - begin, aside_s=aside_s)
    dist.barrier()


def _header(
    spec: TrainingSpec,
    cluster: Cluster,
    log: RankLog,
    shape: physics.TransformerShape,
    parameters: int,
    trainable: int,
    flop: float,
    peak: float | None,
    device: str,
    resumed: int,
    alone: float | None,
) -> None:
    import peft
    import transformers

    traffic = spec.traffic(shape, cluster.nodes)
    collectives = "nccl " + ".".join(map(str, torch.cuda.nccl.version())) if spec.device == "cuda" else "gloo"
    log.write(
        type="header",
        schema_version=1,
        model=spec.label,
        method="lora",
        precision=spec.dtype,
        parallelism=spec.layout,
        world_size=cluster.world,
        sequence_length=spec.sequence_tokens,
        global_batch_samples=spec.global_batch,
        micro_batch_samples=spec.micro_batch,
        steps=spec.steps,
        parameters=parameters,
        trainable_parameters=trainable,
        flop_per_token=flop,
        peak_flop_per_s_per_gpu=peak * 1e12 if peak else None,
        seed=spec.seed,
        device=device,
        lora_rank=spec.lora_rank,
        learning_rate=spec.learning_rate,
        data=spec.data_name,
        weights=spec.weights,
        software={
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
            "collectives": collectives,
        },
        expected_gpu_rx_bytes=traffic.gpu_bytes,
        expected_node_rx_bytes=traffic.node_bytes,
        resumed_from=resumed or None,
        alone_step_s=alone,
    )


def choose_attention(*, flash: bool = False) -> None:
    """Choose cuDNN's attention, which is the faster one on Hopper, or FlashAttention 2; neither keeps
    scores."""
    torch.backends.cuda.enable_cudnn_sdp(not flash)
    torch.backends.cuda.enable_flash_sdp(flash)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
