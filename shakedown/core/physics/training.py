"""Arithmetic of training steps: volumes, time to move and compute them, and model FLOP utilisation (MFU).

Sources: Stas Bekman, Machine Learning Engineering, networking chapter of February 2024 (volumes, step time,
communication or compute); Kaplan et al. 2020 and Chowdhery et al. 2022 (PaLM) appendix B (FLOP per token and
MFU); Hu et al. 2021 (LoRA); NVIDIA data sheets (peaks, dense).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shakedown.errors import BadInput

# Dense bf16 peak of one GPU in TFLOP/s (10^12), without sparsity.
PEAK_BF16_TFLOP_PER_S = {"a100": 312.0, "h100": 989.4, "h200": 989.4, "b200": 2250.0, "l40s": 362.0}


@dataclass(frozen=True)
class TransformerShape:
    """A Llama-style decoder: what decides its parameters, its FLOP and its LoRA adapters."""

    layers: int
    hidden: int
    kv_width: int  # width of the key and of the value projection (hidden, unless heads are grouped)
    feed_forward: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """All weights: embedding, head, q, k, v, o, the three of the gated feed-forward, norms."""
        layer = 2 * self.hidden * (self.hidden + self.kv_width + 1) + 3 * self.hidden * self.feed_forward
        return 2 * self.vocabulary * self.hidden + self.layers * layer + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Weights of adapters on the fused q-k-v and the output projection (MLPerf llama2_70b_lora)."""
        fused = self.hidden + (self.hidden + 2 * self.kv_width)
        return self.layers * rank * (fused + 2 * self.hidden)


# Meta's published configurations.
LLAMA2 = {
    "llama2-7b": TransformerShape(32, 4096, 4096, 11008, 32000),
    "llama2-13b": TransformerShape(40, 5120, 5120, 13824, 32000),
    "llama2-70b": TransformerShape(80, 8192, 1024, 28672, 32000),
}


def flop_per_token(shape: TransformerShape, *, sequence_tokens: int, lora: bool) -> float:
    """Return the FLOP that one trained token needs: 6N + 6Lsd in full, 4N + 6Lsd with LoRA.

    Forward 2N, backward 2N for the inputs and, in full training only, 2N for the weights: frozen ones need no
    gradient. Causal attention adds 2Lsd forward and 4Lsd backward. The adapters' own part (< 0.3 %) is left
    out, and so is recomputation: MFU counts what the model needs, not what the program repeats. Counting 6N
    for LoRA overstates MFU by 1.45 (70B at 8192 tokens).

    Raises:
        BadInput: a sequence shorter than one token.
    """
    if sequence_tokens < 1:
        raise BadInput(
            f"a sequence of {sequence_tokens} tokens is empty", fix="give the sequence length in tokens"
        )
    weights = (4 if lora else 6) * shape.parameters
    return float(weights + 6 * shape.layers * sequence_tokens * shape.hidden)


def mfu(tokens_per_s: float, *, flop_per_token: float, gpus: int, peak_tflop_per_s: float) -> float:
    """Return model FLOP utilisation: tokens/s x FLOP/token / (GPUs x peak). Above 1 is impossible.

    Raises:
        BadInput: no GPU or no peak.
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


def fsdp_all_gather_bytes(parameters: int, *, ranks: int, bytes_per_parameter: int = 2) -> float:
    """Return what each rank receives per micro-batch of fully sharded training: the weights, twice.

    Llama-2-70B in bf16 over 64 GPUs: 272 GB.
    """
    return 2 * all_gather_bytes(parameters * bytes_per_parameter, ranks)


def transfer_time_s(payload_bytes: float, gb_per_s: float) -> float:
    """Return the time to move a payload at a rate in GB/s (10^9 B/s).

    Raises:
        BadInput: a rate that is not positive.
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

    Raises:
        BadInput: no GPU, no peak, or a utilisation outside 0 to 1.
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
