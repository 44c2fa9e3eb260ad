"""Rounds, slots, ports and specifications: nobody is left out, nobody twice at once, bad input is named."""

import copy
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_mesh import spec_data

from shakedown.benchmarks.perftest.mesh.schedule import (
    circle_rounds,
    client_and_server,
    nic_of,
    pack_rounds,
    port_of,
    random_matchings,
    round_count,
    rounds_of,
    slots_of,
)
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.records.errors import BadInput
from shakedown.records.wording import natural_key


def names(n):
    """n1 to nN."""
    return [f"n{i}" for i in range(1, n + 1)]


@given(st.integers(2, 41))
def test_circle_method_meets_every_pair_once_and_nobody_twice_a_round(n):
    """Catches: an odd node out never tested; a pair dropped; a node in two pairs of a round."""
    rounds = list(circle_rounds(names(n)))
    met = [pair for r in rounds for pair in r]
    expected = {tuple(sorted(p, key=natural_key)) for p in combinations(names(n), 2)}
    assert len(met) == len(set(met)) and set(met) == expected
    assert len(rounds) == n - 1 + n % 2
    assert all(len({node for pair in r for node in pair}) == 2 * len(r) for r in rounds)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)).filter(lambda p: p[0] < p[1]), unique=True))
def test_packed_rounds_keep_every_pair_and_the_promised_bound(pairs):
    """Catches: a pair lost in packing; a node twice in a round; more rounds than first fit can need."""
    wanted = [(f"n{a}", f"n{b}") for a, b in pairs]
    rounds = pack_rounds(wanted)
    assert sorted(p for r in rounds for p in r) == sorted(wanted)
    assert all(len({node for pair in r for node in pair}) == 2 * len(r) for r in rounds)
    degree = max((sum(node in p for p in wanted) for node in {n for p in wanted for n in p}), default=0)
    assert len(rounds) <= max(0, 2 * degree - 1)


@pytest.mark.parametrize("n", [4, 7, 64])
def test_random_matchings_are_disjoint_and_leave_nobody_out(n):
    """Catches: a pair drawn twice, which confirms nothing; an odd node out of every matching."""
    matchings = random_matchings(names(n), 3, seed=5)
    pairs = [p for m in matchings for p in m]
    assert len(pairs) == len(set(pairs)) == 3 * (n // 2)
    assert {node for p in pairs for node in p} == set(names(n))
    assert matchings == random_matchings(names(n), 3, seed=5) != random_matchings(names(n), 3, seed=6)


def test_cross_rail_flows_use_the_sources_and_the_sinks_nic():
    """Catches: rail0>rail1 measured as rail0 to rail0, which never leaves the leaf."""
    operations = [{"test": t, "size_bytes": 8, "iterations": 5} for t in ("ib_write_bw", "ib_read_bw")]
    spec = parse_spec(spec_data(2, 2, rails=["rail0>rail1"], operations=operations))
    pair = ("n1", "n2")
    for direction, source in (("forward", "n1"), ("reverse", "n2")):
        sink = "n2" if source == "n1" else "n1"
        assert nic_of(spec, source, pair, direction, "rail0>rail1").netdev == "fab0"
        assert nic_of(spec, sink, pair, direction, "rail0>rail1").netdev == "fab1"
        write, read = spec.operations
        assert client_and_server(write.test, pair, direction) == (source, sink)
        assert client_and_server(read.test, pair, direction) == (sink, source)


def test_neighbouring_measurements_have_different_ports():
    """Catches: a client left over from a killed measurement that finds the next one's server."""
    spec = parse_spec(spec_data(4, 2, rails_at_once=["one", "all"], port_span=64))
    slots = slots_of(spec)
    ports = [
        port_of(spec, r, slot, rail)
        for r in range(round_count(spec))
        for slot in slots
        for rail in spec.rails
    ]
    assert len(set(ports)) == len(ports) <= 64
    assert {len(s.rails) for s in slots if s.rails_at_once == "all"} == {2}


def test_pairs_mode_meets_exactly_the_pairs_given():
    """Catches: a list of pairs that silently becomes a full mesh, or loses its order of names."""
    spec = parse_spec(spec_data(4, mode="pairs", pairs=[["n3", "n1"], ["n2", "n4"]]))
    assert list(rounds_of(spec)) == [(("n1", "n3"), ("n2", "n4"))]


def broken(**changes):
    """A specification with some fields replaced."""
    return spec_data(3, 2, **changes)


def missing(field):
    """A specification without a field."""
    data = spec_data(2)
    del data[field]
    return data


def without_ipv4(value):
    """A specification with one address replaced."""
    data = copy.deepcopy(spec_data(2))
    data["nodes"]["n1"]["rails"]["rail0"]["ipv4"] = value
    return data


def with_names(*names):
    """A specification of two nodes with these names."""
    data = spec_data(2)
    data["nodes"] = dict(zip(names, data["nodes"].values(), strict=True))
    return data


def test_names_that_fit_are_taken():
    """Catches: a limit so tight that a usual host name is refused."""
    assert parse_spec(with_names("a" * 60, "b" * 60), "spec.json")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (missing("tclass"), "'tclass' is missing"),
        (broken(speed=1), "unknown 'speed'"),
        (broken(schema=2), "schema"),
        (spec_data(1), "at least two nodes"),
        (broken(rails=["rail0", "rail7"]), "rail7"),
        (broken(rails=["rail0", "rail0"]), "each rail once"),
        (broken(mode="pairs"), "mode and pairs disagree"),
        (broken(mode="pairs", pairs=[["n1", "n1"]]), "two different"),
        (broken(mode="pairs", pairs=[["n1", "n9"]]), "n9"),
        (broken(mode="pairs", pairs=[["n1", "n2"], ["n2", "n1"]]), "each pair once"),
        (broken(operations=[{"test": "rm", "size_bytes": 8, "iterations": 5}]), "rm"),
        (broken(operations=[{"test": "ib_write_bw", "size_bytes": 8}]), "exactly one"),
        (broken(tclass=True), "tclass"),
        (broken(mtu=1500), "RDMA MTU"),
        (broken(timeout_s=1), "timeout_s"),
        (broken(timeout_s=float("nan")), "timeout_s"),
        (broken(base_port=18590), "control_port outside"),
        (broken(directions=["forward", "forward"]), "forward"),
        (without_ipv4("10.0.0.256"), "IPv4"),
        (without_ipv4("127.77.1.2"), "has it too"),
        (without_ipv4(7), "IPv4"),
        ({**spec_data(2), "nodes": {"n1;reboot": {}, "n2": {}}}, "n1;reboot"),
        ([], "not an object"),
        (with_names("a" * 63, "b" * 63), "names of up to 258 bytes"),
    ],
)
def test_a_bad_specification_is_refused_with_the_fields_name(data, says):
    """Catches: a typo that becomes a default; a duplicate address that measures one node twice."""
    with pytest.raises(BadInput, match=says) as refused:
        parse_spec(data, "spec.json")
    assert str(refused.value).startswith("spec.json: ")


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": []},
        {"mode": {}},
        {"mode": "pairs", "pairs": [[["n1"], "n2"]]},
        {"mode": "pairs", "pairs": [[{}, "n2"]]},
        {"mode": "pairs", "pairs": [["n1", "n2", "n2"]]},
        {"mode": "pairs", "pairs": [["n1", "n1"]]},
    ],
)
def test_lists_and_objects_in_place_of_names_are_refused(changes):
    """Catches: a traceback (unhashable type) where a specification holds a list instead of a name."""
    with pytest.raises(BadInput):
        parse_spec({**spec_data(3), **changes})
