"""Localisation names the planted part, and nobody for no fault or on the word of one partner."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_route import localise_one

from shakedown.judge.localise.causes import _median_of_others
from shakedown.judge.localise.model import Cabling, Element, Matrix
from shakedown.records.results import Load
from shakedown.simulate.fabric import FaultKind, PlantedFault, Shape, build_fabric, draw_fault, measure
from tests.kit import records
from tests.kit.cases import cases

SHAPE = Shape(48, 3, pod=12)


def simulated(*faults, seed=3, shape=SHAPE):
    """Measure a simulated fabric; a fault is (kind, size)."""
    rng = np.random.default_rng(seed)
    fabric = build_fabric(shape, rng)
    drawn = [draw_fault(kind, size, shape, fabric, rng) for kind, size in faults]
    return measure(shape, fabric, drawn, rng)


def blamed(sim, readings=()):
    """Return the elements that are blamed."""
    return [c.element for c in localise_one([sim.matrix], sim.fabric, readings) if c.blamed]


# A pair is named, but neither of its ends blamed: test_localise_noise.py.
@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind is not FaultKind.PAIR])
@pytest.mark.parametrize("size", [0.02, 0.5])
def test_each_planted_fault_is_named_and_nothing_else(kind, size):
    """Catches: any fault not found, found at the wrong place, or with an innocent part beside it."""
    sim = simulated((kind, size))
    assert blamed(sim) == [sim.faults[0].element]


def test_one_per_cent_is_found_and_health_blames_nobody():
    """Catches: a threshold loosened until small losses pass, or tightened until good hardware is blamed."""
    for seed in range(8):
        assert blamed(simulated(seed=seed)) == []
        sim = simulated((FaultKind.NIC_TX, 0.01), (FaultKind.UPLINK, 0.01), seed=seed)
        assert set(blamed(sim)) == {f.element for f in sim.faults}


def small(n, rails=2, cv=0.08, tests=4, seed=0, spoil=lambda v: None):
    """Matrices as in a small noisy lab; `spoil` changes the values in place."""
    rng = np.random.default_rng(seed)
    nodes = tuple(f"n{i + 1}" for i in range(n))
    made = []
    for t in range(tests):
        values = 33 * np.exp(cv * rng.standard_normal((rails, n, n)))
        spoil(values)
        values[:, range(n), range(n)] = np.nan
        failed = ~np.isfinite(values)
        failed[:, range(n), range(n)] = False
        names = tuple(f"rail{r}" for r in range(rails))
        made.append(Matrix(f"test{t}", True, nodes, names, values, failed))
    ports = {
        (node, f"rail{r}"): f"leaf0:swp{1 + r * n + i}" for r in range(rails) for i, node in enumerate(nodes)
    }
    fabric = Cabling(np.zeros((rails, n), dtype=np.int64), ("leaf0",), ports=ports)
    return made, fabric


def scale(*index, by):
    """Return a spoiler that multiplies values[index]."""

    def spoil(values):
        values[index] *= by

    return spoil


def both(rail, node, by):
    """Return a spoiler of a NIC's both ways."""

    def spoil(values):
        values[rail, node, :] *= by
        values[rail, :, node] *= by

    return spoil


ALL = slice(None)


@cases(
    "spoil, expected",
    (scale(0, ALL, 0, by=0.2), Element("nic", node="n1", rail="rail0", direction="rx")),
    (scale(1, 1, ALL, by=0.2), Element("nic", node="n2", rail="rail1", direction="tx")),
    (both(1, 2, 0.2), Element("nic", node="n3", rail="rail1")),
    (both(ALL, 1, 0.2), Element("node", node="n2")),
    (scale(0, 0, ALL, by=np.nan), Element("nic", node="n1", rail="rail0", direction="tx")),
    (both(ALL, 2, np.nan), Element("node", node="n3")),
    (both(1, 1, np.nan), Element("nic", node="n2", rail="rail1")),
)
def test_three_nodes_are_enough_to_name_a_large_fault(spoil, expected):
    """Catches: one bad node of three spoils most results, and the good ones look like the exception."""
    causes = localise_one(*small(3, spoil=spoil))
    assert [c.element for c in causes if c.blamed] == [expected]


@pytest.mark.parametrize("by", [0.2, np.nan])
def test_two_nodes_never_blame_either_end(by):
    """Catches: both nodes of a bad pair drained, or the wrong one."""
    causes = localise_one(*small(2, spoil=scale(0, 0, 1, by=by)))
    assert not any(c.blamed for c in causes)


@pytest.mark.parametrize("n", [3, 4, 6])
def test_one_bad_pair_blames_neither_end(n):
    """Catches: a suspect not retested with a different partner before blame."""
    for seed in range(3):
        causes = localise_one(*small(n, seed=seed, tests=12, spoil=scale(0, 0, 1, by=0.2)))
        assert not any(c.blamed for c in causes), causes


def counter(node, rail, name, delta, *, kind, n=2):
    """The same counter of every port, `delta` at one of them and 0 elsewhere."""
    made = []
    for i in range(n):
        for r in range(2):
            here = (f"n{i + 1}", f"rail{r}") == (node, rail)
            device, port = (
                ("leaf0", f"swp{1 + r * n + i}") if kind == "switch_port" else (f"n{i + 1}", f"rxe{r}")
            )
            made.append(
                records.counter(
                    run="x",
                    kind=kind,
                    device=device,
                    port=port,
                    rail=f"rail{r}",
                    counter=name,
                    before=5,
                    after=5 + (delta if here else 0),
                )
            )
    return made


def test_a_port_counter_decides_between_two_nodes():
    """Catches: a lossy switch port that its own drop counter names, missed for lack of a third node."""
    matrices, fabric = small(2, spoil=scale(0, 1, 0, by=0.2))
    drops = counter("n1", "rail0", "tx_dropped", 127, kind="switch_port")
    [cause] = [c for c in localise_one(matrices, fabric, drops) if c.blamed]
    assert (cause.element.kind, cause.element.node, cause.element.rail) == ("port", "n1", "rail0")
    assert cause.element.leaf == "leaf0:swp1"
    assert any("127 tx_dropped" in sentence for sentence in cause.evidence)


def test_retries_are_no_witness_of_where():
    """Catches: the sender blamed, since it is the one that counts the retries of what its partner lost."""
    matrices, fabric = small(2, spoil=scale(0, 1, 0, by=0.2))
    for name in ("completer_retry_err", "rcvd_seq_err", "local_ack_timeout_err"):
        retries = counter("n2", "rail0", name, 69, kind="nic")
        assert not any(c.blamed for c in localise_one(matrices, fabric, retries)), name


def test_damaged_bits_make_it_the_cable():
    """Catches: a NIC sent back for its cable's fault."""
    matrices, fabric = small(4, spoil=both(0, 1, 0.3))
    [cause] = localise_one(
        matrices, fabric, counter("n2", "rail0", "rx_crc_errors_phy", 900, kind="nic", n=4)
    )
    assert cause.element.kind == "cable" and cause.proposal == "drain n2 and look at its cable"


def test_latency_is_worse_when_larger():
    """Catches: the fastest node blamed for its latency."""
    matrices, fabric = small(4, spoil=both(0, 1, 5.0))
    slower = [Matrix(m.label, False, m.nodes, m.rails, m.values, m.failed) for m in matrices]
    assert [c.element.node for c in localise_one(slower, fabric) if c.blamed] == ["n2"]


def test_what_a_node_says_of_its_own_rail_names_it():
    """Catches: between two nodes, a port that is down by its own word blamed on nobody, or on the other."""
    matrices, fabric = small(2, spoil=scale(1, ALL, ALL, by=np.nan))
    said = {("n2", "rail1"): "rxe1 port 1 is 1: DOWN"}
    told = [Matrix(m.label, m.higher, m.nodes, m.rails, m.values, m.failed, said) for m in matrices]
    assert {(c.element.node, c.element.rail) for c in localise_one(told, fabric) if c.blamed} == {
        ("n2", "rail1")
    }


def test_a_slow_rail_is_no_fault_of_its_nodes():
    """Catches: every NIC of a slow rail blamed one by one; one of two rails blamed without a third."""
    rng = np.random.default_rng(1)
    shape = Shape(16, 3, pod=16)
    sim = measure(shape, build_fabric(shape, rng), [], rng)
    sim.matrix.values[1] *= 0.9
    assert blamed(sim) == [Element("rail", rail="rail1")]
    assert not any(c.blamed for c in localise_one(*small(4, spoil=scale(1, by=0.3))))


@pytest.mark.parametrize("nodes", [4, 15, 16])
def test_a_slow_rail_of_unknown_paths_is_a_suspect_at_every_size(nodes):
    """Catches: a rail blamed, surely, though its switch or a load beside it may be what is slow."""
    (cause,) = localise_one(*small(nodes, rails=8, cv=0.003, tests=1, spoil=scale(0, by=0.9)))
    assert cause.element == Element("rail", rail="rail0") and not cause.blamed


def test_an_uplink_of_unknown_path_is_not_blamed_on_nodes():
    """Catches: nodes behind a bad uplink blamed because the harness cannot see their paths."""
    sim = simulated((FaultKind.UPLINK, 0.5))
    blind = Cabling(sim.fabric.leaf, sim.fabric.leaves)
    assert not {c.element.kind for c in localise_one([sim.matrix], blind) if c.blamed} & {"node", "nic"}


def test_missing_results_here_and_there_blame_nobody():
    """Catches: a half-finished mesh read as dead hardware."""
    sim = simulated()
    lost = np.random.default_rng(0).random(sim.matrix.values.shape) < 0.2
    sim.matrix.values[lost] = np.nan
    sim.matrix.failed[lost] = True
    sim.matrix.failed[:, range(SHAPE.nodes), range(SHAPE.nodes)] = False
    assert blamed(sim) == []


def lose(sim, where):
    """Leave the results of `where` out, as planned, tried and without a value."""
    sim.matrix.values[where] = np.nan
    sim.matrix.failed[where] = True
    nodes = range(len(sim.matrix.nodes))
    sim.matrix.failed[:, nodes, nodes] = False
    return sim


def test_a_node_whose_firewall_drops_roce_is_named_and_not_called_dead():
    """Catches: a good node drained for what its own filter does: nothing of RoCE reaches it."""
    sim = simulated()
    nowhere = np.zeros(sim.matrix.values.shape, dtype=bool)
    nowhere[:, 5, :] = nowhere[:, :, 5] = True
    (cause,) = [c for c in localise_one([lose(sim, nowhere).matrix], sim.fabric) if c.blamed]
    assert (cause.element.kind, cause.element.node) == ("node", sim.matrix.nodes[5])
    assert any("is down, or a firewall there drops RoCE (UDP port 4791)" in line for line in cause.evidence)


def test_a_nic_that_receives_at_seven_tenths_leaves_its_hosts_cores_in_doubt():
    """Catches: a NIC that is blamed for a program that has the cores by which it is served."""
    sim = simulated((FaultKind.NIC_RX, 0.3))
    (cause,) = [c for c in localise_one([sim.matrix], sim.fabric) if c.blamed]
    assert (cause.element.kind, cause.element.direction) == ("nic", "rx")
    assert any("or from busy cores of its host" in line and "mpstat" in line for line in cause.evidence)


@pytest.mark.parametrize("nodes", [4, 8, 20])
def test_a_mesh_of_one_result_blames_nobody(nodes):
    """Catches: every node but one drained, surely, for a run that broke off after its first result."""
    sim = simulated(shape=Shape(nodes, 4, pod=4))
    everywhere = np.ones(sim.matrix.values.shape, dtype=bool)
    everywhere[0, 0, 1] = False
    causes = localise_one([lose(sim, everywhere).matrix], sim.fabric)
    assert causes and not any(c.blamed or c.confidence > 0.5 for c in causes)


@pytest.mark.parametrize("nodes", [4])
def test_half_of_a_small_mesh_missing_at_random_blames_nobody(nodes):
    """Catches: a NIC of few results called dead, surely, though as many are missing everywhere."""
    for seed in range(4):
        sim = simulated(shape=Shape(nodes, 8, pod=4))
        random = np.random.default_rng(seed).random(sim.matrix.values.shape) < 0.5
        assert blamed(lose(sim, random)) == [], seed


def four_tests(seed):
    """Return four tests of one healthy fabric of three nodes: a line of results is two of them."""
    rng = np.random.default_rng(seed)
    shape = Shape(3, 2, pod=4)
    fabric = build_fabric(shape, rng)
    return [measure(shape, fabric, [], rng) for _ in range(4)], rng


def test_half_of_the_results_of_three_nodes_missing_blames_nobody():
    """Catches: NICs called dead, surely, whose two results are missing in one test, as half of all are."""
    for seed in range(8):
        tests, rng = four_tests(seed)
        lost = [lose(sim, rng.random(sim.matrix.values.shape) < 0.5) for sim in tests]
        causes = localise_one([sim.matrix for sim in lost], tests[0].fabric)
        assert not [str(c.element) for c in causes if c.blamed], seed


def test_a_nic_of_three_nodes_that_dies_between_tests_is_named():
    """Catches: a dead NIC excused, because it answered before, there are few, or a whole test is missing."""
    tests, _ = four_tests(0)
    lose(tests[1], np.ones(tests[1].matrix.values.shape, dtype=bool))
    for sim in tests[2:]:
        where = np.zeros(sim.matrix.values.shape, dtype=bool)
        where[1, 1, :] = where[1, :, 1] = True
        lose(sim, where)
    causes = localise_one([sim.matrix for sim in tests], tests[0].fabric)
    nic = Element("nic", node=tests[0].matrix.nodes[1], rail="rail1")
    assert [c.element for c in causes if c.blamed] == [nic]


@pytest.mark.parametrize("nodes", [4, 20])
def test_a_dead_node_is_named_beside_results_missing_here_and_there(nodes):
    """Catches: a dead node excused by three results that others miss."""
    sim = simulated(shape=Shape(nodes, 4, pod=4))
    where = np.zeros(sim.matrix.values.shape, dtype=bool)
    where[:, 1, :] = where[:, :, 1] = True
    where[0, 0, 2] = where[1, 2, 0] = where[3, 2, 3] = True
    assert blamed(lose(sim, where)) == [Element("node", node=sim.matrix.nodes[1])]


def test_a_fault_needs_no_healthy_majority_on_its_leaf():
    """Catches: a bad leaf reported as so many bad NICs, or not at all."""
    rng = np.random.default_rng(4)
    fabric = build_fabric(SHAPE, rng)
    nics = [
        PlantedFault(FaultKind.LOSSY_CABLE, Element("nic", node=n, rail="rail1"), 0.05)
        for n in SHAPE.node_names[:12]
    ]
    sim = measure(SHAPE, fabric, nics, rng)
    assert blamed(sim) == [Element("leaf", leaf="leaf0-1")]


def only_with(sim, partners):
    """Leave of some nodes only the results with the partners given, and make those half as fast."""
    index = {name: i for i, name in enumerate(sim.matrix.nodes)}
    values = sim.matrix.values
    kept = {(index[a], index[b]) for a, others in partners.items() for b in others}
    kept |= {(b, a) for a, b in kept}
    full = values.copy()
    for name in partners:
        values[:, index[name], :] = values[:, :, index[name]] = np.nan
    for a, b in kept:
        values[:, a, b] = full[:, a, b] / 2
    return sim


def test_one_partners_word_is_not_enough():
    """Catches: a node blamed that was only ever measured with one partner."""
    sim = only_with(simulated(), {"n05": ["n31"]})
    causes = localise_one([sim.matrix], sim.fabric)
    assert causes and not any(c.blamed for c in causes)
    assert "another partner" in causes[0].proposal


def test_two_sides_that_explain_the_same_are_both_suspects():
    """Catches: one side of a bad square of pairs blamed, although the other side would explain it as well."""
    square = {"n05": ["n18", "n44"], "n31": ["n18", "n44"], "n18": ["n05", "n31"], "n44": ["n05", "n31"]}
    sim = only_with(simulated(), square)
    causes = localise_one([sim.matrix], sim.fabric)
    assert causes and not any(c.blamed for c in causes)


def test_a_flapping_nic_does_not_hide_or_inflate_its_leafs_uplink():
    """Catches: the mean over a path drawn away by one NIC behind it."""
    rng = np.random.default_rng(8)
    fabric = build_fabric(SHAPE, rng)
    uplink = Element("uplink", leaf="leaf1-0", spine="spine0-2")
    flapping = Element("nic", node="n15", rail="rail0")
    faults = [PlantedFault(FaultKind.UPLINK, uplink, 0.01), PlantedFault(FaultKind.FLAPPING, flapping, 0.5)]
    sim = measure(SHAPE, fabric, faults, rng)
    causes = {c.element: c for c in localise_one([sim.matrix], fabric) if c.blamed}
    assert set(causes) == {uplink, flapping}
    assert causes[uplink].effect == pytest.approx(-0.01, abs=0.002)


@pytest.mark.parametrize("n", [3, 4, 12, 16])
def test_health_at_the_limit_of_the_link_blames_nobody(n):
    """Catches: noise taken from results that crowd at the limit: the tail below then looks like a fault."""

    def limit(values):
        np.minimum(values, 33.5, out=values)

    for seed in range(4):
        causes = localise_one(*small(n, cv=0.1, seed=seed, spoil=limit))
        assert not any(c.blamed for c in causes), causes


def test_a_small_lasting_difference_is_no_fault_in_a_noisy_lab():
    """Catches: twelve tests that agree on three per cent called a fault where two per cent is the noise."""
    causes = localise_one(*small(4, cv=0.02, tests=12, spoil=both(0, 1, 0.97)))
    assert not any(c.blamed for c in causes)


def test_two_results_are_too_few_to_blame():
    """Catches: one test of a three-node lab, in which chance alone makes two results the lowest."""
    causes = localise_one(*small(3, tests=1, spoil=scale(0, ALL, 0, by=0.2)))
    assert not any(c.blamed for c in causes)


def test_a_leaf_of_a_quarter_of_the_fabric_is_one_fault():
    """Catches: a large fault that sets the spread that it is judged by."""
    rng = np.random.default_rng(5)
    shape = Shape(64, 1, pod=16)
    fabric = build_fabric(shape, rng)
    nics = [
        PlantedFault(FaultKind.NIC_TX, Element("nic", node=n, rail="rail0"), 0.05)
        for n in shape.node_names[:16]
    ]
    sim = measure(shape, fabric, nics, rng)
    assert blamed(sim) == [Element("leaf", leaf="leaf0-0")]


@given(st.lists(st.integers(0, 6), min_size=2, max_size=9), st.data())
def test_the_median_of_the_others_leaves_one_out(values, data):
    """Catches a counter that is compared with itself, which hides it among few peers."""
    at = data.draw(st.integers(0, len(values) - 1))
    others = values[:at] + values[at + 1 :]
    assert _median_of_others(sorted(values), values[at]) == median(others)


def test_a_spine_between_two_leaves_is_named_beside_its_links():
    """Catches: a slow spine whose two links are suspected, and the spine itself never is."""
    sim = simulated((FaultKind.SPINE, 0.2), shape=Shape(32, 2, pod=16))
    (cause,) = localise_one([sim.matrix], sim.fabric)
    spine = sim.faults[0].element
    assert not cause.blamed and spine in {cause.element, *cause.rivals} and len(cause.rivals) == 2


def test_a_spine_that_forwards_one_way_is_named_beside_the_link():
    """Catches: a good cable taken out, surely, for a spine that has no way back to a leaf."""
    sim = simulated(shape=Shape(64, 2, pod=16))
    fabric = sim.fabric
    back = (fabric.spine == 0) & (fabric.sink_leaf[:, None, :] == fabric.leaf[0, 0])
    (cause,) = localise_one([lose(sim, back).matrix], fabric)
    assert str(cause.element) == "uplink leaf0-0 spine0-0 down"
    assert any("that link, or how spine0-0 forwards over it" in line for line in cause.evidence)


def test_what_is_late_and_not_slow_is_no_broken_nic():
    """Catches: a NIC drained for 200 us and jitter that a shaper or power saving adds."""
    sim = simulated(shape=Shape(16, 2))
    rng, times = np.random.default_rng(1), np.full(sim.matrix.values.shape, 3.0)
    times += rng.normal(0, 0.02, times.shape)
    times[1, 4] += 200 * rng.uniform(0.5, 1.5, 16)
    times[:, range(16), range(16)] = np.nan
    late = replace(sim.matrix, label="ib_write_lat", higher=False, values=times)
    (cause,) = localise_one([sim.matrix, late], sim.fabric)
    assert (str(cause.element), cause.blamed) == ("nic n05 rail1 tx", False)
    assert any(
        "is late and not slow: likely something holds packets there" in line for line in cause.evidence
    )
    assert cause.proposal.startswith("look first for what holds packets there")
    damaged = counter("n5", "rail1", "symbol_error", 90_000, kind="nic", n=16)
    damaged = [c.model_copy(update={"device": f"n{int(c.device[1:]):02}"}) for c in damaged]
    (cause,) = localise_one([sim.matrix, late], sim.fabric, damaged)
    assert cause.blamed and not any("no part is broken" in line for line in cause.evidence)


@pytest.mark.parametrize(
    ("busy", "most", "blamed"),
    [(1, 1.0, False), (1, 0.05, True), (16, 1.0, True), (-16, 1.0, False)],
    ids=["a hog", "too little to explain it", "on every node", "half as much on the others"],
)
def test_a_load_that_explains_it_leaves_a_nic_in_doubt_and_no_other(busy, most, blamed):
    """Catches: a NIC at 80 % that nobody names, as a storage daemon polls on CPUs of every node."""
    sim = simulated((FaultKind.NIC_TX, 0.2), shape=Shape(16, 2))
    sick = sim.faults[0].element.node
    names = [sick, *(name for name in sim.matrix.nodes if name != sick)][: abs(busy)]
    took = {name: most if busy > 0 or name == sick else most / 2 for name in names}
    loaded = {name: Load(node=name, said=f"{name} was busy: x", most=took[name]) for name in names}
    (cause,) = localise_one([replace(sim.matrix, loaded=loaded)], sim.fabric)
    assert (cause.element.node, cause.blamed) == (sick, blamed)
    assert (f"{sick} was busy: x" in cause.evidence) is not blamed
