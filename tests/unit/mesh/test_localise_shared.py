"""Results that are bad now and then are blamed on nobody who shares them with others."""

from __future__ import annotations

import numpy as np
import pytest
from one_route import localise_one

from shakedown.core.localise_model import Element, Fabric
from shakedown.core.records import CounterReading
from shakedown.core.simulate import Fault, FaultKind, Shape, build_fabric, draw_fault, measure


def simulated(shape, *faults, seed=3):
    """Measure a simulated fabric; a fault is (kind, size) or a Fault."""
    rng = np.random.default_rng(seed)
    fabric = build_fabric(shape, rng)
    drawn = [f if isinstance(f, Fault) else draw_fault(*f, shape, fabric, rng) for f in faults]
    return measure(shape, fabric, drawn, rng)


def slow_square(sim, one, other, rail=slice(None)):
    """Make every result between two groups of nodes half as fast."""
    for a in one:
        for b in other:
            sim.matrix.values[rail, a, b] *= 0.5
            sim.matrix.values[rail, b, a] *= 0.5
    return sim


@pytest.mark.parametrize(("one", "other"), [(range(4), range(4, 8)), (range(3), range(20, 24))])
@pytest.mark.parametrize("blind", [False, True])
def test_two_groups_that_are_slow_with_each_other_blame_neither(one, other, blind):
    """Catches: the side of a square of pairs that is looked at first blamed for what both may have done."""
    sim = slow_square(simulated(Shape(48, 2, pod=12)), one, other)
    fabric = Fabric.unknown(2, 48) if blind else sim.fabric
    causes = localise_one([sim.matrix], fabric)
    assert causes and not [c for c in causes if c.blamed]


@pytest.mark.parametrize("counting", [(0,), (0, 1)])
def test_one_bad_pair_and_its_counters(counting):
    """Catches: one end of a single bad pair blamed by a counter that its partner has as well."""
    sim = slow_square(simulated(Shape(18, 4, pod=18)), [0], [1])
    readings = [
        CounterReading(
            run="x", stage="fabric", test="ib_write_bw", kind="nic", device=node, port=f"mlx5_{r}",
            rail=f"rail{r}", counter="rx_discards_phy", before=0, after=5000 * (i in counting),
        )
        for i, node in enumerate(sim.matrix.nodes)
        for r in range(4)
    ]  # fmt: skip
    causes = localise_one([sim.matrix], sim.fabric, readings)
    expected = ["n01"] if counting == (0,) else []
    assert sorted({c.element.node for c in causes if c.blamed}) == expected, causes
    assert causes


@pytest.mark.parametrize(
    "shape", [Shape(48, 3, pod=12), Shape(128, 1, pod=16), Shape(64, 2, pod=16, spines=2)]
)
@pytest.mark.parametrize("leaves_known", [True, False])
def test_an_uplink_of_unknown_path_blames_no_node(shape, leaves_known):
    """Catches: all NICs of a leaf, or their partners, blamed for an uplink that some of their flows take."""
    for seed in range(6):
        sim = simulated(shape, (FaultKind.UPLINK, 0.5), seed=seed)
        blind = (
            Fabric(sim.fabric.leaf, sim.fabric.leaves)
            if leaves_known
            else Fabric.unknown(shape.rails, shape.nodes)
        )
        wrong = [
            c for c in localise_one([sim.matrix], blind) if c.blamed and c.element.kind in {"nic", "node"}
        ]
        assert not wrong, (seed, wrong)


@pytest.mark.parametrize("paths", [True, False])
def test_flapping_nics_are_named_beside_each_other(paths):
    """Catches: real faults cleared, because two of them on one leaf look like something shared."""
    shape = Shape(48, 2, pod=12)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        fabric = build_fabric(shape, rng)
        nics = [Element("nic", node=n, rail="rail0") for n in ("n02", "n05")]
        sim = measure(shape, fabric, [Fault(FaultKind.FLAPPING, nic, 0.5) for nic in nics], rng)
        seen = fabric if paths else Fabric.unknown(2, 48)
        assert {c.element for c in localise_one([sim.matrix], seen) if c.blamed} == set(nics), seed
