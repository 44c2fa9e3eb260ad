"""Localisation where some pairs of nodes go a slower way than the rest, on all rails."""

import numpy as np
import pytest

import localiser_cases
from bench_localise_odd import case
from localiser_cases import judge, ours, planted
from shakedown.judge.localise.model import Element
from shakedown.judge.localise.pairs import of_one_way
from tests.kit.cases import cases


@pytest.mark.parametrize("fault", ["2%", "5%", "20%"])
def test_two_ways_hide_no_fault(fault):
    """Catches: every loss of less than 13 % unseen, since half of the pairs are 8 % slower."""
    for number in range(8):
        sim = case("odd-even", "16x4", fault, number)
        outcome = judge(planted(sim), ours(sim), ("", "", "", 0))
        assert outcome.first and not outcome.wrong, number


def test_pairs_that_go_another_way_are_told_and_nobody_is_blamed():
    """Catches: a fabric of which half is 8 % slower, and not a word of it."""
    (cause,) = ours(case("odd-even", "16x4", "none", 0))
    assert (cause.element, cause.blamed) == (Element("fabric"), False)
    assert cause.effect == pytest.approx(-0.08, abs=0.005)
    assert any("these pairs go another way" in sentence for sentence in cause.evidence)


@cases("row", "ecmp-static", "ecmp-flow", "incast", "classes-half", "classes-three", "all-benign")
@pytest.mark.parametrize("fault", ["none", "20%", "flapping"])
def test_nothing_else_is_taken_for_a_second_way(row, fault):
    """Catches: flows that share a link, kinds of nodes or a fault smoothed away as pairs of another way."""
    for number in range(6):
        sim = localiser_cases.case(row, "16x4", fault, number)
        matrix, found = of_one_way(sim.matrix, sim.fabric)
        assert matrix is sim.matrix and not found, number


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("loss", [0.1, 0.3])
def test_slower_kinds_and_slower_leaves_are_no_second_way(share, loss):
    """Catches: pairs of two slow nodes told from pairs of a slow and a fast one, or pairs across leaves."""
    sim = localiser_cases.case("iid", "16x4", "none", 0)
    slow = np.arange(16) < 16 * share
    ends = slow[:, None] | slow[None, :]
    far = (sim.fabric.leaf[:, :, None] != sim.fabric.leaf[:, None, :])[0]
    for lower in (ends, far):
        sim = localiser_cases.case("iid", "16x4", "none", 0)
        sim.matrix.values[:, lower] *= 1 - loss
        assert of_one_way(sim.matrix, sim.fabric)[0] is sim.matrix
