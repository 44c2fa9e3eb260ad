"""What a plan says of its own power, held against dice."""

import random

import pytest

from shakedown.plan import odds as module
from shakedown.plan.odds import power, power_words
from shakedown.records.plan import Plan, Reference, Remeasure
from shakedown.statistics.robust import CellTally, Samples
from tests.kit import records


def plan(nodes: int, **told) -> Plan:
    """A mesh over one rail with a gate at -5 %."""
    names = tuple(f"n{i:02d}" for i in range(nodes))
    shared = {"unit": "Gb/s", "better": "higher"}
    item = records.item(
        **shared,
        nodes=tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :]),
        rails=("rail0",),
        directions=("forward", "reverse"),
        reference="bw",
    )
    limits = {"tolerance": 0.05} | told
    reference = Reference(id="bw", value=400.0, kind="physical", source="test", **shared, **limits)
    return records.plan(
        item, references=[reference], nodes=names, remeasure=Remeasure(tests=("ib_write_bw",))
    )


@pytest.mark.parametrize("low", [0.001, 0.05, 0.3, 0.5, 0.9])
def test_a_cell_persists_as_often_as_dice_say(low):
    """Catches odds that are not those of the rule that the driver and the verdict follow."""
    dice, fails, runs = random.Random(5), 0, 40_000
    for _ in range(runs):
        tried = outside = 0
        while True:
            tried, outside = tried + 1, outside + (dice.random() < low)
            says = CellTally(tried, tried, outside).says(2)
            if says is not Samples.OPEN:
                break
        fails += says is Samples.PERSISTS
    assert fails / runs == pytest.approx(module._persists(low), abs=0.01)


def test_a_mesh_says_what_it_can_tell():
    """Catches a plan that promises to find what it cannot, or that a healthy cluster would not pass."""
    (told,) = power(plan(64, fleet_min_effect=0.035))
    assert told.healthy_fails < 0.01
    assert told.slow_5_passes < 1e-6
    assert told.slow_2_passes > 0.9
    assert "at -5 % in less than 0.01 %" in told.words
    (tight,) = power(plan(64, tolerance=0.015))
    assert tight.slow_2_passes < 1e-6


def test_few_partners_see_less():
    """Catches odds that count on the median of a NIC where the verdict has too few results for one."""
    (told,) = power(plan(4, fleet_min_effect=0.035))
    assert 0.2 < told.slow_5_passes < 0.5


def test_a_gate_within_the_noise_fails_healthy_clusters_and_says_so():
    """Catches a number that is the same whatever the gate is."""
    (told,) = power(plan(64, tolerance=0.003))
    assert told.healthy_fails > 0.99


def test_a_plan_without_the_rule_says_nothing():
    """Catches odds of a rule that is not there."""
    assert power(plan(8).model_copy(update={"remeasure": None})) == ()


def test_a_floor_promises_nothing():
    """Catches: "a healthy cluster fails in 81 % of runs", told of a floor that every healthy cell exceeds."""
    floor = plan(2, tolerance=None, limit=400.0)
    assert power(floor) == ()
    (told,) = power_words(floor)
    assert "1 block of pairs has a floor as reference" in told
    assert "%" not in told


def test_what_is_measured_once_gets_no_odds_of_three_measurements():
    """Catches: both ways at once said to be measured again, which no job does."""
    one_way = plan(8)
    both = one_way.items[0].model_copy(update={"directions": ("both",)})
    assert power_words(one_way.model_copy(update={"items": (both,)})) == ()
