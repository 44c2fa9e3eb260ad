"""Rounds, slots, ports and specifications: nobody is left out, nobody twice at once, bad input is named."""

import copy
import json
import time
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shakedown.benchmarks.perftest.mesh.completeness import lost_nodes
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
from shakedown.benchmarks.perftest.ways import Way, ways
from shakedown.benchmarks.planning import site_of
from shakedown.records.base import Better, Stage
from shakedown.records.pairs import AllPairs, PairsAcross, apart
from shakedown.records.plan import ReferenceKind
from shakedown.records.reading import BadInput
from shakedown.records.wording import natural_key
from shakedown.references.catalogue import Catalogue, Profile, ReferenceEntry
from tests.kit.cases import cases
from tests.kit.run import python
from tests.kit.site import WHERE, document, plan_site
from tests.unit.benchmarks.perftest.local_mesh import spec_data


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


@cases(
    "data, says",
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
)
def test_a_bad_specification_is_refused_with_the_fields_name(data, says):
    """Catches: a typo that becomes a default; a duplicate address that measures one node twice."""
    with pytest.raises(BadInput, match=says) as refused:
        parse_spec(data, "spec.json")
    assert str(refused.value).startswith("spec.json: ")


@cases(
    "changes",
    {"mode": []},
    {"mode": {}},
    {"mode": "pairs", "pairs": [[["n1"], "n2"]]},
    {"mode": "pairs", "pairs": [[{}, "n2"]]},
    {"mode": "pairs", "pairs": [["n1", "n2", "n2"]]},
    {"mode": "pairs", "pairs": [["n1", "n1"]]},
)
def test_lists_and_objects_in_place_of_names_are_refused(changes):
    """Catches: a traceback (unhashable type) where a specification holds a list instead of a name."""
    with pytest.raises(BadInput):
        parse_spec({**spec_data(3), **changes})


SPEC = {
    "schema": 1,
    "mode": "full",
    "nodes": {
        f"n{i}": {
            "address": f"10.0.0.{i}",
            "rails": {"rail0": {"rdma_device": "rxe0", "netdev": "fab0", "ipv4": f"10.10.0.{i}"}},
        }
        for i in (1, 2, 3)
    },
    "rails": ["rail0"],
    "operations": [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 10}],
    "directions": ["forward", "reverse"],
    "tclass": 106,
    "mtu": 4096,
}
START, END = {"event": "start"}, {"event": "end"}
N3_LOST = {"event": "dropped", "dropped": "n3"}


@pytest.fixture
def folder(tmp_path):
    """How to lay out a folder with these journals; None: the node left none."""

    def write(**journals):
        (tmp_path / "spec.json").write_text(json.dumps(SPEC))
        for node, events in journals.items():
            if events is not None:
                text = "".join(json.dumps(e) + "\n" for e in events)
                (tmp_path / f"journal.{node}.jsonl").write_text(text)
        return tmp_path

    return write


def test_a_dead_node_that_a_partner_names_is_the_only_one_lost(folder):
    """Catches the death of one node that makes worthless what all others measured."""
    where = folder(n1=[START, END], n2=[START, N3_LOST, END], n3=[START])
    assert lost_nodes(where, SPEC["nodes"]) == ["n3"]
    done = python("-m", "shakedown.benchmarks.perftest.mesh.completeness", where)
    assert (done.returncode, done.stdout) == (0, "shakedown mesh: complete except for n3\n")


def test_half_a_last_line_is_no_event(folder):
    """Catches a journal cut off by the node's death that stops the reader."""
    where = folder(n1=[START, END], n2=[START, N3_LOST, END], n3=[START])
    with (where / "journal.n3.jsonl").open("a") as journal:
        journal.write('{"event": "en')
    assert lost_nodes(where, SPEC["nodes"]) == ["n3"]


@cases(
    "journals",
    {"n1": [START, END], "n2": [START, END], "n3": [START]},  # nobody missed it
    {"n1": [START], "n2": [START, N3_LOST, END], "n3": None},  # nor did anybody miss n1
    {"n1": [START, N3_LOST], "n2": [START, END], "n3": [START]},  # whoever says so did not end itself
    {"n1": [START, END, START], "n2": [START, N3_LOST, END], "n3": [START]},  # a second start broke off
    {"n1": None, "n2": None, "n3": None},
)
def test_a_driver_that_is_not_accounted_for_spoils_the_job(folder, journals):
    """Catches a crashed driver, or a job that was cancelled, taken for a mesh that ended."""
    where = folder(**journals)
    assert lost_nodes(where, SPEC["nodes"]) is None
    done = python("-m", "shakedown.benchmarks.perftest.mesh.completeness", where)
    assert done.returncode == 1


def test_a_folder_without_a_mesh_is_refused(tmp_path):
    """Catches a mistyped folder taken for a mesh without losses."""
    done = python("-m", "shakedown.benchmarks.perftest.mesh.completeness", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def two_pods(nodes: int, rails: int, pod: int, **switches: Any) -> dict[str, Any]:
    """A rail-optimised site: NIC i of a pod's nodes on leaf i of the pod, two spines above all."""
    inventory = document(nodes)
    pods = range(-(-nodes // pod))
    intent = {
        "leaves": [f"leaf{p}-{r}" for p in pods for r in range(rails)],
        "spines": ["spine0", "spine1"],
        **switches,
    }
    hosts = inventory["_meta"]["hostvars"]
    fabric = hosts["n1"]["fabric"]
    fabric |= {
        "switches": intent,
        "rails": [{"name": f"rail{r}", "subnet": f"10.{r}.0.0/16"} for r in range(rails)],
    }
    acceptance = {
        "perftest": [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9, "cross_rail": rails > 1}]
    }
    for number in range(1, nodes + 1):
        hosts[f"n{number}"] = {
            "fabric": fabric,
            "acceptance": acceptance,
            "mgmt_ip": f"10.200.{number // 250}.{number % 250 + 1}",
            "fabric_nics": [
                {
                    "rail": f"rail{r}",
                    "netdev": f"fab{r}",
                    "rdma_device": f"rxe{r}",
                    "ipv4": f"10.{r}.{number // 250}.{number % 250 + 1}/16",
                    "leaf": f"leaf{(number - 1) // pod}-{r}",
                    "leaf_port": f"swp{(number - 1) % pod + 1}",
                }
                for r in range(rails)
            ],
        }
    return inventory


def catalogue() -> Catalogue:
    """A value for each way, so that the reference of a cell says by which way it was gated."""
    entries = tuple(
        ReferenceEntry(
            id=f"made-up-{way}",
            stage=Stage.FABRIC,
            test="ib_write_bw",
            metric="bandwidth",
            scope={"way": way.value},
            value=20.0 - place,
            tolerance=0.05,
            unit="Gb/s",
            better=Better.HIGHER,
            kind=ReferenceKind.BASELINE,
            source="made up",
        )
        for place, way in enumerate(Way)
    )
    return Catalogue(
        [Profile(profile="made-up", title="t", published="nowhere", audit="none", entries=entries)]
    )


def real_way(inventory: dict[str, Any], pair: tuple[str, ...], rail: str, direction: str | None) -> Way:
    """Follow one flow through the cabling of the inventory, without the planner's groups."""
    hosts = inventory["_meta"]["hostvars"]
    source, sink = pair if direction == "forward" else pair[::-1]
    out, _, into = rail.partition(">")
    leaf = {(node, nic["rail"]): nic["leaf"] for node in pair for nic in hosts[node]["fabric_nics"]}
    ends = leaf[source, out], leaf[sink, into or out]
    if ends[0] == ends[1]:
        return Way.SAME_LEAF
    pods = hosts[source]["fabric"]["switches"].get("pods", {})
    shared = any(set(ends) <= set(leaves) for leaves in pods.values())
    return Way.SAME_POD if shared else Way.OVER_SPINES


def gated(nodes: int, rails: int, pod: int, **switches: Any) -> tuple[int, int, float, Any]:
    """Return (cells, cells of the wrong way, seconds of planning, jobs)."""
    inventory = two_pods(nodes, rails, pod, **switches)
    site, started = site_of(inventory, WHERE), time.monotonic()
    plan, jobs = plan_site(site, catalogue())
    took_s = time.monotonic() - started
    cells = wrong = 0
    for item in plan.items:
        if item.metric == "bandwidth":
            for _, pair, rail, direction in item.cells():
                cells += 1
                wrong += item.reference != f"made-up-{real_way(inventory, pair, str(rail), direction)}"
    return cells, wrong, took_s, jobs


PODS = {"pods": {f"pod{p}": [f"leaf{p}-{r}" for r in range(8)] for p in range(2)}}


@pytest.mark.parametrize("switches", [{}, PODS], ids=["pods unsaid", "pods said"])
def test_no_pair_of_two_pods_is_gated_by_the_wrong_way(switches):
    """Catches a pair that crosses spines held to what two nodes under one leaf reach, and the reverse."""
    cells, wrong, _, _ = gated(64, 8, 32, **switches)
    assert cells == 2016 * 2 * (8 + 8)
    assert wrong == 0


def test_half_of_a_rails_pairs_cross_the_spines():
    """Catches pairs counted twice or lost between the blocks of their ways."""
    site = site_of(two_pods(64, 1, 32), WHERE)
    nodes = tuple(f"n{i}" for i in range(1, 65))
    blocks = ways(site, nodes, "rail0").blocks
    assert blocks is not None
    sizes = {way: sum(len(pairs) for of, pairs in blocks if of is way) for way in Way}
    assert sizes == {Way.SAME_LEAF: 992, Way.SAME_POD: 0, Way.OVER_SPINES: 1024}
    named = [pair for _, pairs in blocks for pair in pairs]
    assert sorted(named) == sorted(combinations(nodes, 2))


def test_a_ring_keeps_the_ways_of_its_pairs():
    """Catches the pairs of neighbours all held to the way of the first."""
    inventory = two_pods(4, 1, 2)
    hosts = inventory["_meta"]["hostvars"]
    hosts["n1"]["acceptance"]["perftest"] = [
        {
            "test": "ib_write_bw",
            "size_bytes": 65536,
            "iterations": 9,
            "one_rail_pairs": "ring",
            "rails_at_once": ["all", "one"],
        }
    ]
    plan, _ = plan_site(inventory, catalogue())
    found = {
        pair: item.reference
        for item in plan.items
        if item.params.get("rails_at_once") == "one"
        for _, pair, *_ in item.cells()
    }
    assert found[("n1", "n2")] == "made-up-same-leaf"
    assert found[("n2", "n3")] == found[("n1", "n4")] == "made-up-over-spines"


def test_the_mesh_measures_again_by_the_limit_of_the_pairs_way():
    """Catches a healthy pair over the spines measured again because it is slower than one under a leaf."""
    *_, jobs = gated(4, 1, 2)
    rule = parse_spec(jobs.jobs[0].settings).remeasure
    assert rule is not None
    limits = {
        pair: rule.limits_of(("ib_write_bw", 65536, 1), "one", "rail0", pair)["bandwidth"]
        for pair in (("n1", "n2"), ("n1", "n3"))
    }
    assert limits == {("n1", "n2"): pytest.approx(19.0), ("n1", "n3"): pytest.approx(17.1)}


def test_blocks_that_share_a_pair_are_told_from_those_that_do_not():
    """Catches a cell planned twice between blocks, and blocks apart refused as sharing one."""
    leaf = AllPairs(all_pairs_of=("n1", "n2"))
    across = PairsAcross(pairs_across=(("n1", "n2"), ("n3", "n4")))
    assert apart(leaf, across)
    assert not apart(AllPairs(all_pairs_of=("n2", "n3")), across)
    assert ("n1", "n3") in across and ("n1", "n2") not in across and len(across) == 4
    assert list(across) == [("n1", "n3"), ("n1", "n4"), ("n2", "n3"), ("n2", "n4")]


@pytest.mark.slow
def test_a_large_site_is_planned_by_its_ways_in_seconds():
    """Catches millions of pairs named one by one: 1,024 nodes in 16 pods."""
    inventory = two_pods(1024, 2, 64)
    started = time.process_time()
    plan, _ = plan_site(inventory, catalogue())
    assert time.process_time() - started < 60
    assert len(plan.model_dump_json()) < 2_000_000
