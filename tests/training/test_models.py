"""Models that people train, tiny: what the trainer counts and builds, beside the libraries' own."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TRAINING_ENV", Path.home() / ".cache/shakedown/training-venv")) / "bin/python"
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
REFUSED: dict[str, dict[str, Any]] = {
    "gemma2": {"model_type": "gemma2", "head_dim": 48},
    "phi3": {"model_type": "phi3"},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What the training environment finds of each model, in one process: PyTorch takes a minute to load."""
    if not PYTHON.exists():
        pytest.skip(f"no training environment at {PYTHON.parent}: make training-env")
    folder = tmp_path_factory.mktemp("models")
    for name, changes in {**MODELS, **REFUSED}.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(TINY | changes))
    words = [PYTHON, ROOT / "tests/training/one_model.py", *(folder / name for name in {**MODELS, **REFUSED})]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("name", MODELS)
def test_the_products_counted_are_those_that_run(name, found):
    """Catches: a look-up counted as a product, experts that compute nothing, heads wider than the model."""
    assert found[name]["counted"] == pytest.approx(found[name]["ran"], rel=0.005)


@pytest.mark.parametrize("name", MODELS)
def test_two_steps_are_those_of_transformers_and_peft(name, found):
    """Catches: buffers that are whatever memory held, a head that is not the embedding, another loss."""
    assert found[name]["buffers"] == []
    assert found[name]["ours"] == pytest.approx(found[name]["library"], rel=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mixtral"])
def test_a_frozen_base_in_fp8_learns_as_in_bf16(name, found):
    """Catches: a scale left out or applied twice, weights in the wrong order, no gradient."""
    (loss, gradients), (loss8, gradients8) = found[name]["fp8"]
    assert loss8 == pytest.approx(loss, rel=0.02)
    product = sum(a * b for a, b in zip(gradients, gradients8, strict=True))
    length, length8 = (sum(a * a for a in one) ** 0.5 for one in (gradients, gradients8))
    # Gradients in e5m2 have two digits: 0.96 to 0.99 were seen. A product that is wrong gives about nothing.
    assert product / length / length8 > 0.9
    assert length8 == pytest.approx(length, rel=0.1)
    assert 0 < product / length**2 != 1  # else it was not fp8


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mixtral"])
def test_saved_weights_give_the_loss_that_they_had(name, found):
    """Catches: a tied model that cannot be loaded, weights read into the wrong place."""
    assert found[name]["loaded"] == pytest.approx(found[name]["wanted"], rel=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_would_be_another_is_refused_by_name(name, found):
    """Catches: training without what the model has, found out after the GPUs were taken."""
    assert f"this trainer does not know {name}" in found[name]["refused"]
