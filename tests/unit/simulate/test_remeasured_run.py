"""`shakedown simulate --remeasure`, and the verdict on what it writes."""

import json

import numpy as np
import pytest

from shakedown.simulate.fabric import Shape, build_fabric, measure, parse_noise
from shakedown.simulate.noise_models import NOISE

SIZE = ("--nodes", 16, "--rails", 2, "--pod", 8)


def verdict(shakedown, folder, *options):
    """Simulate into a folder and return the verdict on it, and its table."""
    status, _, error = shakedown("simulate", folder, *SIZE, *options)
    assert status == 0, error
    return json.loads(shakedown("verdict", folder, "--json")[1]), shakedown("verdict", folder)[1]


def test_a_healthy_cluster_passes_and_its_transients_are_told(shakedown, tmp_path):
    """Catches a healthy cluster that fails for a few low results, and one that passes in silence."""
    noise = ("--noise", "contamination:share=4%,cv=5%", "--seed", 4)
    before, _ = verdict(shakedown, tmp_path / "first-results", *noise)
    assert before["outcome"] == "FAIL" and not before["transients"]
    after, table = verdict(shakedown, tmp_path / "again", *noise, "--remeasure")
    assert after["outcome"] == "PASS", after["reason"]
    (first, *_) = after["transients"]
    assert first["rule"] == "transient" and first["reason"].count("Gb/s") >= 1
    assert "measured again and within" in after["reason"].lower()
    assert "transient " in table


def test_results_without_a_value_are_measured_late(shakedown, tmp_path):
    """Catches a result that was missing once and keeps a healthy run from its verdict."""
    after, _ = verdict(shakedown, tmp_path / "run", "--noise", "missing:share=1%", "--remeasure")
    assert after["outcome"] == "PASS", after["reason"]
    assert {cell["rule"] for cell in after["transients"]} == {"late"}


@pytest.mark.slow
def test_a_slow_nic_fails_however_often_it_is_measured(shakedown, tmp_path):
    """Catches a fault that is measured again until it passes."""
    for number, fault in enumerate(("nic-tx:5%", "nic-rx:5%", "flapping:20%", "slow-node:6%", "pair:20%")):
        after, _ = verdict(shakedown, tmp_path / str(number), "--fault", fault, "--remeasure")
        assert after["outcome"] == "FAIL", fault


def test_what_a_part_is_like_stays_when_it_is_measured_again():
    """Catches a slow NIC that is another one the second time, so that measuring again heals it."""
    shape = Shape(16, 2, pod=8, cv=0.0, dips=0.0, spread=0.0)
    rng = np.random.default_rng(3)
    fabric = build_fabric(shape, rng)
    sim = measure(shape, fabric, [], rng, parse_noise(["spread:sd=1%", "iid:cv=0.01%"], NOISE), again=2)
    first = sim.matrix.values
    for later in sim.again:
        known = np.isfinite(first) & (first < 392)
        assert np.corrcoef(first[known], later[known])[0, 1] > 0.99
        assert not np.array_equal(first[known], later[known])


def test_measuring_again_changes_no_first_result():
    """Catches a seed that gives another cluster because something is measured again."""
    shape = Shape(8, 1, pod=4)
    models = parse_noise(["t4", "thermal", "incast", "missing"], NOISE)
    sims = []
    for again in (0, 3):
        rng = np.random.default_rng(9)
        sims.append(measure(shape, build_fabric(shape, rng), [], rng, models, again=again))
    np.testing.assert_array_equal(sims[0].matrix.values, sims[1].matrix.values)
    np.testing.assert_array_equal(sims[0].matrix.failed, sims[1].matrix.failed)
