"""The way of every pair through the fabric: each is held to the reference of its own way."""

import time
from itertools import combinations
from typing import Any

import pytest

from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.benchmarks.perftest.ways import Way, ways
from shakedown.benchmarks.planning import site_of
from shakedown.records.base import Better, Stage
from shakedown.records.pairs import AllPairs, PairsAcross, apart
from shakedown.records.plan import ReferenceKind
from shakedown.references.catalogue import Catalogue, Profile, ReferenceEntry
from tests.kit.site import WHERE, document, plan_site


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
