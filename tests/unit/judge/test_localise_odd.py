"""Localisation in noise that it was not made for (research/odd_noise.py)."""

import numpy as np
import pytest
from one_route import localise_one

from bench_localise_odd import case
from localiser_cases import judge, ours, planted
from shakedown.judge.localise.model import Cabling, Matrix


@pytest.mark.parametrize("number", [53, 66, 211, 427])
def test_a_nic_of_a_loud_rail_is_not_blamed_for_its_noise(number):
    """Catches: a NIC on the one loud rail held against what NICs of quiet rails differ by."""
    assert not any(c.blamed for c in ours(case("loud-rail", "16x4", "none", number)))


@pytest.mark.parametrize("number", [51, 137, 331, 425])
def test_a_nic_of_a_loud_node_is_not_blamed_for_its_noise(number):
    """Catches: the noise of a NIC told from its own 15 results, which happened to lie close together."""
    assert not any(c.blamed for c in ours(case("noisy-nodes", "16x4", "none", number)))


@pytest.mark.parametrize("row", ["loud-rail", "noisy-nodes"])
def test_loud_parts_hide_no_fault(row):
    """Catches: a NIC at -5 % excused by the noise of another rail or node."""
    for number in range(8):
        sim = case(row, "16x4", "5%", number)
        outcome = judge(planted(sim), ours(sim), ("", "", "", 0))
        assert outcome.first and not outcome.wrong, number


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("slower-end", [20, 27, 34, 38]),
        ("slower-end-same", [9, 10, 20, 23]),
        ("untold-firmware", [6, 9, 11, 13]),
        ("busy-receiver", [0, 1, 2, 3]),
    ],
)
def test_what_healthy_parts_do_by_physics_or_for_others_is_no_blame(row, numbers):
    """Catches: a healthy end, another firmware or a neighbour's job named and drained."""
    for number in numbers:
        assert not any(c.blamed for c in ours(case(row, "16x4", "none", number, series=8))), number


@pytest.mark.parametrize("row", ["slower-end", "untold-firmware", "busy-receiver"])
def test_they_hide_no_fault(row):
    """Catches: a NIC at -20 % excused by what healthy ends differ by."""
    for number in range(8):
        sim = case(row, "16x4", "20%", number)
        assert judge(planted(sim), ours(sim), ("", "", "", 0)).named, number


@pytest.mark.parametrize("lost", [0.02, 0.03])
def test_a_fault_beside_nodes_of_an_untold_kind_is_never_silent(lost):
    """Catches: a node at -5 % hidden by three others at -2 %, with no suspect and exit status 0."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        able = np.ones(16)
        able[[1, 6, 11]] = 1 - lost
        able[9] = 0.95
        values = np.minimum(able[:, None], able[None, :]) * (1 + 0.002 * rng.standard_normal((4, 16, 16)))
        values[:, range(16), range(16)] = np.nan
        nodes, rails = tuple(f"n{i}" for i in range(16)), tuple(f"rail{i}" for i in range(4))
        matrix = Matrix("bw", True, nodes, rails, values, np.zeros(values.shape, dtype=bool))
        causes = localise_one([matrix], Cabling.unknown(4, 16))
        assert "n9" in {c.element.node for c in causes}, seed
        assert not {c.element.node for c in causes if c.blamed} - {"n9"}, seed
