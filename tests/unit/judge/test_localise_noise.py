"""Localisation in noise that is not white: no good part blamed, the planted one named."""

from __future__ import annotations

import pytest

from shakedown.judge.localise.model import Element
from shakedown.simulate.benchmark import case, judge, ours, planted

QUIET = (
    "spread-quiet",
    "quantised-quiet",
    "classes",
    "classes-half",
    "classes-three",
    "leaf-ar",
    "all-benign",
)


@pytest.mark.parametrize("row", QUIET)
def test_benign_noise_blames_nobody_and_hides_nothing(row):
    """Catches: element noise told from single results, classes and steps of output taken for faults."""
    for number in range(4):
        for fault in ("none", "5%"):
            sim = case(row, "16x4", fault, number)
            outcome = judge(planted(sim), ours(sim), (row, "16x4", fault, number))
            assert not outcome.wrong and (fault == "none" or outcome.first), (number, fault, outcome)


def test_shared_links_hide_no_fault_and_are_told():
    """Catches: noise told from flows that share links, in which nothing is ever found."""
    for number in range(4):
        sim = case("ecmp-static", "64x8", "20%", number)
        causes = ours(sim)
        assert judge(planted(sim), causes, ("", "", "", 0)).first
        assert Element("fabric") in {c.element for c in causes if not c.blamed}


def test_a_bad_pair_is_named_and_neither_end_blamed():
    """Catches: one pair at -20 % of which nothing is said, or for which an end is drained."""
    for number in range(4):
        sim = case("t4", "16x4", "pair", number)
        causes = ours(sim)
        assert [c.element for c in causes] == [sim.faults[0].element] and not causes[0].blamed


def test_nodes_of_a_kind_that_the_snapshot_does_not_tell_are_suspects():
    """Catches: every node with another firmware drained."""
    sim = case("classes-untold", "64x8", "none", 0)
    causes = ours(sim)
    assert len(causes) == 6 and not any(c.blamed for c in causes)


@pytest.mark.parametrize("number", [8, 45, 99])
def test_a_nic_that_is_noisier_than_most_is_not_blamed_for_it(number):
    """Catches: an end held against the noise of the fabric, while its own results scatter far more."""
    assert not any(c.blamed for c in ours(case("uneven", "16x4", "none", number)))


@pytest.mark.parametrize("number", [0, 5, 8, 39])
def test_slower_partners_hide_no_fault(number):
    """Catches: a fast node's loss told from its results with slow kinds, in which it does not show."""
    sim = case("classes-three", "16x4", "2%", number)
    outcome = judge(planted(sim), ours(sim), ("", "", "", 0))
    assert outcome.first and not outcome.wrong


@pytest.mark.parametrize(("fault", "number"), [("5%", 3), ("5%", 10), ("20%", 3), ("20%", 19)])
def test_a_bad_node_hides_no_shared_links_and_they_do_not_hide_it(fault, number):
    """Catches: shared links that are not seen for a bad node's results, or if most of a rail shares."""
    sim = case("ecmp-static", "16x4", fault, number)
    assert judge(planted(sim), ours(sim), ("", "", "", 0)).first


@pytest.mark.parametrize("number", [0, 4])
def test_what_a_slow_sender_drags_is_not_blamed(number):
    """Catches: neighbours drained that are slow only because of whom they send beside."""
    sim = case("incast", "64x8", "5%", number)
    outcome = judge(planted(sim), ours(sim), ("", "", "", 0))
    assert outcome.first and not outcome.wrong
