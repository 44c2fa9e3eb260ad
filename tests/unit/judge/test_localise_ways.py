"""What a part is held against, and its odds: which way a NIC is bad, what a stated confidence means."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from one_route import localise_one

from localiser_cases import case, judge, ours, planted
from noise_models import parse_noise
from shakedown.judge.localise.causes import localise
from shakedown.judge.localise.fit import (
    COUNTED,
    BlameEvidence,
    Counted,
    _spread_of_others,
    calibrated,
    evidence_of,
)
from shakedown.judge.localise.groups import Scores
from shakedown.judge.localise.model import Cabling, Element, Explanation, Matrix, Route
from shakedown.judge.localise.picks import MIN_SIGMA, beyond_other_way, noise_beyond
from shakedown.simulate.fabric import Shape, build_fabric, measure
from tests.kit.cases import cases

SHAPE = Shape(16, 4, pod=8)


def bad_now_and_then(sent, received, part=0.78):
    """Localise where n05's NIC of rail2 is bad with so many partners each way, from the first on."""
    rng = np.random.default_rng(11)
    fabric = build_fabric(SHAPE, rng)
    matrix = measure(SHAPE, fabric, [], rng).matrix
    others = [i for i in range(16) if i != 4]
    matrix.values[2, 4, others[:sent]] *= part
    matrix.values[2, others[-received:] if received else [], 4] *= part
    return localise_one([matrix], fabric, ())


def nic(direction):
    """The NIC that is bad."""
    return Element("nic", node="n05", rail="rail2", direction=direction)


@cases(
    "sent, received, way",
    (7, 2, "both"),
    (2, 7, "both"),
    (5, 5, "both"),
    (6, 0, "tx"),
    (0, 6, "rx"),
    (11, 3, "both"),
    (3, 12, "both"),
)
def test_which_way_a_nic_is_bad_now_and_then(sent, received, way):
    """Catches: one way named where the other has more bad results than chance; two heaps called slow.

    And a NIC drained for one way that is bad now and then: traffic of others into it looks the same.
    """
    cause = bad_now_and_then(sent, received)[0]
    assert cause.element == nic(way)
    assert cause.blamed is (way == "both") and (cause.blamed or cause.confidence <= 0.5)
    assert [f.pattern for f in cause.findings] == ["intermittent"]


def test_an_element_has_no_part_in_what_it_is_held_against():
    """Catches: a slow NIC that widens the spread of its like, and hides in it."""
    effects = np.random.default_rng(2).normal(0, 0.003, 64)
    effects[7] = 0.0145  # within five robust standard deviations
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


NODES, RAILS = 16, 4


def mesh(seed: int, slow: dict[int, float]) -> Matrix:
    """Return a mesh of nodes, some of which reach a part of the rate; a flow is as fast as its slower end."""
    rng = np.random.default_rng(seed)
    able = np.array([slow.get(node, 1.0) for node in range(NODES)])
    values = 386 * np.minimum(able[:, None], able[None, :]) * np.ones((RAILS, 1, 1))
    values *= 1 + 0.003 * rng.standard_normal(values.shape)
    values[:, range(NODES), range(NODES)] = np.nan
    names = tuple(f"n{i:02d}" for i in range(NODES)), tuple(f"rail{r}" for r in range(RAILS))
    return Matrix("ib_write_bw", True, *names, values, np.zeros(values.shape, dtype=bool))


def found(matrix: Matrix, fabric: Cabling | None = None) -> tuple[list[Element], list[str]]:
    """Return what is blamed, and the nodes that are suspects."""
    causes = localise_one([matrix], fabric or Cabling.unknown(RAILS, NODES))
    return [c.element for c in causes if c.blamed], sorted(c.element.node for c in causes if not c.blamed)


@pytest.mark.parametrize("part", [0.5, 0.25])
@pytest.mark.parametrize("many", [2, 4, 8, 12])
def test_nodes_with_slower_links_are_suspects_and_not_blamed(part, many):
    """Catches: each 200 Gb/s node among 400 Gb/s ones drained as if it had lost half of its rate."""
    blamed, suspects = found(mesh(many, dict.fromkeys(range(many), part)))
    assert not blamed and suspects == [f"n{i:02d}" for i in range(many)]


@pytest.mark.parametrize("node", [1, 9])
@pytest.mark.parametrize("loss", [0.02, 0.05, 0.2])
def test_a_fault_is_named_among_two_speeds(node, loss):
    """Catches: a slow NIC hidden by the two speeds, on a node of either."""
    matrix = mesh(1, dict.fromkeys(range(4), 0.5))
    matrix.values[2, node, :] *= 1 - loss
    matrix.values[2, :, node] *= 1 - loss
    for other in range(4):
        if node >= 4:  # held back by the slower end anyway
            matrix.values[2, [node, other], [other, node]] /= 1 - loss
    assert found(matrix)[0] == [Element("nic", node=f"n{node:02d}", rail="rail2")]


@pytest.mark.parametrize("loss", [0.02, 0.05])
def test_a_node_of_the_slower_speed_that_lost_more_is_blamed(loss):
    """Catches: a slow node taken for healthy because its links are slower than others' anyway."""
    matrix = mesh(2, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5 * (1 - loss)})
    assert found(matrix) == ([Element("node", node="n03")], ["n00", "n01", "n02"])


@pytest.mark.parametrize("slow", [{3: 0.5}, {3: 0.6, 7: 0.6}, {3: 0.01}])
def test_one_node_at_half_rate_or_two_at_no_link_speed_are_blamed(slow):
    """Catches: a node that lost half of its rate, or half of its PCIe lanes, taken for other links."""
    assert {e.node for e in found(mesh(3, slow))[0]} == {f"n{i:02d}" for i in slow}


def test_speeds_that_the_snapshot_tells_are_no_suspects():
    """Catches: a mixed cluster that is never told to be well, though its snapshot says which nodes differ."""
    classes = np.zeros((2, RAILS, NODES), dtype=np.int64)
    classes[:, :, :4] = 1
    told = replace(Cabling.unknown(RAILS, NODES), classes=classes)
    assert found(mesh(4, dict.fromkeys(range(4), 0.5)), told) == ([], [])


RAIL, NODE = 2, 4


def blamed(nature, sent=1.0, received=1.0, *, noise=("spread",), loud=0.0, seed=3):
    """What is blamed where n05's NIC of rail2 is so good by nature, and keeps such parts of its rates.

    `loud`: noise of what it receives, beside that of all.
    """
    rng = np.random.default_rng(seed)
    fabric = build_fabric(SHAPE, rng)
    matrix = measure(SHAPE, fabric, [], rng, parse_noise(noise)).matrix
    usual = np.nanmedian(matrix.values[RAIL])
    matrix.values[RAIL, :, NODE] *= 1 + loud * rng.standard_normal(SHAPE.nodes)
    for line, part in (((RAIL, NODE), sent), ((RAIL, slice(None), NODE), received)):
        matrix.values[line] *= (1 + nature) * part * usual / np.nanmedian(matrix.values[line])
    return [c.element for c in localise_one([matrix], fabric, ()) if c.blamed]


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
    effect[3] += 0.0015
    other[5], effect[5] = 0.03, 0.025
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


def test_where_the_slower_end_decides_the_slow_half_tells_the_spread():
    """Catches: the slowest healthy end blamed, as fast ends look alike; a fault far below hidden by that."""
    effects = np.minimum(np.random.default_rng(4).normal(0, 0.003, 128), 0.0)
    ones = np.ones(128)
    spread, freedom = _spread_of_others(Scores(effects, ones, ones, ones, ones))
    assert spread == pytest.approx(np.full(128, 0.003), rel=0.2) and freedom.max() < 80
    effects[7] = -0.02
    spread, _ = _spread_of_others(Scores(effects, ones, ones, ones, ones))
    assert spread[7] < 0.0025 < spread[8]


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


def finding(**changes):
    """Return a part that is blamed for being slow."""
    given = {"z": 20.0, "partners": 15, "pattern": "slow", "effect": -0.02} | changes
    return Explanation(
        element=Element("nic", node="n1", rail="r", direction="tx"),
        cells=15,
        share=1.0,
        confidence=1.0,
        rivals=(),
        blamed=True,
        **given,
    )


@cases(
    "changes, worst, evidence",
    ({}, -0.02, BlameEvidence.SLOW),
    ({"z": 8.0}, -0.02, BlameEvidence.SLOW),
    ({"z": 7.99}, -0.02, BlameEvidence.SLOW_NARROWLY),
    ({"effect": -0.01}, -0.2, BlameEvidence.BESIDE),
    ({"effect": -0.15}, -0.2, BlameEvidence.SLOW),
    ({"pattern": "intermittent", "partners": 8}, -0.02, BlameEvidence.NOW_AND_THEN),
    ({"pattern": "intermittent", "partners": 7}, -0.02, BlameEvidence.NOW_AND_THEN_FEW),
    ({"pattern": "failed", "effect": -1.0}, -1.0, None),
)
def test_evidence_is_sorted_at_its_boundaries(changes, worst, evidence):
    """Catches: weak evidence that is given the worth of strong."""
    assert evidence_of(finding(**changes), worst) == evidence


def test_a_rate_is_never_certain():
    """Catches: a confidence of 1 from a count without an error, and one of 0 from no count."""
    assert Counted(0, 0).rate == 0.5 and Counted(98, 98).rate == pytest.approx(0.99)
    assert all(counted.right <= counted.claims for counted in COUNTED.values())


def test_a_blame_has_the_confidence_of_its_evidence():
    """Catches: a confidence of 1 for whatever is blamed."""
    (found,) = calibrated([finding()])
    assert found.confidence == COUNTED[BlameEvidence.SLOW].rate
    suspect = dataclasses.replace(finding(), blamed=False, confidence=0.5)
    assert calibrated([suspect]) == [suspect]
    (cause,) = ours(case("iid", "16x4", "5%", 0))
    assert cause.confidence == pytest.approx(COUNTED[BlameEvidence.SLOW].rate, abs=1e-4)


def test_what_cannot_be_told_apart_has_its_chances():
    """Catches: rivals without a share, or shares that are no probabilities."""
    sim = case("iid", "16x4", "none", 0)
    values = sim.matrix.values
    # Two nodes were measured with each other only, and both ways were slow.
    between = values[:, [2, 5], [5, 2]] / 2
    values[:, [2, 5], :] = values[:, :, [2, 5]] = float("nan")
    values[:, [2, 5], [5, 2]] = between
    causes = localise([Route((sim.matrix,), sim.fabric)])
    with_rivals = [c for c in causes if c.rivals]
    assert with_rivals
    for cause in with_rivals:
        assert len(cause.chances) == len(cause.rivals)
        assert cause.confidence + sum(cause.chances) == pytest.approx(1)
        assert any("how likely each is" in sentence for sentence in cause.evidence) or cause.blamed
