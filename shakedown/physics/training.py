"""Arithmetic of training: time of a step, model FLOP utilisation (MFU), and the input it reads."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from shakedown.records.reading import BadInput

# Sources: Stas Bekman, Machine Learning Engineering, networking chapter of February 2024 (volumes, step time,
# communication or compute); Kaplan et al. 2020 and Chowdhery et al. 2022 (PaLM) appendix B (FLOP per token
# and MFU); Hu et al. 2021 (LoRA); NVIDIA data sheets (peaks, dense).

# Dense bf16 peak of one GPU in TFLOP/s (10^12), without sparsity.
PEAK_BF16_TFLOP_PER_S = {"a100": 312.0, "h100": 989.4, "h200": 989.4, "b200": 2250.0, "l40s": 362.0}


def peak_bf16_tflop_per_s(device: str) -> float | None:
    """Return the dense bf16 peak of a GPU by the name that its driver gives, None if it is not known.

    PCIe parts named `H100 PCIe` and `H100 NVL` have other peaks than the SXM part and are left out.
    """
    words = device.lower().replace("-", " ").split()
    if {"pcie", "nvl"} & set(words):
        return None
    return next((PEAK_BF16_TFLOP_PER_S[word] for word in words if word in PEAK_BF16_TFLOP_PER_S), None)


def peak_tflop_per_s(device: str, *, fp8: bool) -> float | None:
    """Return the dense peak of a GPU in bf16 or fp8, None if it is not known or the GPU has no fp8.

    Every known GPU that multiplies fp8 does so at twice the rate of bf16.
    """
    peak = peak_bf16_tflop_per_s(device)
    if peak is None or not fp8:
        return peak
    return 2 * peak if has_fp8(device) else None


def has_fp8(device: str) -> bool:
    """Whether a GPU may multiply fp8, by its name: those before Ada and Hopper do not (NVIDIA)."""
    return not any(word in {"a100", "v100"} for word in device.lower().replace("-", " ").split())


# ResNet50 v1.5 at 224 x 224: 4.09 GMAC an image (He et al., table 1, with the stride in the 3 x 3 layers).
RESNET50_FLOP = 2 * 4.09e9


def resnet50_ceiling_per_s(device: str, *, gpus: int, int8: bool) -> float | None:
    """Return how many images a second GPUs classify at most, None if their peak is not known.

    All known models multiply INT8 at twice the rate of bf16.
    """
    peak = peak_bf16_tflop_per_s(device)
    return gpus * (2 if int8 else 1) * peak * 1e12 / RESNET50_FLOP if peak else None


@dataclass(frozen=True)
class TransformerShape:
    """A Llama-style decoder: what decides its parameters, its FLOP and its LoRA adapters."""

    layers: int
    hidden: int
    kv_width: int  # width of the key and of the value projection (hidden, unless heads are grouped)
    feed_forward: int
    vocabulary: int
    q_width: int = 0  # width of the query projection; 0: hidden
    experts: int = 1  # gated feed-forwards of a layer
    active: int = 1  # how many of them compute a token
    tied: bool = False  # the head's weights are the embedding's

    @property
    def parameters(self) -> int:
        """All weights: embedding, head, q, k, v, o, the three of each gated feed-forward, router, norms."""
        ends = (1 if self.tied else 2) * self.vocabulary * self.hidden + self.hidden
        return ends + self.layer_parameters

    def lora_parameters_qkvo(self, rank: int) -> int:
        """Weights of adapters on q, k, v and o one by one, as PEFT makes them for a Llama."""
        return self.layers * rank * 2 * (2 * self.hidden + self._q_width + self.kv_width)

    @property
    def layer_parameters(self) -> int:
        """Weights of all layers: without embedding, head and last norm."""
        return self.layers * (self._products(self.experts) + 2 * self.hidden)

    @property
    def multiplied(self) -> int:
        """Weights that each token is multiplied by: no embedding, of which a row is looked up, no norm."""
        return self.vocabulary * self.hidden + self.layers * self._products(self.active)

    @property
    def _q_width(self) -> int:
        return self.q_width or self.hidden

    def _products(self, experts: int) -> int:
        router = self.experts if self.experts > 1 else 0
        attention = 2 * (self._q_width + self.kv_width)
        return self.hidden * (attention + 3 * experts * self.feed_forward + router)


# Meta's published configurations.
LLAMA2 = {
    "llama2-7b": TransformerShape(32, 4096, 4096, 11008, 32000),
    "llama2-13b": TransformerShape(40, 5120, 5120, 13824, 32000),
    "llama2-70b": TransformerShape(80, 8192, 1024, 28672, 32000),
}


# Shapes that a job may name: Llama 2, and one that a CPU trains in seconds.
SHAPES = {"tiny": TransformerShape(4, 128, 64, 352, 512), **LLAMA2}


def flop_per_token(shape: TransformerShape, *, sequence_tokens: int, lora_rank: int) -> float:
    """Return the FLOP of the matrix products that one trained token needs; a rank of 0 is full training.

    Of M weights that a token is multiplied by: forward 2M, backward 2M for the inputs and, in full training
    only, 2M for the weights, since frozen ones need no gradient. Causal attention adds 2Lsd forward and 4Lsd
    backward, with d the width of q and no window. Adapters of A weights on q, k, v and o add 6A. With LoRA
    the input of the first layer's q, k and v needs no gradient. Recomputation is left out: MFU counts what
    the model needs. Held to torch.utils.flop_counter by tests/training. Counting 6M for LoRA overstates MFU
    by 1.45 (70B at 8192 tokens). Raises BadInput: a sequence shorter than one token.
    """
    if sequence_tokens < 1:
        raise BadInput(
            f"a sequence of {sequence_tokens} tokens is empty", fix="give the sequence length in tokens"
        )
    q_width = shape.q_width or shape.hidden
    attention = 6 * shape.layers * sequence_tokens * q_width
    if not lora_rank:
        return float(6 * shape.multiplied + attention)
    first = shape.hidden * (q_width + 2 * shape.kv_width + 3 * lora_rank)
    adapters = shape.lora_parameters_qkvo(lora_rank)
    return float(4 * shape.multiplied + 6 * adapters - 2 * first + attention)


def mfu(tokens_per_s: float, *, flop_per_token: float, gpus: int, peak_tflop_per_s: float) -> float:
    """Return model FLOP utilisation: tokens/s x FLOP/token / (GPUs x peak). Above 1 is impossible.

    Raises BadInput: no GPU or no peak.
    """
    if gpus < 1 or not peak_tflop_per_s > 0:
        raise BadInput(
            f"{gpus} GPUs of {peak_tflop_per_s:g} TFLOP/s compute nothing", fix="give GPUs and dense peak"
        )
    return tokens_per_s * flop_per_token / (gpus * peak_tflop_per_s * 1e12)


def all_reduce_bytes(payload_bytes: float, ranks: int) -> float:
    """Return what each rank sends (and receives) to all-reduce a payload: 2(n-1)/n x payload."""
    return 2 * payload_bytes * _others(ranks)


def all_gather_bytes(payload_bytes: float, ranks: int) -> float:
    """Return what each rank receives to gather a payload, or sends to reduce-scatter it: (n-1)/n."""
    return payload_bytes * _others(ranks)


@dataclass(frozen=True)
class StepTraffic:
    """What collectives move in one optimiser step: bytes that each GPU, and each node by its NICs,
    receives."""

    gpu_bytes: float
    node_bytes: float


def lora_step_traffic(
    shape: TransformerShape,
    *,
    layout: Literal["ddp", "tp", "fsdp", "hsdp"],
    nodes: int,
    gpus_per_node: int,
    lora_rank: int,
    micro_batches: int,
    micro_batch_tokens: int,
    weight_bytes: int = 2,
) -> StepTraffic:
    """Return the expected traffic of a LoRA step with ring collectives; gradients travel as float32.

    A ring over several nodes enters each node once, whatever its number of GPUs: of an all-gather each node
    receives (n-1)/n of the payload through all its NICs together, of an all-reduce twice that.

    - ddp: one all-reduce of the adapters' gradients a step.
    - tp: that, of each rank's share, between nodes; within the node seven all-reduces of activations a layer
      and micro-batch (o and down forward; q, k, v, gate and up backward). Adapters split along one side only:
      A of q, k, v and B of o are whole on every rank.
    - fsdp: the layers' weights are gathered twice a micro-batch, embedding and head once (the root is not
      freed between); the adapters' gradients are reduce-scattered once a step.
    - hsdp: as fsdp within the node; between nodes an all-reduce of each rank's shard of the gradients.

    Raises BadInput: no rank.
    """
    ranks = nodes * gpus_per_node
    adapters = shape.lora_parameters_qkvo(lora_rank) * 4
    if layout == "ddp":
        moved = all_reduce_bytes(adapters, ranks)
        return StepTraffic(moved, moved if nodes > 1 else 0.0)
    if layout == "tp":
        whole = shape.layers * lora_rank * 4 * shape.hidden * 4
        between = all_reduce_bytes(whole + (adapters - whole) / gpus_per_node, nodes)
        activations = micro_batch_tokens * shape.hidden * weight_bytes
        within = 7 * shape.layers * micro_batches * all_reduce_bytes(activations, gpus_per_node)
        return StepTraffic(within + between, gpus_per_node * between)
    # Adapters are gathered with their layers.
    layers = (shape.layer_parameters + shape.lora_parameters_qkvo(lora_rank)) * weight_bytes
    rest = (shape.parameters - shape.layer_parameters) * weight_bytes
    gathered = micro_batches * (2 * layers + rest)
    if layout == "fsdp":
        moved = all_gather_bytes(gathered + adapters, ranks)
        return StepTraffic(moved, moved if nodes > 1 else 0.0)
    within = all_gather_bytes(gathered + adapters, gpus_per_node)
    between = all_reduce_bytes(adapters / gpus_per_node, nodes)
    return StepTraffic(within + between, gpus_per_node * between)


def transfer_time_s(payload_bytes: float, gb_per_s: float) -> float:
    """Return the time to move a payload at a rate in GB/s (10^9 B/s).

    Raises BadInput: a rate that is not positive.
    """
    if not gb_per_s > 0:
        raise BadInput(f"{gb_per_s:g} GB/s moves nothing", fix="give the rate in GB/s")
    return payload_bytes / (gb_per_s * 1e9)


def step_flop(parameters: float, *, tokens: int, recompute: bool) -> float:
    """Return the FLOP of a full-training step without attention: 2 x 3 (recomputing: 4) x P x tokens."""
    return 2.0 * (4 if recompute else 3) * parameters * tokens


def step_compute_time_s(
    parameters: float, *, tokens: int, gpus: int, peak_tflop_per_s: float, mfu: float, recompute: bool
) -> float:
    """Return the computing time of one step over all GPUs: 2 x (3 or 4) x P x tokens / (GPUs x MFU x peak).

    Raises BadInput: no GPU, no peak, or a utilisation outside 0 to 1.
    """
    if gpus < 1 or not peak_tflop_per_s > 0 or not 0 < mfu <= 1:
        raise BadInput(
            f"{gpus} GPUs of {peak_tflop_per_s:g} TFLOP/s at MFU {mfu:g} cannot compute",
            fix="give 1 GPU or more, the dense peak, and an MFU between 0 and 1",
        )
    return step_flop(parameters, tokens=tokens, recompute=recompute) / (gpus * mfu * peak_tflop_per_s * 1e12)


@dataclass(frozen=True)
class StepTime:
    """One training step that overlaps communication with computing: the longer of the two is the step."""

    compute_s: float
    communication_s: float

    @property
    def bottleneck(self) -> Literal["communication", "compute"]:
        """Which of the two the step waits for."""
        return "communication" if self.communication_s > self.compute_s else "compute"

    @property
    def step_s(self) -> float:
        """Length of the step with perfect overlap: a lower bound."""
        return max(self.compute_s, self.communication_s)


def _others(ranks: int) -> float:
    if ranks < 1:
        raise BadInput(f"{ranks} ranks cannot communicate", fix="use 1 rank or more")
    return (ranks - 1) / ranks


def sharded_step_time_s(
    layers: int,  # how many are gathered, each twice
    *,
    gather_s: float,  # time to gather one layer's weights, measured over the same network
    root_gather_s: float,  # the same of what belongs to no layer: embedding and head, once
    reduce_s: float,  # time to reduce one layer's gradients
    layer_forward_s: float,  # computing of a layer forward
    layer_backward_s: float,  # computing of a layer backward
    head_s: float,  # computing of head and loss, forward and backward, and the optimiser
) -> float:
    """Return the time of one step whose weights are sharded over all ranks and gathered layer by layer.

    Collectives run one after the other; while a layer computes, the next one's weights travel, and no further
    ones (PyTorch's FSDP, which frees a layer's weights after its forward and gathers them again). So the
    slower of the two decides, and of the faster only its ends show: adding both would count time twice.

    Raises BadInput: no layer, or a time that is negative.
    """
    times = (gather_s, root_gather_s, reduce_s, layer_forward_s, layer_backward_s, head_s)
    if layers < 1 or not all(0 <= time < inf for time in times):
        raise BadInput(
            f"{layers} layers in times of {times} s make no step",
            fix="give 1 layer or more, times of 0 or more",
        )
    # When the network and the GPU are free again, and from when on the next weights may travel.
    network = gpu = root_gather_s
    free_s = 0.0
    for computing_s, reducing_s, after_s in (
        (layer_forward_s, 0.0, head_s),
        (layer_backward_s, reduce_s, 0.0),
    ):
        for _ in range(layers):
            network = max(network, free_s) + gather_s
            free_s = max(gpu, network)  # the layer begins: its weights are in place, the next ones may come
            gpu = free_s + computing_s
            network += reducing_s
        gpu += after_s
        free_s = gpu  # the first layer backward is asked for when head and loss are done
    return max(gpu + reduce_s, network)


# As in the PRIMERGY CDI paper, each epoch reads every sample once, as raw bytes: rate = epochs x samples x
# bytes per sample / time. Sizes of data sets: MLPerf Training's reference implementations (ImageNet-1k, and
# RetinaNet's part of OpenImages).

_MINUTE_S = 60


@dataclass(frozen=True)
class DataSet:
    """Samples of a data set, and the bytes of one as the GPU gets it: height x width x channels."""

    samples: int
    bytes_per_sample: int

    @property
    def epoch_gb(self) -> float:
        """What one epoch reads, in GB (10^9 B)."""
        return self.samples * self.bytes_per_sample / 1e9


DATA_SETS = {
    "resnet50": DataSet(1_281_167, 224 * 224 * 3),  # ImageNet-1k, training set
    "retinanet": DataSet(1_170_301, 800 * 800 * 3),  # OpenImages v6, MLPerf's 264 classes
}


def input_gb_per_s(data: DataSet, *, epochs: float, minutes: float) -> float:
    """Return the mean rate at which a training reads, in GB/s: epochs x samples x bytes / time.

    Raises BadInput: no epoch or no time.
    """
    return _positive(epochs, "epochs") * data.epoch_gb / (_positive(minutes, "minutes") * _MINUTE_S)


def training_minutes(data: DataSet, *, epochs: float, gb_per_s: float) -> float:
    """Return how long a training takes at least at a rate of its input, in minutes.

    Raises BadInput: no epoch or no rate.
    """
    return _positive(epochs, "epochs") * data.epoch_gb / _positive(gb_per_s, "GB/s") / _MINUTE_S


def epochs_of(data: DataSet, *, minutes: float, gb_per_s: float) -> float:
    """Return the epochs that fit into a time at a rate of input. Raises BadInput: no time or no rate."""
    return _positive(minutes, "minutes") * _MINUTE_S * _positive(gb_per_s, "GB/s") / data.epoch_gb


def share_percent(gb_per_s: float, link_gb_per_s: float) -> float:
    """Return a rate as a share of what a link or a path carries, in %.

    Raises BadInput: a link that carries nothing.
    """
    return 100 * gb_per_s / _positive(link_gb_per_s, "GB/s of the link")


def slowdown_percent(minutes: float, baseline_minutes: float) -> float:
    """Return how much longer a training takes than the baseline, in %; negative where it is shorter.

    Raises BadInput: a baseline without length.
    """
    return 100 * (minutes / _positive(baseline_minutes, "minutes of the baseline") - 1)


def _positive(number: float, name: str) -> float:
    if not (isfinite(number) and number > 0):
        raise BadInput(f"{number:g} {name} make no training", fix=f"give {name} above 0")
    return number
