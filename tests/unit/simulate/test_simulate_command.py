"""`shakedown simulate` and `shakedown plan`: what cannot be read again is not written."""

from pathlib import Path

import numpy as np
import pytest

from shakedown.records.errors import BadInput
from shakedown.records.reading import LARGEST_DOCUMENT
from shakedown.run import folder as runs
from shakedown.run.folder import PLAN, Run
from shakedown.simulate.fabric import Shape, build_fabric, measure
from shakedown.simulate.run import write_run


@pytest.mark.parametrize("name", ["my run", "-run", "läufe", "x" * 129, "a,b", "a=b"])
@pytest.mark.parametrize("command", [("simulate", "--nodes", 4), ("plan", "inventories/lab", "-o")])
def test_a_folder_whose_name_cannot_be_a_runs_is_refused(shakedown, tmp_path, command, name):
    """Catches: a traceback, and half a run left behind, because the name was only found bad when written."""
    status, _, error = shakedown(*command, tmp_path / name)
    (line,) = error.splitlines()
    assert status == 2
    assert "cannot name a run -- use a folder name of" in line
    assert list(tmp_path.iterdir()) == []


def simulated(folder: Path, nodes: int) -> None:
    """Write a healthy run of one rail."""
    shape, rng = Shape(nodes, 1), np.random.default_rng(1)
    write_run(folder, measure(shape, build_fabric(shape, rng), [], rng), "r", "2026-01-01T00:00:00Z")


def test_a_fabric_whose_plan_nothing_can_read_again_leaves_nothing(tmp_path, monkeypatch):
    """Catches: results written for an hour before the plan turns out to be too large."""
    monkeypatch.setattr(runs, "LARGEST_DOCUMENT", 1000)
    with pytest.raises(BadInput, match="plan fewer nodes"):
        simulated(tmp_path / "r", 4)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_the_largest_fabric_can_be_read_again(tmp_path):
    """Catches: a plan whose bytes for each pair, times those of 4,096 nodes, are more than a reader takes."""
    nodes = 64
    simulated(tmp_path / "r", nodes)
    size = (tmp_path / "r" / PLAN).stat().st_size
    # Names of 4,096 nodes are two letters longer: n0001 for n01.
    for_a_pair = size / (nodes * (nodes - 1) / 2) + 4
    assert for_a_pair * 4096 * 4095 / 2 < LARGEST_DOCUMENT
    assert len(Run(tmp_path / "r").plan.items[0].nodes) == nodes * (nodes - 1) / 2
