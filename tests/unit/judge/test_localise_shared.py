"""Results that are bad now and then are blamed on nobody who shares them with others."""

import numpy as np
import pytest
from one_route import localise_one

from shakedown.judge.localise.causes import _cleared
from shakedown.judge.localise.model import Cabling, Element
from shakedown.simulate.fabric import FaultKind, PlantedFault, Shape, build_fabric, draw_fault, measure
from tests.kit import records
from tests.kit.cases import cases


def simulated(shape, *faults, seed=3):
    """Measure a simulated fabric; a fault is (kind, size) or a Fault."""
    rng = np.random.default_rng(seed)
    fabric = build_fabric(shape, rng)
    drawn = [f if isinstance(f, PlantedFault) else draw_fault(*f, shape, fabric, rng) for f in faults]
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
    fabric = Cabling.unknown(2, 48) if blind else sim.fabric
    causes = localise_one([sim.matrix], fabric)
    assert causes and not [c for c in causes if c.blamed]


@pytest.mark.parametrize("counting", [(0,), (0, 1)])
def test_one_bad_pair_and_its_counters(counting):
    """Catches: one end of a single bad pair blamed by a counter that its partner has as well."""
    sim = slow_square(simulated(Shape(18, 4, pod=18)), [0], [1])
    readings = [
        records.counter(
            run="x",
            device=node,
            port=f"mlx5_{r}",
            rail=f"rail{r}",
            counter="rx_discards_phy",
            after=5000 * (i in counting),
        )
        for i, node in enumerate(sim.matrix.nodes)
        for r in range(4)
    ]
    causes = localise_one([sim.matrix], sim.fabric, readings)
    expected = ["n01"] if counting == (0,) else []
    assert sorted({c.element.node for c in causes if c.blamed}) == expected, causes
    assert causes


@cases("shape", Shape(48, 3, pod=12), Shape(128, 1, pod=16), Shape(64, 2, pod=16, spines=2))
@pytest.mark.parametrize("leaves_known", [True, False])
def test_an_uplink_of_unknown_path_blames_no_node(shape, leaves_known):
    """Catches: all NICs of a leaf, or their partners, blamed for an uplink that some of their flows take."""
    for seed in range(6):
        sim = simulated(shape, (FaultKind.UPLINK, 0.5), seed=seed)
        blind = (
            Cabling(sim.fabric.leaf, sim.fabric.leaves)
            if leaves_known
            else Cabling.unknown(shape.rails, shape.nodes)
        )
        wrong = [
            c for c in localise_one([sim.matrix], blind) if c.blamed and c.element.kind in {"nic", "node"}
        ]
        assert not wrong, (seed, wrong)


def flapping(names, seed):
    """A fabric of 48 nodes with flapping NICs, and those NICs."""
    shape = Shape(48, 2, pod=12)
    rng = np.random.default_rng(seed)
    fabric = build_fabric(shape, rng)
    nics = [Element("nic", node=name, rail="rail0") for name in names]
    return measure(shape, fabric, [PlantedFault(FaultKind.FLAPPING, nic, 0.5) for nic in nics], rng), set(
        nics
    )


@pytest.mark.parametrize(
    ("names", "paths"),
    [(("n02", "n05"), True), (("n02", "n05"), False), (("n02", "n05", "n20", "n33"), True)],
)
def test_flapping_nics_are_named_beside_each_other(names, paths):
    """Catches: real faults cleared, because several of them look like something shared."""
    for seed in range(6):
        sim, nics = flapping(names, seed)
        fabric = sim.fabric if paths else Cabling.unknown(2, 48)
        assert {c.element for c in localise_one([sim.matrix], fabric) if c.blamed} == nics, seed


def test_of_many_flapping_nics_most_are_named_where_nothing_is_known_of_leaves():
    """Catches: all NICs excused as soon as three are bad, where each could sit behind the same leaf."""
    named = 0
    for seed in range(12):
        sim, nics = flapping(("n02", "n05", "n20", "n33"), seed)
        causes = localise_one([sim.matrix], Cabling.unknown(2, 48))
        blamed = {c.element for c in causes if c.blamed}
        assert {c.element for c in causes} == nics and blamed <= nics, seed
        named += len(blamed)
    assert named >= 0.8 * 12 * 4  # as bench_localise_paths.py asks


@pytest.mark.parametrize("shape", [Shape(64, 2, pod=16, spines=1), Shape(48, 2, pod=12, spines=1)])
def test_a_slow_uplink_of_a_whole_leaf_drains_nobody(shape):
    """Catches: every NIC of a leaf blamed that is slow with all others, and well within its leaf."""
    for seed in range(4):
        sim = simulated(shape, (FaultKind.UPLINK, 0.1), seed=seed)
        causes = localise_one([sim.matrix], Cabling.unknown(shape.rails, shape.nodes))
        assert len(causes) >= shape.pod - 2 and not [c for c in causes if c.blamed], seed


def test_slow_nics_beside_each_other_are_each_at_fault():
    """Catches: slow NICs excused, because there are several of them."""
    shape = Shape(48, 1, pod=12)
    nics = [Element("nic", node=f"n{i:02}", rail="rail0") for i in (2, 3, 5, 30)]
    sim = simulated(shape, *(PlantedFault(FaultKind.LOSSY_CABLE, nic, 0.05) for nic in nics))
    for fabric in (sim.fabric, Cabling.unknown(1, 48)):
        assert {c.element for c in localise_one([sim.matrix], fabric) if c.blamed} == set(nics)


def test_two_sides_of_a_square_are_judged_alike():
    """Catches: of two sides with the same evidence the one that is looked at second blamed."""
    for seed in range(4):
        sim = slow_square(simulated(Shape(64, 2, pod=16, dips=0.0), seed=seed), (0, 20), range(40, 44))
        assert not [c for c in localise_one([sim.matrix], sim.fabric) if c.blamed]


def test_a_counter_of_one_clears_only_whom_it_explains():
    """Catches: suspects that are gone from the report, because one of many was blamed by its counter."""
    sim = slow_square(simulated(Shape(48, 2, pod=12)), range(4), range(4, 8))
    readings = [
        records.counter(
            run="x",
            device=node,
            port=f"mlx5_{rail}",
            rail=f"rail{rail}",
            counter="rx_discards_phy",
            after=5000 * (node == "n01"),
        )
        for node in sim.matrix.nodes
        for rail in range(2)
    ]
    causes = localise_one([sim.matrix], sim.fabric, readings)
    assert {c.element.node for c in causes if c.blamed} == {"n01"}
    assert {c.element.node for c in causes} == {"n01", "n02", "n03", "n04"}
    suspects = [c for c in causes if not c.blamed]
    assert all({r.node for r in c.rivals} == {"n05", "n06", "n07", "n08"} for c in suspects), suspects
    one, *others = suspects[0].rivals
    assert not _cleared(suspects[0].findings[0], {one}) and _cleared(suspects[0].findings[0], {*others})
