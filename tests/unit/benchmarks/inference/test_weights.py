"""Weights are known by their checksum before a search spends hours on them."""

import hashlib

import pytest

from loadgen_harness.workers import checked


def test_other_weights_than_planned_are_refused_before_the_search(tmp_path):
    """Catches: weights that were swapped under the planned name."""
    weights = tmp_path / "resnet50.pt"
    weights.write_bytes(b"planned")
    planned = hashlib.sha256(b"planned").hexdigest()
    assert checked(str(weights), planned) == planned
    weights.write_bytes(b"another")
    with pytest.raises(ValueError, match=f"planned {planned}"):
        checked(str(weights), planned)
