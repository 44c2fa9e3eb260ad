"""What a plan says of its own power, held against dice."""

import json
import random
import time

import pytest

from shakedown.benchmarks.perftest.mesh.schedule import pairs_of
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.plan import odds as module
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.plan.odds import power, power_words
from shakedown.plan.scope import WantedScope
from shakedown.plan.time_limits import course, in_order, stage_limit_s
from shakedown.records.base import Stage
from shakedown.records.pairs import MOST_NODES, AllPairs
from shakedown.records.plan import Plan, Reference, Remeasure
from shakedown.records.reading import read_record
from shakedown.run.folder import write_plan
from shakedown.slurm.under_way import Turns
from shakedown.statistics.robust import CellTally, Samples
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, plan_site


def plan(nodes: int, **told) -> Plan:
    """A mesh over one rail with a gate at -5 %."""
    names = tuple(f"n{i:02d}" for i in range(nodes))
    shared = {"unit": "Gb/s", "better": "higher"}
    item = records.item(
        **shared,
        nodes=tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :]),
        rails=("rail0",),
        directions=("forward", "reverse"),
        reference="bw",
    )
    limits = {"tolerance": 0.05} | told
    reference = Reference(id="bw", value=400.0, kind="physical", source="test", **shared, **limits)
    return records.plan(
        item, references=[reference], nodes=names, remeasure=Remeasure(tests=("ib_write_bw",))
    )


@pytest.mark.parametrize("low", [0.001, 0.05, 0.3, 0.5, 0.9])
def test_a_cell_persists_as_often_as_dice_say(low):
    """Catches odds that are not those of the rule that the driver and the verdict follow."""
    dice, fails, runs = random.Random(5), 0, 40_000
    for _ in range(runs):
        tried = outside = 0
        while True:
            tried, outside = tried + 1, outside + (dice.random() < low)
            says = CellTally(tried, tried, outside).says(2)
            if says is not Samples.OPEN:
                break
        fails += says is Samples.PERSISTS
    assert fails / runs == pytest.approx(module._persists(low), abs=0.01)


def test_a_mesh_says_what_it_can_tell():
    """Catches a plan that promises to find what it cannot, or that a healthy cluster would not pass."""
    (told,) = power(plan(64, fleet_min_effect=0.035))
    assert told.healthy_fails < 0.01
    assert told.slow_5_passes < 1e-6
    assert told.slow_2_passes > 0.9
    assert "at -5 % in less than 0.01 %" in told.words
    (tight,) = power(plan(64, tolerance=0.015))
    assert tight.slow_2_passes < 1e-6


def test_few_partners_see_less():
    """Catches odds that count on the median of a NIC where the verdict has too few results for one."""
    (told,) = power(plan(4, fleet_min_effect=0.035))
    assert 0.2 < told.slow_5_passes < 0.5


def test_a_gate_within_the_noise_fails_healthy_clusters_and_says_so():
    """Catches a number that is the same whatever the gate is."""
    (told,) = power(plan(64, tolerance=0.003))
    assert told.healthy_fails > 0.99


def test_a_plan_without_the_rule_says_nothing():
    """Catches odds of a rule that is not there."""
    assert power(plan(8).model_copy(update={"remeasure": None})) == ()


def test_a_floor_promises_nothing():
    """Catches: "a healthy cluster fails in 81 % of runs", told of a floor that every healthy cell exceeds."""
    floor = plan(2, tolerance=None, limit=400.0)
    assert power(floor) == ()
    (told,) = power_words(floor)
    assert "1 block of pairs has a floor as reference" in told
    assert "%" not in told


def test_what_is_measured_once_gets_no_odds_of_three_measurements():
    """Catches: both ways at once said to be measured again, which no job does."""
    one_way = plan(8)
    both = one_way.items[0].model_copy(update={"directions": ("both",)})
    assert power_words(one_way.model_copy(update={"items": (both,)})) == ()


def planned(inventory, **wanted):
    """Plan a site with the lab's references."""
    return plan_site(inventory, wanted=WantedScope(**wanted) if wanted else None)


def asking(nodes: int, **acceptance):
    """Return a site of the lab's kind that asks for these sections beside or instead of its own."""
    inventory = document(nodes)
    for host in hosts(inventory):
        host["acceptance"] = {**host["acceptance"], **acceptance}
    return inventory


def job(name: str, *nodes: str, seconds: int = 60) -> JobSpec:
    """Return a job of the node stage."""
    return JobSpec(
        name=name, kind="stream", stage=Stage.NODE, tests=(name,), nodes=nodes, time_limit_s=seconds
    )


def seconds_of(job: JobSpec) -> int:
    """Return how long a job takes here."""
    return job.time_limit_s


def test_jobs_on_different_nodes_run_side_by_side_and_never_two_on_one():
    """Catches: 64 single-node jobs one after the other, or two tests on one node at once."""
    alone = [job(f"n{i}", f"n{i}") for i in range(64)]
    assert course(alone, seconds_of, 64).wall_s == 60
    assert course(alone, seconds_of, 64).at_once == 64
    assert course(alone, seconds_of, 1).wall_s == 64 * 60
    assert course(alone, seconds_of, 10).wall_s == 7 * 60
    assert course([job("a", "n1"), job("b", "n1", "n2"), job("c", "n2")], seconds_of, 8).wall_s == 120
    same = [job(str(i), "n1", "n2") for i in range(3)]
    assert (course(same, seconds_of, 8).wall_s, course(same, seconds_of, 8).at_once) == (180, 1)


def test_a_chain_of_neighbours_takes_two_turns():
    """Catches: pairs n1-n2, n2-n3, n3-n4 ... that wait for each other in a row."""
    chain = [job(f"p{i}", f"n{i}", f"n{i + 1}") for i in range(63)]
    assert course(chain, seconds_of, 64).wall_s == 2 * 60
    assert [j.name for j in in_order(chain)][:3] == ["p0", "p2", "p4"]
    assert sorted(in_order(chain), key=lambda j: j.name) == sorted(chain, key=lambda j: j.name)


def test_a_job_waits_in_slurm_for_those_on_its_nodes_that_have_not_ended():
    """Catches: two jobs on one node where --exclusive is set aside; a job that waits for its own ancestor."""
    turns = Turns()
    assert turns.after("a", ("n1", "n2"), lambda: 7) == []
    assert turns.after("b", ("n3",), lambda: 8) == []
    assert turns.after("c", ("n2", "n3"), lambda: 9) == ["--dependency=afterany:7:8"]
    turns.ended("a")
    turns.ended("c")
    assert turns.after("d", ("n1", "n2", "n3"), lambda: None) == ["--dependency=afterany:8"]
    # d was never submitted, and b is tried again: neither is waited for.
    assert turns.after("b", ("n3",), lambda: 11) == []


def test_a_stage_gets_the_time_that_its_jobs_need_side_by_side():
    """Catches: a limit that forgets that jobs of one node follow each other."""
    jobs = Jobs(run="r", jobs=(job("a", "n1"), job("b", "n2"), job("c", "n1")), nics={}, max_jobs=8)
    serial = jobs.model_copy(update={"max_jobs": 1})
    assert stage_limit_s(serial, Stage.NODE) - stage_limit_s(jobs, Stage.NODE) == 60 + 90


def test_the_plan_says_how_long_each_stage_takes_and_what_a_part_takes():
    """Catches: an expectation above its limit, of stages without jobs, or of the whole in a part's plan."""
    plan, jobs = planned(document(4))
    expected = plan.expectation
    assert expected is not None
    assert [part.stage for part in expected.stages] == [Stage.FABRIC, Stage.COLLECTIVE]
    assert all(0 < part.expected_s <= part.limit_s for part in expected.stages)
    assert sum(part.jobs for part in expected.stages) == len(jobs.jobs)
    assert any("lab_healthy" in source for source in expected.sources)
    part, _ = planned(document(4), stages=(Stage.FABRIC,))
    assert part.expectation is not None
    assert [one.stage for one in part.expectation.stages] == [Stage.FABRIC]


def ringed(nodes: int):
    """Plan a mesh that measures rail by rail between neighbours alone."""
    test = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9, "rails_at_once": ["one", "all"]}
    test |= {"one_rail_pairs": "ring"}
    return planned(asking(nodes, perftest=[test]))


def test_all_rails_at_once_are_measured_first_and_between_every_pair():
    """Catches: a pair that no way measures, a cell that no job measures, a cell left out and not told."""
    whole, _ = planned(document(6))
    plan, jobs = ringed(6)
    mesh = [j for j in jobs.jobs if j.kind == "mesh"]
    assert [j.settings["rails_at_once"] for j in mesh] == [["all"], ["one"]]
    every, few = (parse_spec(j.settings, WHERE) for j in mesh)
    assert (len(pairs_of(every)), len(pairs_of(few))) == (15, 6)
    cells = [
        (item.test, nodes, rail, direction, item.params)
        for item in plan.items
        if item.stage is Stage.FABRIC and "counter" not in item.metric
        for _, nodes, rail, direction in item.cells()
    ]
    assert all(sum(j.measures(*cell) for j in mesh) == 1 for cell in cells)
    told = [one for one in plan.not_covered if one.key == "acceptance.perftest.one_rail_pairs"]
    left_out = sum(len(i) for i in whole.items if i.metric == "bandwidth" and i.test == "ib_write_bw")
    assert [one.cells for one in told] == [left_out - len(cells)]
    assert sum(j.time_limit_s for j in mesh) < sum(
        j.time_limit_s for j in planned(document(6))[1].jobs if j.kind == "mesh"
    )


def test_a_ring_of_three_is_every_pair_in_one_job():
    """Catches: a second job, or a note about pairs left out, where none is."""
    plan, jobs = ringed(3)
    assert [j.name for j in jobs.jobs if j.kind == "mesh"] == ["fabric.ib_write_bw"]
    assert not [one for one in plan.not_covered if "rail by rail" in one.what]


def test_a_ring_without_all_rails_at_once_is_refused():
    """Catches: pairs that are measured in no way at all."""
    test = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 9, "one_rail_pairs": "ring"}
    refused("leaves pairs out", planned, asking(4, perftest=[test]))


def with_leaf(nodes: int, *, ports: bool):
    """Return a site with one leaf in its inventory, with or without its ports."""
    inventory = asking(nodes, config={"dcb": False, "link_speed": False})
    listed = [
        {"port": nic["leaf_port"], "host": name, "netdev": nic["netdev"], "rail": nic["rail"]}
        for name, host in inventory["_meta"]["hostvars"].items()
        for nic in host["fabric_nics"]
    ]
    leaf = {"roce_switch_nos": "linux", **({"leaf_ports": listed} if ports else {})}
    inventory["_meta"]["hostvars"]["leaf0"] = leaf
    inventory["switches"] = {"hosts": ["leaf0"]}
    return inventory


def test_a_site_without_leaf_ports_hears_how_many_cells_that_costs():
    """Catches: an empty key that leaves cells out in silence."""
    whole, _ = planned(with_leaf(3, ports=True))
    assert not [one for one in whole.not_covered if one.key == "leaf_ports"]
    plan, _ = planned(with_leaf(3, ports=False))
    (told,) = [one for one in plan.not_covered if one.key == "leaf_ports"]
    assert "leaf0" in told.why
    assert "6 NICs" in told.what
    assert told.cells == sum(map(len, whole.items)) - sum(map(len, plan.items)) > 0


def test_a_part_of_a_site_misses_no_port_of_its_partners():
    """Catches: ports of nodes that are only used, told as left out."""
    plan, _ = planned(with_leaf(5, ports=True), nodes=("n1",))
    assert not [one for one in plan.not_covered if one.key == "leaf_ports"]


@cases(
    "inventory, key, word",
    (document(2), "switches", "no switch is in the inventory"),
    (asking(2, counter_tests=False), "acceptance.counter_tests", "no counter is judged"),
    (asking(3, config={"traffic_class": None}), "acceptance.config.traffic_class", "is empty"),
    (document(2), "acceptance.nccl.server_power", "no BMC is read"),
)
def test_what_no_key_asks_for_is_told_by_its_key(inventory, key, word):
    """Catches: no counters, no switch access, no traffic class, no BMC, and nobody is told."""
    plan, _ = planned(inventory)
    assert [word in one.why for one in plan.not_covered if one.key == key] == [True]


def test_all_pairs_are_what_they_stand_for():
    """Catches: a pair left out, in the wrong order, or counted otherwise than it is iterated."""
    pairs = AllPairs(all_pairs_of=("a", "b", "c"))
    assert tuple(pairs) == (("a", "b"), ("a", "c"), ("b", "c"))
    assert len(pairs) == 3
    assert ("a", "c") in pairs
    assert ("c", "a") not in pairs
    assert ("a", "a") not in pairs
    with pytest.raises(ValueError, match="twice"):
        AllPairs(all_pairs_of=("a", "a"))


def test_a_plan_of_all_pairs_is_read_as_it_was_written(tmp_path):
    """Catches: pairs that are lost or written out on the way through the file."""
    plan, _ = planned(document(5))
    write_plan(tmp_path, plan)
    assert read_record(tmp_path / "plan.json", Plan) == plan
    assert b'"all_pairs_of":["n1"' in (tmp_path / "plan.json").read_bytes()


@cases(
    "change, said",
    (lambda item: [{**item, "nodes": {"all_pairs_of": [f"n{i}" for i in range(MOST_NODES + 1)]}}], "most"),
    (lambda item: [{**item, "nodes": {"all_pairs_of": [f"n{i}" for i in range(9000)]}}] * 2, "share a rail"),
    (lambda item: [item, {**item, "nodes": [["n1", "n2"]]}], "cell planned twice"),
)
def test_a_hostile_plan_of_all_pairs_is_refused_at_once(tmp_path, change, said):
    """Catches: a file of some kilobytes whose millions of pairs keep its reader busy for hours."""
    plan, _ = planned(document(5))
    content = json.loads(plan.model_dump_json(by_alias=True))
    mesh = next(item for item in content["items"] if "all_pairs_of" in item["nodes"])
    content["items"] = change(mesh)
    (tmp_path / "plan.json").write_text(json.dumps(content))
    started = time.process_time()
    refused(said, read_record, tmp_path / "plan.json", Plan)
    assert time.process_time() - started < 5
