"""A NIC that is bad one way is held against its other way, where healthy NICs differ the same both ways."""

import numpy as np
import pytest
from one_route import localise_one

from localiser_cases import case, judge, ours, planted
from shakedown.judge.localise.model import Element
from shakedown.judge.localise.picks import MIN_SIGMA, beyond_other_way, noise_beyond
from shakedown.simulate.fabric import Shape, build_fabric, measure, parse_noise
from shakedown.simulate.noise_models import NOISE

SHAPE = Shape(16, 4, pod=8)
RAIL, NODE = 2, 4


def blamed(nature, sent=1.0, received=1.0, *, noise=("spread",), loud=0.0, seed=3):
    """What is blamed where n05's NIC of rail2 is so good by nature, and keeps such parts of its rates.

    `loud`: noise of what it receives, beside that of all.
    """
    rng = np.random.default_rng(seed)
    fabric = build_fabric(SHAPE, rng)
    matrix = measure(SHAPE, fabric, [], rng, parse_noise(noise, NOISE)).matrix
    usual = np.nanmedian(matrix.values[RAIL])
    matrix.values[RAIL, :, NODE] *= 1 + loud * rng.standard_normal(SHAPE.nodes)
    for line, part in (((RAIL, NODE), sent), ((RAIL, slice(None), NODE), received)):
        matrix.values[line] *= (1 + nature) * part * usual / np.nanmedian(matrix.values[line])
    return [c.element for c in localise_one([matrix], fabric, ()) if c.blamed]


def nic(direction):
    """The NIC that is bad."""
    return Element("nic", node="n05", rail="rail2", direction=direction)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("sent", "received", "way"), [(0.98, 1.0, "tx"), (1.0, 0.98, "rx")])
def test_a_nic_that_is_good_by_nature_and_lost_a_little_one_way_is_named(sent, received, way, seed):
    """Catches: 1.3 % below the others taken for healthy, though the other way is 0.7 % above them."""
    assert blamed(0.007, sent, received, seed=seed) == [nic(way)]


@pytest.mark.parametrize("seed", range(5))
def test_a_nic_that_is_poor_by_nature_and_lost_a_little_one_way_is_bad_that_way_only(seed):
    """Catches: its loss taken for more than it is, and its other way blamed for the rest."""
    assert blamed(-0.009, 0.98, noise=("iid:cv=0.05%", "spread"), seed=seed) == [nic("tx")]


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_both_ways_is_no_loss_of_one(seed):
    """Catches: what a NIC lost both ways hidden by the comparison of its ways."""
    assert blamed(0.0, 0.97, 0.97, seed=seed) == [nic("both")]


@pytest.mark.parametrize("seed", range(5))
def test_a_nic_is_not_blamed_for_what_its_other_way_does_better(seed):
    """Catches: a way as fast as all others blamed because its other way is faster than any."""
    assert blamed(0.0, received=1.03, seed=seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_ways_that_have_nothing_in_common_say_nothing_of_each_other(seed):
    """Catches: a way that is slow by nature, 0.9 % in a spread of 0.3 %, blamed for its better other way."""
    assert blamed(0.0, 0.991, 1.009, noise=("spread:common=0",), seed=seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_way_that_is_noisy_lets_expect_little_of_the_other(seed):
    """Catches: a NIC of ordinary noise blamed because its other way is noisy, and came out well."""
    assert blamed(0.0, 0.988, 1.008, loud=0.05, seed=seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_what_it_lost_beyond_its_other_way_must_be_worth_a_blame(seed):
    """Catches: 0.35 % blamed where there is next to no noise, of a NIC that is 0.6 % slower by nature."""
    assert blamed(-0.006, 0.9965, noise=("iid:cv=0.01%", "spread"), seed=seed) == []


def test_a_way_that_is_sick_itself_lets_expect_nothing():
    """Catches: a cable bad both ways said to be bad one way, which the other does not explain."""
    sim = case("incast", "16x4", "5%", 6, series=41)
    assert planted(sim)[0].direction == "both"
    assert not judge(planted(sim), ours(sim), ("", "", "", 0)).wrong


def correlated(many, slope, seed=5):
    """Effects of one way and of the other."""
    rng = np.random.default_rng(seed)
    other = rng.normal(0, 0.003, many)
    return slope * other + rng.normal(0.001, 0.0005, many), other


def test_the_noise_beyond_the_other_way_is_a_rail_s_own():
    """Catches: a loud rail held to the noise of all; a division by none; what a pair has both ways kept."""
    rng = np.random.default_rng(1)
    both = rng.normal(0, 0.01, (3, 64, 64))
    residual = (
        both
        + both.transpose(0, 2, 1)
        + np.array([0.0, 0.001, 0.003])[:, None, None] * rng.normal(size=(3, 64, 64))
    )
    got = noise_beyond(residual, np.array([1.0, np.nan, 1.0]))
    assert got == pytest.approx([MIN_SIGMA, 0.001 * np.sqrt(2), 0.003 * np.sqrt(2)], rel=0.1)
    assert np.isnan(noise_beyond(residual, np.array([np.nan]))).all()


@pytest.mark.parametrize("many", [8, 64])
def test_the_error_is_that_of_predicting_a_new_nic_from_the_others(many):
    """Catches: a NIC with a part in the line that it is held against; no more doubt far from all others."""
    effect, other = correlated(many, 0.8)
    effect[3] -= 0.02
    other[5] = 0.03
    got = beyond_other_way(effect, other, np.ones(many, dtype=bool))
    for i in range(many):
        x, y = np.delete(effect, i), np.delete(other, i)
        slope, level = np.polyfit(y, x, 1)
        variance = ((x - level - slope * y) ** 2).sum() / (many - 3)
        away = (other[i] - y.mean()) ** 2 / ((y - y.mean()) ** 2).sum()
        assert got.slope[i] == pytest.approx(slope)
        assert got.effect[i] == pytest.approx(effect[i] - level - slope * other[i])
        assert got.error[i] == pytest.approx(np.sqrt(variance * (1 + 1 / (many - 1) + away)))
        assert got.freedom[i] == many - 3


def test_what_may_be_sick_tells_nothing_of_the_healthy():
    """Catches: a NIC that is far off in the line of the others."""
    effect, other = correlated(64, 0.8)
    healthy = np.ones(64, dtype=bool)
    clean = beyond_other_way(effect, other, healthy)
    effect[3] -= 0.5
    healthy[3] = False
    got = beyond_other_way(effect, other, healthy)
    assert np.isnan(beyond_other_way(effect, other, np.arange(64) < 32).effect).all()
    assert got.error[3] == pytest.approx(clean.error[3]) and got.slope[3] == pytest.approx(clean.slope[3])
    assert got.error[4] == pytest.approx(clean.error[4], rel=0.05)


def test_of_few_nics_or_of_one_way_nothing_is_told():
    """Catches: a line through three points; a missing way taken for a good one; a way without any spread."""
    assert np.isnan(beyond_other_way(*correlated(5, 0.8), np.ones(5, dtype=bool)).effect).all()
    effect, other = correlated(64, 0.8)
    other[7] = np.nan
    got = beyond_other_way(effect, other, np.ones(64, dtype=bool))
    assert np.isnan(got.effect[7]) and np.isfinite(np.delete(got.effect, 7)).all()
    for same in (np.zeros(64), np.full(64, 0.1)):
        assert np.isnan(beyond_other_way(effect, same, np.ones(64, dtype=bool)).effect).all()
