"""What the trainer counts and builds of a model, as JSON: one_model.py FOLDER, in its environment."""

import json
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "workloads")]
from lora_trainer.model import allocate, build, config_of, shape_of  # noqa: E402
from shakedown.benchmarks.lora.settings import TrainingSpec  # noqa: E402

TOKENS = 64


def main(folder: Path) -> None:
    """Print what is found of the model whose config.json lies in a folder."""
    spec = TrainingSpec(
        model=str(folder / "config.json"), sequence_tokens=TOKENS, device="cpu", compile=False, dtype="fp32"
    )
    config = config_of(spec)
    config._experts_implementation = "eager"  # of which the counter knows the products
    trainee = build(spec, config)
    allocate(trainee, spec, config, torch.device("cpu"))
    sequences = torch.randint(0, 512, (2, TOKENS + 1), generator=torch.Generator().manual_seed(1))
    shape = shape_of(config)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        trainee(sequences).backward()
    # This attention computes what causality masks, too.
    masked = 6 * shape.layers * TOKENS * shape.q_width
    ran = counter.get_total_flops() / (2 * TOKENS) - masked
    print(json.dumps({"counted": spec.flop_per_token(shape), "ran": ran}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
