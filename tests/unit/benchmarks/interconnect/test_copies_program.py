"""The program that copies between host and GPU runs in the site's own PyTorch environment."""

import os
from pathlib import Path

from tests.kit.run import python

ROOT = Path(__file__).parents[4]
# PyTorch is not installed here; the site's environment need not have pydantic.
PROGRAM = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["pydantic"] = None
import loadgen_harness.copies
"""


def test_it_needs_nothing_but_pytorch():
    """Catches: an import of the controller's libraries, which the site's PyTorch environment lacks."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'workloads'}"
    done = python("-c", PROGRAM, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")
