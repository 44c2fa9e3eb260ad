"""What the trainer counts and builds of models, as JSON: one_model.py FOLDER..., in its environment."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "workloads")]
from lora_trainer.model import TARGETS, allocate, build, config_of, shape_of  # noqa: E402
from shakedown.benchmarks.lora.settings import TrainingSpec  # noqa: E402
from shakedown.records.reading import BadInput  # noqa: E402

TOKENS = 64


def plain(config: Any) -> Any:
    """The libraries' own model with adapters."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    return get_peft_model(model, lora).train()


def steps(called: Callable[[], torch.Tensor], model: torch.nn.Module) -> list[float]:
    """Take two steps; each one's loss, and the norm of its gradients."""
    trained = [p for p in model.parameters() if p.requires_grad]
    seen = []
    for _ in range(2):
        loss = called()
        loss.backward()
        seen += [
            loss.item(),
            torch.stack([p.grad.norm() for p in trained if p.grad is not None]).norm().item(),
        ]
        with torch.no_grad():
            for p in trained:
                p.sub_(0.1 * p.grad)
                p.grad = None
    return seen


def first_step(folder: Path, config: Any, sequences: torch.Tensor, dtype: Any) -> tuple[float, list[float]]:
    """The loss of a step, and the gradients that the adapters get of it."""
    spec = TrainingSpec(model=str(folder / "config.json"), device="cpu", compile=False, dtype=dtype)
    trainee = build(spec, config)
    allocate(trainee, spec, config, torch.device("cpu"))
    with torch.no_grad():
        for name, p in trainee.named_parameters():
            if "lora_B" in name:  # at zero no gradient would reach A
                p.fill_(0.01)
    loss = trainee(sequences)
    loss.backward()
    grads = [p.grad.float().flatten() for p in trainee.parameters() if p.grad is not None]
    return loss.item(), torch.cat(grads).tolist()


def main(folder: Path) -> dict[str, Any]:
    """Return what is found of the model whose config.json lies in a folder."""
    about = {"sequence_tokens": TOKENS, "device": "cpu", "compile": False, "dtype": "fp32"}
    spec = TrainingSpec(model=str(folder / "config.json"), **about)
    config = config_of(spec)
    config._experts_implementation = "eager"  # of which the counter knows the products
    sequences = torch.randint(0, 512, (2, TOKENS + 1), generator=torch.Generator().manual_seed(1))
    shape = shape_of(config)
    result: dict[str, Any] = {"counted": spec.flop_per_token(shape), "parameters": shape.parameters}
    trainee = build(spec, config)
    allocate(trainee, spec, config, torch.device("cpu"))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        trainee(sequences)
        counted = counter.get_total_flops()
        trainee(sequences).backward()
    # This attention computes what causality masks, too.
    masked = 6 * shape.layers * TOKENS * shape.q_width
    result["ran"] = (counter.get_total_flops() - counted) / (2 * TOKENS) - masked
    trainee.zero_grad()
    other = plain(config)
    other.load_state_dict(trainee.causal.state_dict())
    own = dict(other.named_buffers())
    result["buffers"] = [n for n, b in trainee.causal.named_buffers() if not torch.equal(b, own[n])]

    def library() -> torch.Tensor:
        # transformers shifts by itself: its own labels, of which the first is not predicted.
        found: torch.Tensor = other(input_ids=sequences, labels=sequences, use_cache=False).loss
        return found

    if config.model_type != "mixtral":
        result["fp8"] = [first_step(folder, config, sequences, kind) for kind in ("bf16", "fp8")]
    result["library"], result["ours"] = steps(library, other), steps(lambda: trainee(sequences), trainee)
    if config.model_type != "mixtral":
        saved = plain(config).unload()
        saved.save_pretrained(folder / "saved")
        spec = TrainingSpec(model=str(folder / "saved"), **about)
        trainee = build(spec, config_of(spec))
        allocate(trainee, spec, config, torch.device("cpu"))
        with torch.no_grad():
            result["loaded"] = trainee(sequences).item()
            result["wanted"] = saved(input_ids=sequences, labels=sequences).loss.item()
    return result


if __name__ == "__main__":
    every = {}
    for path in map(Path, sys.argv[1:]):
        try:
            every[path.name] = main(path)
        except BadInput as refused:
            every[path.name] = {"refused": str(refused)}
    print(json.dumps(every))
