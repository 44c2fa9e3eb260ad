"""Models that people train, tiny: what the trainer counts and builds, beside the libraries' own."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "rms_norm_eps": 1e-5}
TINY |= {"max_position_embeddings": 4096, "pad_token_id": 0}
LLAMA31: dict[str, Any] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
LLAMA31 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 5e5}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "llama3.1 tied": {"model_type": "llama", "tie_word_embeddings": True, "rope_parameters": LLAMA31},
    "mistral": {"model_type": "mistral", "tie_word_embeddings": False},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False, "head_dim": 48},
    "gemma3": {"model_type": "gemma3_text", "tie_word_embeddings": True, "head_dim": 48},
    "olmo2": {"model_type": "olmo2", "tie_word_embeddings": False},
    "mixtral": {"model_type": "mixtral", "tie_word_embeddings": False, **EXPERTS},
}


def found(python: Path, folder: Path, name: str, **changes: Any) -> dict[str, Any]:
    """Let the training environment say what it finds of a model."""
    (folder / "config.json").write_text(json.dumps(TINY | MODELS.get(name, {}) | changes))
    words = [python, ROOT / "tests/training/one_model.py", folder]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("name", MODELS)
def test_the_products_counted_are_those_that_run(name, training_python, tmp_path):
    """Catches: a look-up counted as a product, experts that compute nothing, heads wider than the model."""
    seen = found(training_python, tmp_path, name)
    assert seen["counted"] == pytest.approx(seen["ran"], rel=0.005)
