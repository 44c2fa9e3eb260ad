"""The rotation within its budget, with partners; what failed is measured again with good ones."""

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
from shakedown.daytwo.rerun import changed_part, failed_part
from shakedown.discover.ask import answers_of
from shakedown.intent.site import AbsentNode
from shakedown.judge.judged import judge_run
from shakedown.records.base import Stage
from shakedown.records.reading import BadInput
from shakedown.records.results import Component, Snapshot
from shakedown.records.writing import write_aside
from shakedown.references.files import load_catalogue
from shakedown.run.folder import Run, write_plan
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, plan_site
from tests.unit.plan.test_scope import measured

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


def site(nodes: int = 6):
    """Return a site of the lab's kind whose leaf is cabled."""
    inventory = document(nodes)
    hostvars = inventory["_meta"]["hostvars"]
    cabling = [
        {"port": nic["leaf_port"], "host": name, "netdev": nic["netdev"], "rail": nic["rail"]}
        for name in inventory["compute"]["hosts"]
        for nic in hostvars[name]["fabric_nics"]
    ]
    inventory["switches"] = {"hosts": ["leaf0"]}
    hostvars["leaf0"] = {"roce_switch_nos": "linux", "leaf_ports": cabling}
    return site_of(inventory, WHERE)


def run_with(tmp_path, bad) -> Run:
    """Write a run of the site. `bad` gives the factor of a value, or nothing for one that is missing."""
    catalogue = load_catalogue(["lab"])
    plan, _ = plan_site(site(), catalogue)
    folder = tmp_path / "r1"
    folder.mkdir(parents=True)
    write_plan(folder, plan)
    noise = random.Random(7)
    lines = []
    for m in measured(plan):
        factor = bad(m)
        if factor is None:
            continue
        value = m.value * (noise.uniform(998, 1002) if m.metric == "bandwidth" else 1) * factor
        lines.append(m.model_copy(update={"value": value, "samples": (value,) * len(m.samples)}))
    text = "".join(m.model_dump_json(by_alias=True) + "\n" for m in lines)
    write_aside(folder / "results.jsonl", text.encode())
    return Run(folder)


def part_of_run(tmp_path, bad):
    """Return the part that is to be measured again."""
    return failed_part(site(), judge_run(run_with(tmp_path, bad)))


def test_a_slow_nic_is_measured_again_with_two_good_nodes(tmp_path):
    """Catches: a rerun of all partners of the slow node, of all rails or of all stages."""

    def slow(m):
        return 0.0005 if m.metric == "bandwidth" and m.rail == "rail1" and "n4" in m.nodes else 1

    wanted = part_of_run(tmp_path, slow)
    assert (wanted.nodes, wanted.rails, wanted.stages) == (("n4",), ("rail1",), (Stage.FABRIC,))
    plan, _ = plan_site(site(), run="r2", created="2026-01-02T00:00:00Z", wanted=wanted)
    assert plan.scope.partners == ("n1", "n2")
    assert plan.scope.words == "1 of 6 nodes, 1 of 2 rails, fabric only: not an acceptance of the site"


def test_both_ends_of_a_pair_that_names_none(tmp_path):
    """Catches: a pair of which one end alone is measured again, without evidence which."""
    wanted = part_of_run(
        tmp_path, lambda m: 0.0005 if m.metric == "bandwidth" and m.nodes == ("n2", "n5") else 1
    )
    assert wanted.nodes == ("n2", "n5")


def test_what_was_not_run_is_measured_again(tmp_path):
    """Catches: a rerun that takes what is missing for what passed."""
    wanted = part_of_run(tmp_path, lambda m: None if m.metric == "bandwidth" and "n3" in m.nodes else 1)
    assert "n3" in wanted.nodes


def test_a_switch_port_is_its_hosts(tmp_path):
    """Catches: a dirty port of a leaf that is planned again for no node, or for all."""
    port = next(p for s in site().switches for p, host, *_ in s.ports if host == "n6")

    def dropping(m):
        return None if m.nodes == ("leaf0",) and m.params.get("port") == port else 1

    assert part_of_run(tmp_path, dropping).nodes == ("n6",)


def test_a_run_that_passed_has_nothing_to_measure_again(tmp_path):
    """Catches: a rerun of everything after a PASS."""
    refused("every required cell passed", part_of_run, tmp_path, lambda _: 1)


def test_a_run_of_another_site_is_refused(tmp_path):
    """Catches: nodes of the run that the site does not know, left out or taken for switches; a run of another
    cluster whose nodes are called alike."""
    judged = judge_run(run_with(tmp_path, lambda m: None if "n6" in m.nodes else 1))
    refused("n4 of the run is not in the site", failed_part, site(3), judged)
    both = judge_run(run_with(tmp_path / "2", lambda m: None if m.nodes == ("n5", "n6") else 1))
    refused("n5 of the run is not in the site", failed_part, site(3), both)
    here = site()
    fabric = here.fabric.model_copy(update={"system": "another"})
    other = here.model_copy(update={"fabric": fabric})
    refused("is of system 'lab', the site is of 'another'", failed_part, other, both)


def test_an_absent_node_is_no_switch(tmp_path):
    """Catches: a node that was absent and is so still, for which all others are measured again."""
    judged = judge_run(run_with(tmp_path, lambda m: None if m.nodes == ("n5", "n6") else 1))
    here, six = site(5), {"n5": AbsentNode(why="no power"), "n6": AbsentNode(why="no power")}
    nics = {node: own for node, own in here.nics.items() if node != "n5"}
    without = here.model_copy(update={"nics": nics, "absent_nodes": six})
    refused("only n5 did not pass, absent still", failed_part, without, judged)


def macs(of: dict[str, str]) -> Snapshot:
    """Return what a run was made on: the NICs' addresses."""
    nics = (
        Component(host=where.split()[0], kind="nic", name=where.split()[1], attributes={"mac": mac})
        for where, mac in of.items()
    )
    return Snapshot(run="first", taken="2026-11-20T00:00:00Z", components=tuple(nics))


def seen(of: dict[str, str]):
    """Return what the nodes answer now."""
    nodes: dict[str, object] = {}
    for where, mac in of.items():
        node, netdev = where.split()
        tree = {"schema": 1, "host": node, "virtual": True, "numa": [], "cores": [], "devices": []}
        document = nodes.setdefault(node, {"schema": 1, "host": node, "topology": tree, "nics": []})
        document["nics"].append({"netdev": netdev, "mac": mac})  # type: ignore[index]
    return answers_of(nodes)


OLD, NEW = "52:54:00:0c:02:01", "52:54:00:0c:02:77"
THEN = {
    f"n{n} {nic}": f"52:54:00:{n:02x}:02:0{i}" for n in (1, 2, 3) for i, nic in enumerate(("fab0", "fab1"))
}


def test_a_node_whose_nic_was_replaced_is_measured_again():
    """Catches: a NIC swap that nothing notices, one that is taken for all nodes', a NIC that is gone."""
    part, words = changed_part(site(), macs(THEN), seen({**THEN, "n2 fab1": NEW}))
    assert (part.nodes, part.rails, part.stages, part.partners) == (("n2",), (), (), 2)
    assert words == (f"n2 fab1: its MAC address is {NEW}, in run first it was 52:54:00:02:02:01",)
    gone = {where: mac for where, mac in THEN.items() if where != "n3 fab0"}
    part, words = changed_part(site(), macs(THEN), seen(gone))
    assert part.nodes == ("n3",)
    assert words == ("n3 fab0: it is not there, in run first it was 52:54:00:03:02:00",)


@cases(
    "then, now, says",
    (THEN, THEN, "all 6 NICs are those of run first"),
    # Of adm0, no NIC of the fabric, and of a node that does not answer, nothing is said.
    (
        {**THEN, "n1 adm0": OLD},
        {k: v for k, v in THEN.items() if "n2" not in k} | {"n1 adm0": NEW},
        "all 4 NICs",
    ),
    (THEN, dict.fromkeys(THEN, ""), "no MAC address is known of both run first and now"),
    ({}, THEN, "no MAC address is known of both run first and now"),
)
def test_nics_that_are_the_same_are_not_measured_again(then, now, says):
    """Catches: a whole site measured again for nothing, and silence taken for sameness."""
    refused(says, changed_part, site(), macs(then), seen(now))


def test_what_failed_may_be_said_and_not_together_with_what_changed(shakedown, tmp_path):
    """Catches: --failed that is no option, or of which one half is silently left out."""
    words = ("rerun", tmp_path, "inventories/lab", "--failed", "--changed", tmp_path / "a.json")
    status, out, err = shakedown(*words)
    assert (status, out) == (2, "")
    assert err == "shakedown: --failed and --changed both say what to plan -- give one of them\n"
