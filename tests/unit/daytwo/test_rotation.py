"""The rotation: everything has its turn in the stated number of nights, within the budget, with partners."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shakedown.benchmarks.perftest.benchmark import pair_rounds
from shakedown.benchmarks.planning import site_of
from shakedown.daytwo.nightly.plan import (
    Share,
    Tonight,
    choose,
    groups,
    nights_to_cover,
    site_tonight,
    slot_costs,
)
from shakedown.records.base import Stage
from shakedown.records.reading import BadInput
from tests.kit.site import WHERE, document

COSTS = {f"{test}/{rail}": 90.0 for test in ("write", "read", "lat") for rail in ("rail0", "rail1", "rail2")}


def nights(count: int, idle, *, budget: float = 300, group: int = 4, costs=COSTS):
    """Run nights; yield (night, shares, covered). `idle` gives the idle nodes of a night."""
    covered: dict[str, dict[str, float]] = {}
    for night in range(count):
        shares = choose(idle(night), costs, covered, budget_s=budget, group=group, seed=night)
        for share in shares:
            for node in share.nodes:
                covered.setdefault(node, {})[share.slot] = night
        yield night, shares, covered


@pytest.mark.parametrize("nodes", [2, 3, 5, 8, 33])
def test_all_have_their_turn_in_the_stated_nights(nodes):
    """Catches: a node, rail or test that never has its turn; an odd node out."""
    names = [f"n{i}" for i in range(nodes)]
    stated = nights_to_cover(COSTS, budget_s=300)
    assert stated == 3
    *_, (_, _, covered) = nights(stated, lambda night: names)
    assert {n: set(covered[n]) for n in names} == {n: set(COSTS) for n in names}


@given(st.integers(4, 12), st.integers(0, 10**6), st.integers(3, 6))
@settings(max_examples=40, deadline=None)
def test_no_night_breaks_the_budget_or_leaves_a_node_alone(nodes, seed, group):
    """Catches: a node used for longer than allowed, measured twice in a slot, or without a partner."""
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(nodes)]
    for _, shares, _ in nights(8, lambda night: rng.sample(names, rng.randint(2, nodes)), group=group):
        used: dict[str, float] = {}
        for share in shares:
            assert 2 <= len(share.nodes) <= group
            assert len(set(share.nodes)) == len(share.nodes)
            for node in share.nodes:
                used[node] = used.get(node, 0) + COSTS[share.slot]
        assert all(u <= 300 for u in used.values())
        pairs = [(s.slot, n) for s in shares for n in s.nodes]
        assert len(set(pairs)) == len(pairs)


def test_busy_nodes_catch_up_first():
    """Catches: a node that was busy for a week and then waits behind slots that were measured yesterday."""
    names = [f"n{i}" for i in range(9)]
    rng = random.Random(7)
    idle_nights: dict[str, int] = dict.fromkeys(names, 0)
    worst: dict[str, int] = dict.fromkeys(names, 0)
    stated = nights_to_cover(COSTS, budget_s=300)

    def idle(night: int) -> list[str]:
        tonight = [n for n in names if rng.random() < 0.5]
        for n in tonight:
            idle_nights[n] += 1
        return tonight

    for _, _, covered in nights(60, idle):
        for n in names:
            if set(covered.get(n, {})) != set(COSTS):
                worst[n] = idle_nights[n]
    # Partners do not always wait for the same; two of its idle nights more are enough.
    assert max(worst.values()) <= stated + 2


def test_partners_change_from_night_to_night():
    """Catches: the same pairs every night, in which a bad partner is never told from a bad node."""
    names = [f"n{i}" for i in range(16)]
    met: dict[str, set[str]] = {}
    for _, shares, _ in nights(6, lambda night: names):
        for share in shares:
            for node in share.nodes:
                met.setdefault(node, set()).update(set(share.nodes) - {node})
    assert min(len(partners) for partners in met.values()) >= 8


def test_one_idle_node_measures_nothing():
    """Catches: a plan with a pair of one."""
    assert choose(["n1"], COSTS, {}, budget_s=300, group=4, seed=1) == []


def test_a_slot_beyond_the_budget_is_refused():
    """Catches: a test that is silently never measured because it does not fit."""
    with pytest.raises(BadInput, match=r"write/rail0 takes 90 s a node, the night's budget is 60 s"):
        choose(["n1", "n2"], COSTS, {}, budget_s=60, group=4, seed=1)


def test_groups_hold_everybody_and_none_of_one():
    """Catches: the fifth of five left alone in a group."""
    assert sorted(len(g) for g in groups([f"n{i}" for i in range(5)], 4, "x")) == [2, 3]
    assert sorted(n for g in groups(list("abcdefg"), 3, "x") for n in g) == list("abcdefg")
    assert [pair_rounds(n) for n in (2, 3, 4, 5)] == [1, 3, 3, 5]
    assert isinstance(Share("a", ("n1", "n2")), Share)


def test_a_node_is_measured_by_itself_without_a_partner():
    """Catches: a GPU test that waits for a partner, and one that is planned on a node without GPUs."""
    costs = {**COSTS, "gpu_node": 100.0}
    having = {"gpu_node": ("n1",)}
    turns: dict[str, int] = {}
    covered: dict[str, dict[str, float]] = {}
    for night in range(nights_to_cover(costs, budget_s=300) + 1):
        for share in choose(
            ["n1", "n2", "n3", "n4"], costs, covered, budget_s=300, group=4, seed=night, alone=having
        ):
            for node in share.nodes:
                covered.setdefault(node, {})[share.slot] = night
                turns[f"{node} {share.slot}"] = turns.get(f"{node} {share.slot}", 0) + 1
    assert turns["n1 gpu_node"] >= 1
    assert not [t for t in turns if t.endswith("gpu_node") and not t.startswith("n1 ")]
    assert set(covered["n2"]) == set(COSTS)


def test_a_night_of_a_part_has_its_slots_alone():
    """Catches: --rails or --stage of a night that measures the others as well."""
    site = site_of(document(4), WHERE)
    every = slot_costs(site, 4, 120)
    one = site_tonight(site, Tonight(nodes=("n[1-3]",), rails=("rail1",)))
    assert set(one.nics) == {"n1", "n2", "n3"}
    assert slot_costs(one, 4, 120) == {slot: s for slot, s in every.items() if slot.endswith("/rail1")} != {}
    assert slot_costs(site_tonight(site, Tonight(stages=(Stage.FABRIC,))), 4, 120) == every
    assert slot_costs(site_tonight(site, Tonight(stages=(Stage.CONFIG,))), 4, 120) == {}
    assert site_tonight(site, Tonight()) == site
    with pytest.raises(BadInput, match="--nodes names 'n9', which is no node of the site"):
        site_tonight(site, Tonight(nodes=("n9",)))
