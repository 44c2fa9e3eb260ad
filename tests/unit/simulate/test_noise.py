"""The noise models: each does what its text says, and the command takes no nonsense."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shakedown.benchmarks.perftest.mesh.schedule import circle_rounds
from shakedown.records.errors import BadInput
from shakedown.simulate.fabric import Scene, Shape, build_fabric, measure, parse_noise
from shakedown.simulate.noise_models import NOISE

SHAPE = Shape(32, 2, pod=8, dips=0.0, spread=0.0)


def rates(*noise, shape=SHAPE, seed=1):
    """Return a healthy fabric measured in some noise."""
    rng = np.random.default_rng(seed)
    return measure(shape, build_fabric(shape, rng), [], rng, parse_noise(noise, NOISE))


@pytest.mark.parametrize("nodes", [8, 9])
def test_rounds_are_those_of_a_round_robin(nodes):
    """Catches: a node that meets two partners in one round, so that round noise falls on it unevenly."""
    nothing = np.zeros((1, nodes, nodes))
    scene = Scene(8, 4, None, None, nothing, nothing, nothing, nothing, nothing, nothing)
    when, turns = scene.rounds()
    assert turns == len(list(circle_rounds(str(i) for i in range(nodes))))
    for i in range(nodes):
        others = np.delete(when[i], i)
        assert len(set(others)) == nodes - 1 and (when == when.T).all()
        assert set(others) <= set(range(turns))


@pytest.mark.parametrize("name", NOISE)
def test_every_model_changes_the_measurement_and_the_seed_decides_how(name):
    """Catches: a model that does nothing, or that draws from something else than the seed."""
    name = {"bursts": "bursts:share=0.2"}.get(name, name)  # the default hits one NIC in fifty
    one, again = rates(name), rates(name)
    assert np.array_equal(one.matrix.values, again.matrix.values, equal_nan=True)
    assert not np.array_equal(one.matrix.values, rates().matrix.values, equal_nan=True)
    assert np.nanmin(one.matrix.values) > 0
    assert all(
        p.source and p.says and p.low <= p.default <= p.high
        for p in NOISE[name.partition(":")[0]].parameters.values()
    )


def test_steps_classes_and_gaps_are_there():
    """Catches: a step, a share or a loss that is not the one asked for."""
    stepped = rates("quantised:step=2").matrix.values
    assert not (np.nan_to_num(stepped) % 2).any()
    sim = rates("iid:cv=0", "classes:share=50%,loss=10%")
    slow = sim.fabric.classes[0, 0] == 1
    level = sim.matrix.values / np.nanmax(sim.matrix.values)
    assert slow.sum() == 16
    assert np.nanmedian(level[:, slow]) == pytest.approx(0.9) == np.nanmedian(level[:, ~slow][:, :, slow])
    assert np.nanmedian(level[:, ~slow][:, :, ~slow]) == pytest.approx(1)
    assert rates("classes:known=0").fabric.classes is None
    assert rates("missing:share=0.3").matrix.failed.mean() == pytest.approx(0.3, abs=0.03)


def test_flows_share_links_and_leaves_drag():
    """Catches: collisions within a leaf, where no link is shared, or sharing that slows nothing."""
    for name in ("ecmp-static", "ecmp-flow"):
        sim = rates("iid:cv=0", name)
        near = sim.fabric.leaf[:, :, None] == sim.fabric.leaf[:, None, :]
        best = np.nanmax(sim.matrix.values)
        assert np.nanmin(sim.matrix.values[near]) == pytest.approx(best)
        assert 0.05 < (sim.matrix.values[~near] < 0.9 * best).mean() < 0.7
    dragged = rates("iid:cv=0", "incast").matrix.values
    assert (dragged < 0.98 * np.nanmax(dragged)).mean() > 0.05


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pink", "unknown model"),
        ("iid:sd=1", "no parameter 'sd'"),
        ("iid:cv=9", "cv '9'"),
        ("iid:cv=nan", "cv 'nan'"),
        ("spread:sd=x%", "sd 'x%'"),
    ],
)
def test_nonsense_is_refused_and_says_what_there_is(text, says):
    """Catches: a misspelt model or value that is silently another noise."""
    with pytest.raises(BadInput, match=says):
        parse_noise([text], NOISE)


def test_the_command_writes_noise_into_a_run(shakedown, tmp_path):
    """Catches: classes that the files do not tell, so that what reads them sees another cluster."""
    folder = tmp_path / "r"
    status, said, error = shakedown(
        "simulate", folder, "--nodes", 16, "--rails", 2, "--noise", "classes:share=25%", "--noise", "missing"
    )
    assert status == 0, error
    assert "noise: classes:share=0.25, missing" in said
    parts = json.loads((folder / "inventory.json").read_text())["components"]
    assert sum(p["attributes"].get("firmware") == "simulated-1" for p in parts) == 4 * 2


@pytest.mark.slow
def test_what_was_recorded_is_what_the_recordings_give():
    """Catches: a parameter whose source gives a number that no recorded run has."""
    script = Path(__file__).parents[3] / "research/fit_noise.py"
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    cv, odd, of_odd, _, step = (float(x.strip().rstrip("%")) for x in told.splitlines()[-1].split("|")[3:])
    sources = {(m.name, key): p.source for m in NOISE.values() for key, p in m.parameters.items()}
    for place, said in (
        (("iid", "cv"), f": {cv:.2f} %"),
        (("contamination", "share"), f": {odd:g} %"),
        (("contamination", "cv"), f": {of_odd:g} %"),
        (("quantised", "step"), f"which is {step:g} GB/s"),
    ):
        assert said in sources[place], told
