"""A fleet that is slow as one has no outlier; the gate of its class finds it."""

import random

import pytest

from shakedown.judge.verdict import judge
from shakedown.records.base import Outcome
from shakedown.records.plan import PlanItem, Reference
from shakedown.records.results import Measurement
from shakedown.references.files import load_profile
from tests.kit import records

SHARED = {"stage": "fabric", "test": "ib_write_bw", "metric": "bandwidth", "unit": "Gb/s", "better": "higher"}
NODES = tuple(f"n{i}" for i in range(1, 41))


def verdict(rates, **fields):
    """Judge one rate of each node against 400 Gb/s, 6 % allowed to a cell."""
    told = {"tolerance": 0.06, "kind": "physical", "source": "test", "class_tolerance": 0.035} | fields
    reference = Reference(id="bw", value=400.0, unit="Gb/s", better="higher", **told)
    item = PlanItem(**SHARED, nodes=tuple((n,) for n in NODES[: len(rates)]), reference="bw")
    plan = records.plan(item, references=[reference], nodes=NODES[: len(rates)])
    lines = [
        Measurement(run="r", **SHARED, nodes=(n,), value=v, state="COMPLETED")
        for n, v in zip(NODES, rates, strict=False)
    ]
    return judge(plan, lines)


@pytest.mark.parametrize(("part", "outcome"), [(0.95, Outcome.FAIL), (0.98, Outcome.PASS)])
def test_a_fleet_that_is_slow_as_one(part, outcome):
    """Catches 5 % that every node has lost, each within a gate at 6 %."""
    noise = random.Random(3)
    judged = verdict([400 * part * noise.gauss(1, 0.001) for _ in NODES])
    assert judged.outcome is outcome
    assert {c.rule for c in judged.cells} == ({"class"} if outcome is Outcome.FAIL else set())


def test_half_a_fleet_that_is_slow_by_chance_passes():
    """Catches a class that fails though its median may as well lie within: its interval reaches the limit."""
    assert verdict([385.0, 390.0, 385.5, 385.4]).outcome is Outcome.PASS
    assert verdict([385.0, 385.8, 385.5, 385.4]).outcome is Outcome.FAIL


def test_without_it_a_reference_judges_as_before():
    """Catches a gate of the class where the reference holds none."""
    assert verdict([380.0] * 40, class_tolerance=None).outcome is Outcome.PASS


def test_the_shipped_cross_rail_reference_fails_a_uniformly_slow_fleet():
    """Catches a shipped gate that 5 % less than a healthy fabric reaches on every cell would pass."""
    entries = {e.id: e for e in load_profile("tolly_xe9680_z9664f").entries}
    reference = entries["fabric-400g-write-cross-rail"].reference()
    # At the ceiling itself nothing is lost: the fabric cannot do better than that.
    slow = reference.value * 0.95 * 1.0001
    rates = [slow] * 40
    judged = verdict(rates, tolerance=None, limit=reference.gate, class_tolerance=reference.class_tolerance)
    gate_alone = verdict(rates, tolerance=None, limit=reference.gate, class_tolerance=None)
    assert gate_alone.outcome is Outcome.PASS  # what the gate of a cell lets through
    assert reference.value == pytest.approx(392.16, abs=1)
    assert judged.outcome is Outcome.FAIL
