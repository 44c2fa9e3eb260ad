"""What a part is held against has nothing of itself in it; which way a NIC is bad is told with its odds."""

import numpy as np
import pytest
from one_route import localise_one

from shakedown.judge.localise.causes import COUNTED, BlameEvidence
from shakedown.judge.localise.fit import _spread_of_others
from shakedown.judge.localise.groups import Scores
from shakedown.judge.localise.model import Element
from shakedown.simulate.fabric import Shape, build_fabric, measure

SHAPE = Shape(16, 4, pod=8)


def bad_now_and_then(sent, received, part=0.78):
    """Localise where n05's NIC of rail2 is bad with so many partners each way, from the first on."""
    rng = np.random.default_rng(11)
    fabric = build_fabric(SHAPE, rng)
    matrix = measure(SHAPE, fabric, [], rng).matrix
    others = [i for i in range(16) if i != 4]
    matrix.values[2, 4, others[:sent]] *= part
    matrix.values[2, others[-received:] if received else [], 4] *= part
    return [c for c in localise_one([matrix], fabric, ()) if c.blamed]


def nic(direction):
    """The NIC that is bad."""
    return Element("nic", node="n05", rail="rail2", direction=direction)


@pytest.mark.parametrize(
    ("sent", "received", "way"),
    [
        (7, 2, "both"),
        (2, 7, "both"),
        (5, 5, "both"),
        (6, 0, "tx"),
        (0, 6, "rx"),
        (11, 3, "both"),
        (3, 12, "both"),
    ],
)
def test_which_way_a_nic_is_bad_now_and_then(sent, received, way):
    """Catches: one way named where the other has more bad results than chance; two heaps called slow."""
    (cause,) = bad_now_and_then(sent, received)
    assert cause.element == nic(way)
    assert [f.pattern for f in cause.findings] == ["intermittent"]


def test_few_bad_results_leave_the_way_in_doubt():
    """Catches: a way that is as sure with five bad results as with seven, on evidence of the same kind."""
    few, many = (bad_now_and_then(n, 0)[0] for n in (5, 7))
    assert few.element == many.element == nic("tx")
    assert few.findings[0].worth == many.findings[0].worth
    assert few.confidence < 0.99 * many.confidence
    assert many.confidence < COUNTED[BlameEvidence(many.findings[0].worth)].rate


def test_an_element_has_no_part_in_what_it_is_held_against():
    """Catches: a slow NIC that widens the spread of its like, and hides in it."""
    effects = np.random.default_rng(2).normal(0, 0.003, 64)
    effects[7] = -0.0145  # within five robust standard deviations
    ones = np.ones(64)
    spread, freedom = _spread_of_others(Scores(effects, ones, ones, ones, ones))
    others = np.delete(effects, 7)
    assert spread[7] == pytest.approx(np.std(others, ddof=1)) and freedom[7] == 62
    assert spread[8] == pytest.approx(np.std(np.delete(effects, 8), ddof=1)) and spread[8] > 1.1 * spread[7]
    effects[7] = -0.5  # far outside: it never had a part
    spread, freedom = _spread_of_others(Scores(effects, ones, ones, ones, ones))
    assert spread[7] == pytest.approx(np.std(others, ddof=1)) and freedom[7] == 62
    assert freedom[8] == 61


def test_of_few_elements_nothing_is_known():
    """Catches: a spread of two others that is taken for known."""
    ones = np.ones(3)
    spread, freedom = _spread_of_others(Scores(np.array([0.0, 0.001, -0.02]), ones, ones, ones, ones))
    assert list(spread) == [0.0] * 3 and list(freedom) == [1.0] * 3
