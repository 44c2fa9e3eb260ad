"""What a LoRA fine-tuning job must do: one record for the planner, the trainer and the verdict.

A plain dataclass, because the trainer runs in the training environment, where pydantic need not be: the
inventory is validated by pydantic through it, the trainer builds it from the job's settings.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal

from shakedown.physics.training import (
    SHAPES,
    StepTraffic,
    TransformerShape,
    flop_per_token,
    lora_step_traffic,
    peak_tflop_per_s,
)
from shakedown.records.reading import BadInput

GENERATED = "generated"
# The command that installs the environment of software.pytorch; messages quote it where that is missing.
INSTALL = "make training-env TRAINING_ENV=FOLDER (on the nodes' shared file system)"
Layout = Literal["ddp", "tp", "fsdp", "hsdp"]
Metric = Literal[
    "samples_per_s",
    "tokens_per_s",
    "mfu",
    "step_time",
    "step_time_p99",
    "final_loss",
    "nonfinite_steps",
    "rank_skew",
    "comm_share",
    "layout_overhead",
    "traffic_share",
    "duration",
]

# Only what steers the communication libraries: nothing of a site's options may load code into a job.
_VARIABLE = re.compile(r"(NCCL|TORCH_NCCL|GLOO|UCX)_[A-Z0-9_]+")


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """One training job. Rate, clip, decay, rank and alpha are MLPerf's llama2_70b_lora by default.

    Raises ValueError: values that no job can carry out, in a sentence (pydantic names the field).
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    # A shape with random weights (tiny, llama2-7b, -13b, -70b), the path of a config.json (random weights),
    # or the path of a folder with weights and tokenizer as transformers saves them.
    model: str
    # Dolly-15k's JSONL by path, or instructions made up from the seed.
    data: str = GENERATED
    layout: Layout = (
        "ddp"  # tp: within the node, data-parallel over nodes; fsdp: shard over all; hsdp: in the node
    )
    gpus_per_node: int = 1  # processes a node, on a CPU too
    device: Literal["cuda", "cpu"] = "cuda"
    # fp8: the frozen weights of the layers are multiplied in it (ddp only), and all else is in bf16.
    dtype: Literal["bf16", "fp32", "fp8"] = "bf16"
    steps: int = 60
    warmup_steps: int = 5  # neither compiled nor warm: trained, but left out of every rate
    sequence_tokens: int = 2048
    micro_batch: int = 1  # sequences a replica computes at once
    global_batch: int = 8  # sequences a step
    lora_rank: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    learning_rate: float = 4e-4  # falls along a cosine to nothing at the last step
    clip: float = 0.3
    weight_decay: float = 1e-4
    seed: int = 1
    compile: bool = True
    recompute_layers: int = 0  # of this many layers activations are computed again instead of kept
    checkpoint_every: int = 0  # steps; 0: none
    # Seconds without progress after which a job is ended and the rank at fault named; and before the first
    # step.
    hang_s: float = 40.0
    start_s: float = 900.0
    time_limit_s: int | None = None  # of the job; None: from the steps and what their reference allows
    # Settings of the communication libraries for every rank, such as NCCL_NVLS_ENABLE: "0".
    variables: dict[str, str] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ("samples_per_s", "final_loss", "nonfinite_steps", "rank_skew")

    def __post_init__(self) -> None:
        if self.model not in SHAPES and not PurePosixPath(self.model).is_absolute():
            raise ValueError(f"model {self.model!r} is neither {', '.join(SHAPES)} nor an absolute path")
        if self.data != GENERATED and not PurePosixPath(self.data).is_absolute():
            raise ValueError(f"data {self.data!r} is neither {GENERATED} nor an absolute path")
        for name in ("gpus_per_node", "steps", "micro_batch", "global_batch", "lora_rank", "time_limit_s"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise ValueError(f"{name} is {given}; it must be 1 or more")
        if wrong := [name for name in self.variables if not _VARIABLE.fullmatch(name)]:
            raise ValueError(f"variables: {wrong[0]!r} is no setting of NCCL, Gloo or UCX")
        if self.sequence_tokens < 16:
            raise ValueError(f"sequence_tokens is {self.sequence_tokens}; no instruction fits")
        if not 1 <= self.warmup_steps < self.steps:
            raise ValueError(f"warmup_steps must lie between 1 and steps - 1 = {self.steps - 1}")
        if "layout_overhead" in self.metrics and self.layout not in ("fsdp", "hsdp"):
            raise ValueError(f"metrics: layout_overhead is of fsdp and hsdp; {self.layout} has comm_share")
        if self.dtype == "fp8" and self.layout != "ddp":
            raise ValueError(f"dtype: fp8 is for layout ddp, not {self.layout}")
        for name in ("learning_rate", "clip", "hang_s", "start_s"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a positive number")
        if not 0 <= self.lora_dropout < 1 or min(self.checkpoint_every, self.recompute_layers, self.seed) < 0:
            raise ValueError(
                "lora_dropout lies in 0..1; checkpoint_every, recompute_layers, seed are not negative"
            )

    @property
    def label(self) -> str:
        """What the model is called in cells and references: a shape's name, or the last part of a path."""
        path = PurePosixPath(self.model)
        return self.model if self.model in SHAPES else (path.parent if path.suffix else path).name

    @property
    def weights(self) -> Literal["random", "loaded"]:
        """Whether training begins with a model's own weights, or with random ones of its shape."""
        return "random" if self.model in SHAPES or self.model.endswith(".json") else "loaded"

    @property
    def data_name(self) -> str:
        """What the trainer's log calls the data: generated, or the file's name."""
        return GENERATED if self.data == GENERATED else PurePosixPath(self.data).name

    @property
    def real(self) -> bool:
        """Whether real data train real weights: without both, a loss says that training works and no more."""
        return self.weights == "loaded" and self.data != GENERATED

    @property
    def params(self) -> dict[str, str | int]:
        """What tells the cells of one job from those of another."""
        # Not a key of its own: bf16's job lacks it, and would measure the cells of both.
        model = f"{self.label}-fp8" if self.dtype == "fp8" else self.label
        return {"model": model, "layout": self.layout, "gpus_per_node": self.gpus_per_node}

    def replicas(self, nodes: int) -> int:
        """Return how many parts of a batch are computed at once: ranks, unless they share a model by TP."""
        return nodes if self.layout == "tp" else nodes * self.gpus_per_node

    def micro_batches(self, nodes: int) -> int:
        """Return how many micro-batches each replica computes per step.

        Raises BadInput: the global batch is no multiple of what all replicas compute at once.
        """
        at_once = self.replicas(nodes) * self.micro_batch
        if self.global_batch % at_once:
            raise BadInput(
                f"global_batch {self.global_batch} is no multiple of {self.replicas(nodes)} replicas x "
                f"micro_batch {self.micro_batch}",
                fix="change acceptance.lora",
            )
        return self.global_batch // at_once

    def flop_per_token(self, shape: TransformerShape) -> float:
        """Return the FLOP that a trained token of a model needs in this job."""
        return flop_per_token(shape, sequence_tokens=self.sequence_tokens, lora_rank=self.lora_rank)

    def peak_tflop_per_s(self, device: str) -> float | None:
        """Return the dense peak of this job's products on a GPU, None if it is not known.

        Of fp8 head and attention stay in bf16, so a whole job stays below it.
        """
        return peak_tflop_per_s(device, fp8=self.dtype == "fp8")

    def traffic(self, shape: TransformerShape, nodes: int) -> StepTraffic:
        """Return what collectives should move per step. Raises BadInput."""
        return lora_step_traffic(
            shape,
            layout=self.layout,
            nodes=nodes,
            gpus_per_node=self.gpus_per_node,
            lora_rank=self.lora_rank,
            micro_batches=self.micro_batches(nodes),
            micro_batch_tokens=self.micro_batch * self.sequence_tokens,
            weight_bytes=4 if self.dtype == "fp32" else 2,
        )

    @classmethod
    def from_json(cls, document: object) -> TrainingSpec:
        """Build a spec from a job's settings. Raises BadInput."""
        names = {f.name for f in fields(cls)}
        if isinstance(document, dict):
            # Orders of earlier releases say where PyTorch is, too.
            document = {k: v for k, v in document.items() if k not in ("python", "container")}
        if not isinstance(document, dict) or not document.keys() <= names:
            raise BadInput("not the settings of a training job", fix="they are made by `shakedown plan`")
        try:
            return cls(**{**document, "metrics": tuple(document.get("metrics", ()))})
        except (TypeError, ValueError) as error:
            raise BadInput(f"settings of a training job: {error}") from None
