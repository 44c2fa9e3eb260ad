"""Localisation in noise that is not white, in which parts share what is bad (research/odd_noise.py)."""

from functools import partial

import numpy as np
import pytest
from one_route import localise_one

from bench_localise_odd import case as odd
from localiser_cases import case, judge, ours, planted
from shakedown.judge.localise.causes import _cleared
from shakedown.judge.localise.model import Cabling, Element, Matrix
from shakedown.judge.localise.pairs import of_one_way
from shakedown.simulate.fabric import FaultKind, PlantedFault, Shape, build_fabric, draw_fault, measure
from tests.kit import records
from tests.kit.cases import cases

QUIET = ("spread-quiet", "quantised-quiet", "classes", "classes-half", "classes-three", "leaf-ar")
QUIET += ("all-benign",)
later = partial(odd, series=8)


@pytest.mark.parametrize("row", QUIET)
def test_benign_noise_blames_nobody_and_hides_nothing(row):
    """Catches: element noise told from single results, classes and steps of output taken for faults."""
    for number in range(4):
        for fault in ("none", "5%"):
            sim = case(row, "16x4", fault, number)
            outcome = judge(planted(sim), ours(sim), (row, "16x4", fault, number))
            assert not outcome.wrong and (fault == "none" or outcome.first), (number, fault, outcome)


@cases(
    "made, row, numbers",
    # A NIC on the one loud rail held against what NICs of quiet rails differ by.
    (odd, "loud-rail", (53, 66, 211, 427)),
    # The noise of a NIC told from its own 15 results, which happened to lie close together.
    (odd, "noisy-nodes", (51, 137, 331, 425)),
    # A healthy end, another firmware or a neighbour's job named and drained.
    (later, "slower-end", (20, 27, 34, 38)),
    (later, "slower-end-same", (9, 10, 20, 23)),
    (later, "untold-firmware", (6, 9, 11, 13)),
    (later, "busy-receiver", (0, 1, 2, 3)),
    # An end held against the noise of the fabric, while its own results scatter far more.
    (case, "uneven", (8, 45, 99)),
)
def test_healthy_parts_are_not_blamed(made, row, numbers):
    """Catches: a healthy part blamed, for the reason that stands above its row."""
    for number in numbers:
        assert not any(c.blamed for c in ours(made(row, "16x4", "none", number))), number


@cases(
    "made, row, size, fault, numbers",
    # A NIC at -5 % excused by the noise of another rail or node.
    (odd, "loud-rail", "16x4", "5%", range(8)),
    (odd, "noisy-nodes", "16x4", "5%", range(8)),
    # A fast node's loss told from its results with slow kinds, in which it does not show.
    (case, "classes-three", "16x4", "2%", (0, 5, 8, 39)),
    # Neighbours drained that are slow only because of whom they send beside.
    (case, "incast", "64x8", "5%", (0, 4)),
    # Every loss of less than 13 % unseen, since half of the pairs are 8 % slower.
    *((odd, "odd-even", "16x4", fault, range(8)) for fault in ("2%", "5%", "20%")),
)
def test_the_planted_part_is_named_first_and_no_other(made, row, size, fault, numbers):
    """Catches: a fault hidden, or a good part blamed beside it, for the reason that stands above its row."""
    for number in numbers:
        sim = made(row, size, fault, number)
        outcome = judge(planted(sim), ours(sim), ("", "", "", 0))
        assert outcome.first and not outcome.wrong, number


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


@pytest.mark.parametrize(("share", "lost"), [(0.25, 0.1), (0.5, 0.03), (0.5, 0.3), (0.75, 0.1)])
def test_two_groups_of_nodes_are_told_apart(share, lost):
    """Catches: half of the nodes at -30 %, of which nothing is said as no node is slower than the middle."""
    rng = np.random.default_rng(7)
    slow = np.zeros(16, dtype=bool)
    slow[rng.permutation(16)[: int(16 * share)]] = True
    values = np.exp(rng.normal(0, 0.003, (2, 16, 16))) * np.where(slow[:, None] | slow, 1 - lost, 1.0)
    values[:, range(16), range(16)] = np.nan
    nodes = tuple(f"n{i}" for i in range(16))
    matrix = Matrix("bw", True, nodes, ("rail0", "rail1"), values, np.zeros(values.shape, dtype=bool))
    causes = localise_one([matrix], Cabling.unknown(2, 16))
    assert {c.element.node for c in causes} == {n for n, is_slow in zip(nodes, slow, strict=True) if is_slow}
    assert not any(c.blamed for c in causes) and "compare their links" in causes[0].evidence[-1]


@pytest.mark.parametrize("number", [34, 53, 209])
def test_two_nodes_of_a_kind_measured_apart_by_noise_are_suspects(number):
    """Catches: one of two nodes with another firmware drained, or both, for being a little less alike."""
    causes = ours(case("classes-untold", "16x4", "none", number, series=7))
    assert [c.element.kind for c in causes] == ["node", "node"] and not any(c.blamed for c in causes)


@pytest.mark.parametrize(("fault", "number"), [("5%", 3), ("5%", 10), ("20%", 3), ("20%", 19)])
def test_a_bad_node_hides_no_shared_links_and_they_do_not_hide_it(fault, number):
    """Catches: shared links that are not seen for a bad node's results, or if most of a rail shares."""
    sim = case("ecmp-static", "16x4", fault, number)
    assert judge(planted(sim), ours(sim), ("", "", "", 0)).first


@pytest.mark.parametrize("number", [7, 36, 75])
def test_a_few_bad_moments_of_many_are_no_blame(number):
    """Catches: a NIC drained that was slow with 4 of its 63 partners, two rounds and one chance meeting."""
    causes = ours(case("bursts", "64x8", "none", number))
    assert causes and not any(c.blamed for c in causes)


@pytest.mark.parametrize("number", [4, 10, 26])
def test_senders_that_a_bad_nic_drags_from_other_leaves_are_not_blamed(number):
    """Catches: NICs of other leaves drained, three and more, because they send beside one at -20 %."""
    sim = case("incast", "64x8", "20%", number)
    causes = ours(sim)
    assert not judge(planted(sim), causes, ("", "", "", 0)).wrong
    assert planted(sim)[0] in {c.element for c in causes}


def constant(rails, nodes, rate=390.0):
    """Return a mesh in which all results are the same to the last digit."""
    values = np.full((rails, nodes, nodes), rate)
    values[:, range(nodes), range(nodes)] = np.nan
    names = tuple(f"n{i}" for i in range(nodes)), tuple(f"rail{r}" for r in range(rails))
    return Matrix("test", True, *names, values, np.zeros(values.shape, dtype=bool))


@pytest.mark.parametrize("loss", [0.02, 0.05, 0.2, 0.5])
@pytest.mark.parametrize(("rails", "nodes"), [(1, 16), (4, 16), (1, 64)])
def test_a_fault_is_named_where_all_else_is_the_same(rails, nodes, loss):
    """Catches: the one other value of a run taken for the tool's step, and half of the rate not missed."""
    unknown = Cabling.unknown(rails, nodes)
    for way, index in (("tx", (0, 1)), ("rx", (0, slice(None), 1))):
        matrix = constant(rails, nodes)
        matrix.values[index] *= 1 - loss
        named = [c.element for c in localise_one([matrix], unknown) if c.blamed]
        assert named == [Element("nic", node="n1", rail="rail0", direction=way)]
    if loss >= 0.05:  # from which on pairs are named
        matrix = constant(rails, nodes)
        matrix.values[0, 1, 2] *= 1 - loss
        matrix.values[0, 2, 1] *= 1 - loss
        (cause,) = localise_one([matrix], unknown)
        assert (cause.element.kind, cause.element.node, cause.element.peer) == ("pair", "n1", "n2")


@pytest.mark.parametrize("step", [2.0, 5.0, 20.0])
def test_coarse_steps_of_healthy_results_are_still_steps(step):
    """Catches: a NIC blamed for being rounded the other way, since its steps were not taken for steps."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        matrix = constant(4, 16, 100.0)
        ends = 1 + 0.003 * rng.standard_normal((2, 4, 16))
        rates = matrix.values * ends[0][:, :, None] * ends[1][:, None, :] * (1 - 0.01 * rng.random())
        matrix.values[:] = np.round(rates / step) * step
        assert not [c for c in localise_one([matrix], Cabling.unknown(4, 16)) if c.blamed], seed


@pytest.mark.parametrize("row", ["slower-end", "untold-firmware", "busy-receiver"])
def test_they_hide_no_fault(row):
    """Catches: a NIC at -20 % excused by what healthy ends differ by."""
    for number in range(8):
        sim = odd(row, "16x4", "20%", number)
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


# Some pairs of nodes go a slower way than the rest, on all rails.


def test_pairs_that_go_another_way_are_told_and_nobody_is_blamed():
    """Catches: a fabric of which half is 8 % slower, and not a word of it."""
    (cause,) = ours(odd("odd-even", "16x4", "none", 0))
    assert (cause.element, cause.blamed) == (Element("fabric"), False)
    assert cause.effect == pytest.approx(-0.08, abs=0.005)
    assert any("these pairs go another way" in sentence for sentence in cause.evidence)


@cases("row", "ecmp-static", "ecmp-flow", "incast", "classes-half", "classes-three", "all-benign")
@pytest.mark.parametrize("fault", ["none", "20%", "flapping"])
def test_nothing_else_is_taken_for_a_second_way(row, fault):
    """Catches: flows that share a link, kinds of nodes or a fault smoothed away as pairs of another way."""
    for number in range(6):
        sim = case(row, "16x4", fault, number)
        matrix, found = of_one_way(sim.matrix, sim.fabric)
        assert matrix is sim.matrix and not found, number


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("loss", [0.1, 0.3])
def test_slower_kinds_and_slower_leaves_are_no_second_way(share, loss):
    """Catches: pairs of two slow nodes told from pairs of a slow and a fast one, or pairs across leaves."""
    sim = case("iid", "16x4", "none", 0)
    slow = np.arange(16) < 16 * share
    ends = slow[:, None] | slow[None, :]
    far = (sim.fabric.leaf[:, :, None] != sim.fabric.leaf[:, None, :])[0]
    for lower in (ends, far):
        sim = case("iid", "16x4", "none", 0)
        sim.matrix.values[:, lower] *= 1 - loss
        assert of_one_way(sim.matrix, sim.fabric)[0] is sim.matrix


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


def test_traffic_into_a_node_is_no_part():
    """Catches: a receiver of others' traffic, in nine rounds of fifteen and by 5 to 30 %, drained at 99 %."""
    rng = np.random.default_rng(4)
    shape = Shape(16, 4)
    fabric = build_fabric(shape, rng)
    matrix = measure(shape, fabric, [], rng).matrix
    lost = np.where(rng.random((4, 15)) < 0.6, rng.uniform(0.05, 0.3, (4, 15)), 0)
    matrix.values[:, :, 2] *= 1 - lost[:, matrix.when[0][:, 2].astype(int)]
    causes = localise_one([matrix], fabric, ())
    assert causes and not any(c.blamed for c in causes), causes
    assert "shakedown plan SITE --nodes n03" in causes[0].proposal
    assert "--stage fabric --partners 14" in causes[0].proposal
