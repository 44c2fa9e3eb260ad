"""The model: a shape or a saved one, with LoRA adapters, built without memory, then filled by shards."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (its name everywhere)
from accelerate import init_empty_weights
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from lora_trainer.data import Bytes, Tokenizer
from lora_trainer.fp8 import fit_for_fp8, freeze_in_fp8
from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.physics.training import SHAPES, TransformerShape
from shakedown.records.reading import BadInput

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
# By transformers' name of the model, what keeps a layout from splitting it, empty if nothing does. Of others
# this trainer would leave something out: Gemma 2 caps its scores, Phi-3 merges the projections.
SUPPORTED = {
    "llama": "",
    "mistral": "",
    "qwen2": "",
    "qwen3": "",
    "gemma3_text": "",
    "olmo2": "its norms are as wide as all heads",
    "mixtral": "its experts are not split",
}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp8": torch.bfloat16}
# A shape's weights are drawn with this deviation over the root of the hidden width: Llama's 0.02 at 4096. A
# narrow model with 0.02 could not learn at all: its head's rows would be too short to tell tokens apart.
_DEVIATION = 1.28


class Trainee(nn.Module):
    """Model and loss in one module, so that full sharding sees one root and no logits leave it."""

    def __init__(self, causal: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.causal = causal
        self.loss = loss

    @property
    def base(self) -> Any:  # noqa: ANN401  (transformers' class depends on the model)
        """transformers' decoder with its head, below PEFT's wrapper."""
        return self.causal.get_base_model()

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of predicting each next token of [n, sequence_tokens + 1]."""
        decoder = self.base.model
        hidden = decoder(input_ids=sequences[:, :-1], use_cache=False).last_hidden_state
        return self.loss(hidden, self.base.lm_head.weight, sequences[:, 1:])


def head_and_loss(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss from hidden states. Compiled, the float32 logits exist in registers only."""
    logits = F.linear(hidden.flatten(0, 1), head).float()
    return F.cross_entropy(logits, targets.flatten())


def config_of(spec: TrainingSpec) -> Any:  # noqa: ANN401
    """Return transformers' configuration of the model. Raises BadInput."""
    if spec.model in SHAPES:
        shape = SHAPES[spec.model]
        head_width = 128 if shape.hidden >= 4096 else 32
        return LlamaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.hidden // head_width,
            num_key_value_heads=shape.kv_width // head_width,
            rms_norm_eps=1e-5,
            max_position_embeddings=max(4096, spec.sequence_tokens),
            tie_word_embeddings=False,
        )
    try:
        config = AutoConfig.from_pretrained(spec.model, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(
            f"no model there: {str(error).splitlines()[0]}",
            fix="give a folder with config.json",
            file=spec.model,
        ) from None
    kind = config.model_type
    odd = f"this trainer does not know {kind}" if kind not in SUPPORTED else ""
    if spec.layout == "tp" and not odd and SUPPORTED[kind]:
        odd = f"tensor parallelism does not fit {kind}: {SUPPORTED[kind]}"
    if kind == "mixtral" and _has_weights(spec):
        odd = "saved experts of mixtral are not read"
    if kind == "mixtral" and spec.dtype == "fp8":
        odd = "the experts of mixtral are not multiplied in fp8"
    if not odd and getattr(config, "final_logit_softcapping", None):
        odd = f"this {kind} caps its logits, which is not computed here"
    if odd:
        raise BadInput(odd, fix=f"train {', '.join(SUPPORTED)}", file=spec.model)
    return config


def shape_of(config: Any) -> TransformerShape:  # noqa: ANN401
    """Return the part of a configuration that decides parameters and FLOP."""
    heads = config.num_attention_heads
    head_width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return TransformerShape(
        config.num_hidden_layers,
        config.hidden_size,
        config.num_key_value_heads * head_width,
        config.intermediate_size,
        config.vocab_size,
        q_width=heads * head_width,
        experts=getattr(config, "num_local_experts", 1),
        active=getattr(config, "num_experts_per_tok", 1),
        tied=config.tie_word_embeddings,
    )


def tokenizer_of(spec: TrainingSpec) -> Tokenizer:
    """Return the model's tokenizer; bytes where the model is a shape. Raises BadInput."""
    if not _has_weights(spec):
        return Bytes()
    try:
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(spec.model, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(
            f"the tokenizer is missing: {str(error).splitlines()[0]}",
            fix="copy tokenizer.json beside the weights",
            file=spec.model,
        ) from None
    return tokenizer


def _has_weights(spec: TrainingSpec) -> bool:
    return spec.model not in SHAPES and not spec.model.endswith(".json")


def build(spec: TrainingSpec, config: Any) -> Trainee:  # noqa: ANN401
    """Return the model with adapters on the meta device: nothing is allocated yet but the buffers."""
    dtype = DTYPES[spec.dtype]
    with init_empty_weights(include_buffers=False):
        causal = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
        lora = LoraConfig(
            r=spec.lora_rank,
            lora_alpha=spec.lora_alpha,
            lora_dropout=spec.lora_dropout,
            target_modules=list(TARGETS),
            task_type="CAUSAL_LM",
        )
        # The optimiser keeps float32 copies of the adapters; the model computes in one type throughout.
        model = get_peft_model(causal, lora, autocast_adapter_dtype=False)
    for parameter in model.parameters():  # not the buffers: frequencies need their digits
        parameter.data = parameter.data.to(dtype)
    causal.tie_weights()
    model.train()
    return Trainee(model, torch.compile(head_and_loss, dynamic=False) if spec.compile else head_and_loss)


def compile_layers(trainee: Trainee, spec: TrainingSpec) -> None:
    """Compile each layer by itself: equal layers share the code, so a deep model compiles no longer than
    one."""
    layers = trainee.base.model.layers
    for place, layer in enumerate(layers):
        kept: nn.Module = layer
        if place < spec.recompute_layers:
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

            kept = checkpoint_wrapper(layer, preserve_rng_state=spec.lora_dropout > 0)
        # Of tensor parallelism the first layer's attention is timed by itself (loop.py), which a graph
        # forbids.
        if spec.compile and not (spec.layout == "tp" and place == 0):
            kept = torch.compile(kept, dynamic=False)
        layers[place] = kept


def allocate(
    trainee: Trainee,
    spec: TrainingSpec,
    config: Any,  # noqa: ANN401
    device: torch.device,
    *,
    saved: bool = True,  # no: random weights also where the model has its own
) -> None:
    """Allocate the model's shards on a device and fill them: the same weights for every layout.

    Raises:
        BadInput: weights are missing or of another shape; a GPU without fp8, or with too little memory.
    """
    if spec.dtype == "fp8":
        fit_for_fp8(device)
    if device.type == "cuda":
        parts = [p.to_local() if isinstance(p, DTensor) else p for p in trainee.parameters()]
        needed, free = sum(p.numel() * p.element_size() for p in parts), torch.cuda.mem_get_info(device)[0]
        if needed > free:
            raise BadInput(
                f"the weights alone take {needed / 1e9:.4g} GB of a GPU that has {free / 1e9:.4g} GB free",
                fix="shard them over more GPUs (layout fsdp), or train a smaller model",
            )
    # No file holds a rotary frequency or the scale of an embedding: buffers stay as they were built.
    buffers = [buffer.to(device, copy=True) for buffer in trainee.buffers()]
    trainee.to_empty(device=device)
    for buffer, built in zip(trainee.buffers(), buffers, strict=True):
        buffer.copy_(built)
    trainee.base.tie_weights()  # which that had parted
    norm = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma's weights are what is added to 1
    own = _Saved(Path(spec.model)) if saved and _has_weights(spec) else None
    with torch.no_grad():
        for full_name, parameter in trainee.named_parameters():
            name = plain_name(full_name)
            shape = parameter.shape
            if own is not None and "lora_" not in name:
                whole = own.tensor(name, shape).to(device, parameter.dtype)
            else:
                deviation = _DEVIATION / math.sqrt(config.hidden_size)
                whole = _drawn(name, shape, spec.seed, device, deviation, norm).to(parameter.dtype)
            if isinstance(parameter, DTensor):
                part = distribute_tensor(
                    whole, parameter.device_mesh, parameter.placements, src_data_rank=None
                )
                parameter.to_local().copy_(part.to_local())
            else:
                parameter.copy_(whole)
    if spec.dtype == "fp8":
        freeze_in_fp8(trainee.base.model.layers)


def plain_name(name: str) -> str:
    """Return a parameter's name without what wrappers put into it."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module.", "causal.base_model.model.", "base_layer."):
        name = name.replace(wrapper, "")
    return name


def _drawn(
    name: str, shape: torch.Size, seed: int, device: torch.device, deviation: float, norm: float
) -> torch.Tensor:
    """Return initial weights that depend on seed, name and shape alone."""
    if name.endswith("norm.weight"):
        return torch.full(shape, norm, device=device)
    if "lora_B" in name or name.endswith(".bias"):
        return torch.zeros(shape, device=device)
    generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    if "lora_A" in name:
        limit = 1 / math.sqrt(shape[1])  # PEFT: Kaiming, uniform, a = sqrt(5)
        return torch.empty(shape, device=device).uniform_(-limit, limit, generator=generator)
    return torch.empty(shape, device=device).normal_(0, deviation, generator=generator)


class _Saved:
    """Weights of a model's folder, read tensor by tensor."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise BadInput("no *.safetensors in it", fix="save the model with safetensors", file=folder)
        self._folder = folder
        self._handles = [safe_open(file, "pt") for file in files]
        self._where = {name: handle for handle in self._handles for name in handle.keys()}  # noqa: SIM118

    def tensor(self, name: str, shape: torch.Size) -> torch.Tensor:
        handle = self._where.get(name)
        if handle is None:
            raise BadInput(f"no weights {name}", fix="give a whole model", file=self._folder)
        found: torch.Tensor = handle.get_tensor(name)
        if found.shape != shape:
            raise BadInput(f"{name} is {tuple(found.shape)}, not {tuple(shape)}", file=self._folder)
        return found
