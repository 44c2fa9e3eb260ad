"""Incast and all-to-all: rounds, plan, the job among processes of this machine, and what is read of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.incast import job
from shakedown.benchmarks.incast.job import rounds_of
from shakedown.benchmarks.incast.output import IncastSettings, incast, moved
from shakedown.benchmarks.planning import site_of
from shakedown.records.base import cell_id
from shakedown.records.results import OutputRecord
from shakedown.references.catalogue import Catalogue
from shakedown.references.of_site import catalogue_of_site
from shakedown.references.physical import add_physical
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, plan_site
from tests.unit.benchmarks.perftest import local_mesh
from tests.unit.benchmarks.perftest.fake_perftest import report

RUNNER = """
import pathlib, sys
from shakedown.benchmarks.incast.job import main
sys.exit(main([sys.argv[3]], sysfs=pathlib.Path(sys.argv[1])))
"""
ASKED = {"patterns": ["incast", "all_to_all"], "senders": 2, "duration_s": 2, "size_bytes": 65536}


def planned(nodes=3, driver=None, **options):
    """Plan and jobs of a site with the profile `physical`."""
    inventory = document(nodes)
    for number, host in enumerate(hosts(inventory), start=1):
        plain = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 1000}
        asked = {"incast": {**ASKED, **options}, "perftest": [plain]}
        host["acceptance"] = {**asked, "counter_tests": False}
        host["mgmt_ip"] = f"127.77.0.{number}"
        for rail in range(2):
            host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
            host["fabric_nics"][rail] |= {"ipv4": f"127.77.{rail + 1}.{number}/24"}
            if driver:
                host["fabric_nics"][rail]["driver"] = driver
    site, catalogue = site_of(inventory, WHERE), Catalogue([])
    add_physical(catalogue, site)
    return plan_site(site, catalogue)


def test_each_receiver_has_its_senders_and_no_node_sends_to_itself():
    """Catches: a node among its own senders, fewer senders than asked, one receiver over and over."""
    nodes = [f"n{i}" for i in range(1, 9)]
    found = rounds_of(nodes, ["rail0", "rail1"], ["incast"], 3, 4)
    assert len(found) == 2 * 4
    receivers = [next(iter(each.senders)) for each in found]
    assert receivers == ["n1", "n3", "n5", "n7"] * 2
    for each in found:
        ((receiver, senders),) = each.senders.items()
        assert receiver not in senders
        assert len(set(senders)) == 3
        assert set(each.partners(receiver)) == set(senders)


@pytest.mark.parametrize("count", range(3, 40))
def test_all_to_all_has_every_node_once_and_no_group_of_two(count):
    """Catches: a node left over without a group, or a group in which nobody is overloaded."""
    nodes = [f"n{i:02}" for i in range(count)]
    (found,) = rounds_of(nodes, ["rail0"], ["all_to_all"], 7, 8)
    assert sorted(found.senders) == nodes
    for node, senders in found.senders.items():
        assert len(senders) >= min(count - 1, 5)
        assert node not in senders
        assert all(node in found.senders[other] for other in senders)  # a group is whole
        assert len(senders) <= 11


def test_two_nodes_are_told_and_not_planned():
    """Catches: an incast of one sender, which overloads nothing and passes."""
    plan, jobs = planned(2)
    assert not [item for item in plan.items if item.test in ("incast", "all_to_all")]
    assert not [one for one in jobs.jobs if one.kind == "incast"]
    assert any("they take three nodes" in caveat for caveat in plan.caveats)


@pytest.mark.parametrize(
    ("driver", "not_run"), [("mlx5_core", None), ("bnxt_en", None), ("rdma_rxe", "counts neither pause")]
)
def test_senders_must_be_held_back_where_it_is_counted(driver, not_run):
    """Catches: PFC that never acted taken for proved, or a site refused for want of a counter."""
    plan, _ = planned(driver=driver)
    held = [item for item in plan.items if item.metric == "held_back"]
    assert {item.test for item in held} == {"incast", "all_to_all"}
    for item in held:
        assert item.required is (not_run is None)
        assert not_run is None or not_run in (item.not_run or "")
    (reference,) = {item.reference for item in held}
    assert plan.references[reference].limit == 1


@pytest.mark.parametrize("incast_asked", [True, False])
def test_pauses_that_an_overload_must_bring_fail_no_nic_and_no_switch(incast_asked):
    """Catches: a healthy site failed for a storm because the senders were paused, as the cell beside asks."""
    inventory = document(3)
    ports = [{"port": f"swp{n}", "host": f"n{n}", "netdev": "fab0", "rail": "rail0"} for n in (1, 2, 3)]
    inventory["switches"] = {"hosts": ["leaf0"]}
    inventory["_meta"]["hostvars"]["leaf0"] = {"roce_switch_nos": "sonic", "leaf_ports": ports}
    plain = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 1000}
    for node in ("n1", "n2", "n3"):
        host = inventory["_meta"]["hostvars"][node]
        asked = {"incast": ASKED} if incast_asked else {}
        host["acceptance"] = {**asked, "perftest": [plain], "profiles": ["roce_switches"]}
        host["fabric"] |= {"system": "acme", "profile": "physical"}
        for nic in host["fabric_nics"]:
            nic["driver"] = "mlx5_core"
    plan, _ = plan_site(inventory, catalogue_of_site(site_of(inventory, WHERE), Path()))
    required = {}
    for item in plan.items:
        if item.metric.startswith("counter.") and item.stage == "fabric":
            required.setdefault((item.test, item.metric.removeprefix("counter.")), set()).add(item.required)
    for name in ("pfc_rx_ppm", "pfc_tx_ppm"):  # SONiC counts no marks
        assert required["switches", name] == {not incast_asked}, name
    assert required["switches", "roce_queue_drops"] == {True}
    assert required["ib_write_bw", "pause.prio3_rx_ppm"] == {True}
    if incast_asked:
        assert required["incast", "pause.prio3_rx_ppm"] == {False}
        # Nothing may be lost, and a receiver has no reason to pause the switch.
        for name in ("rdma.out_of_sequence", "ethtool.rx_discards_phy", "pause.prio3_tx_ppm"):
            assert required["incast", name] == {True}, name


def test_what_comes_in_is_held_to_the_links_ceiling():
    """Catches: a sum of senders beyond what the receiver's link carries, read as a good value."""
    plan, _ = planned()
    (item, *_) = [item for item in plan.items if item.metric == "bandwidth_in"]
    assert 0 < plan.references[item.reference].ceiling < 100


def run(tmp_path, nodes=3, faults=(), **options):
    """Run the planned job with stand-ins for perftest: plan, mesh, exit statuses."""
    plan, jobs = planned(nodes, **options)
    (one,) = (j for j in jobs.jobs if j.kind == "incast")
    settings = json.loads(json.dumps(dict(one.settings)))
    settings |= {"timeout_s": 8, "start_timeout_s": 6, "join_timeout_s": 10, "lost_after_s": 2}
    mesh = local_mesh.LocalMesh(tmp_path, settings)
    mesh.faults = list(faults)
    mesh.out.mkdir()
    (mesh.out / "spec.json").write_text(json.dumps(settings))
    (tmp_path / "faults.json").write_text(json.dumps(mesh.faults))
    running = {}
    for node in settings["nodes"]:
        env = {"PATH": f"{mesh.bin}:{os.environ['PATH']}", "PYTHONPATH": str(local_mesh.REPOSITORY)}
        env |= {"SLURMD_NODENAME": node, "FAKE_FAULTS": str(tmp_path / "faults.json")}
        words = [sys.executable, "-c", RUNNER, str(mesh.sysfs(node)), "-", str(mesh.out)]
        running[node] = subprocess.Popen(
            words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    return plan, settings, mesh, mesh.wait(running, 90)


@pytest.mark.slow
def test_the_job_measures_what_is_planned(tmp_path):
    """Catches: cells that job and plan name otherwise; a sender that is left out of the sum."""
    plan, _, mesh, statuses = run(tmp_path)
    assert set(statuses.values()) == {0}, mesh.errors
    records = mesh.records()
    assert all(r.exit_code == 0 and r.problem is None for r in records), [r.problem for r in records]
    cells = [
        cell_id("fabric", r.test, value[0], r.nodes, r.rail, r.direction, r.params)
        for r in records
        for value in (("bandwidth_in",), ("held_back",))
    ]
    items = [item for item in plan.items if item.test in ("incast", "all_to_all")]
    assert sorted(cells) == sorted(cell for item in items for cell, *_ in item.cells())
    for record in records:
        note = json.loads((mesh.out / record.file).read_text())
        assert len(note["files"]) == 2
        assert all((mesh.out / name).stat().st_size for name in note["files"].values())
    assert not list(mesh.out.glob("*.server.txt"))


@pytest.mark.slow
def test_a_sender_that_fails_leaves_its_receiver_without_a_value_and_says_who(tmp_path):
    """Catches: the sum of the others taken for the whole, which a lost sender would lower or hide."""
    faults = [{"node": "n2", "side": "client", "fault": "crash"}]
    _, _, mesh, statuses = run(tmp_path, faults=faults, patterns=["incast"])
    assert statuses["n2"] == 0  # n2's own cells are received well
    assert statuses["n1"] == statuses["n3"] == 3
    told = {r.nodes[0]: r.problem for r in mesh.records() if r.rail == "rail0"}
    assert told["n2"] is None
    assert "n2: " in told["n1"].message
    assert "n2: " in told["n3"].message


@pytest.mark.slow
def test_a_server_that_does_not_listen_stops_its_round_alone(tmp_path):
    """Catches: senders that start although one of them cannot, so that nobody is overloaded."""
    faults = [{"node": "n1", "side": "server", "device": "rxe0", "fault": "deaf"}]
    _, _, mesh, _ = run(tmp_path, faults=faults, patterns=["incast"])
    for record in mesh.records():
        broken = (record.nodes, record.rail) == (("n1",), "rail0")
        assert (record.problem is not None) is broken, record
        if broken:
            assert "does not listen" in record.problem.message


@cases(
    "node, spec, words",
    ("n9", None, "is not among those that send"),
    ("n1", {"crowd": {"patterns": "incast"}}, "crowd: not who sends to whom"),
    ("n1", [], "the specification is not an object|crowd"),
)
def test_a_wrong_order_is_one_line(tmp_path, monkeypatch, capsys, node, spec, words):
    """Catches: a traceback, or a job that measures something else than was ordered."""
    _, jobs = planned()
    settings = dict(jobs.jobs[-1].settings)
    document_ = {**settings, **spec} if isinstance(spec, dict) else settings if spec is None else spec
    (tmp_path / "spec.json").write_text(json.dumps(document_))
    monkeypatch.setenv("SLURMD_NODENAME", node)
    assert job.main([str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert any(word in err for word in words.split("|")), err


def output_of(held, rates=(40.0, 45.0), ends=None, files=None, receiver="n1"):
    """The note of n1, to which n2 and n3 send, with their outputs."""
    _, jobs = planned()
    order = IncastSettings.model_validate(dict(jobs.jobs[-1].settings))
    texts = {}
    for number, rate in zip((2, 3), rates, strict=True):
        own = (ends or {}).get(f"n{number}", f"127.77.1.{number}")
        texts[f"o{number}.txt"] = report("ib_write_bw", 65536, rate, (own, "127.77.1.1"), seconds=2)
    note = {"schema": 1, "receiver": receiver, "rail": "rail0"}
    note |= {"files": files or {"n2": "o2.txt", "n3": "o3.txt"}, "held": held}
    record = OutputRecord.model_validate(
        {
            "schema": 1,
            "tool": "incast",
            "test": "incast",
            "file": "incast.n1.rail0.json",
            "nodes": ("n1",),
            "rail": "rail0",
            "params": {"size_bytes": 65536, "senders": 2},
            "exit_code": 0,
            "started": "2026-01-01T00:00:00Z",
            "duration_s": 3,
            "problem": None,
        }
    )
    folder = SimpleNamespace(
        path=Path("/job"), text=texts.__getitem__, once=lambda read, name: read(Path("/job"), name)
    )
    return Output(text=json.dumps(note), record=record, order=order, folder=folder)


MARKS = {"n1": {"rdma.np_ecn_marked_roce_packets": 812}, "n2": {"ethtool.rx_prio3_pause": 5}, "n3": {}}


def test_the_sum_of_all_senders_and_what_held_them_back():
    """Catches: one sender's rate taken for the sum, and pauses of the senders that are not counted."""
    sums, held = incast(output_of(MARKS))
    assert sums[:3] == ("bandwidth_in", pytest.approx(85.0), "Gb/s")
    assert "the slowest is n2 with 40 Gb/s" in sums[5]
    assert (held.metric, held.value) == ("held_back", 817.0)
    assert "rdma.np_ecn_marked_roce_packets 812" in held.detail


def test_nothing_held_back_is_zero_and_not_silence():
    """Catches: PFC and ECN that did nothing under overload, told as not counted."""
    quiet = {node: dict.fromkeys(names, 0) for node, names in MARKS.items()}
    _, held = incast(output_of(quiet))
    assert (held.value, held.problem) == (0.0, None)


def test_a_nic_that_counts_nothing_of_it_decides_nothing():
    """Catches: zero read of Soft-RoCE, which has no such counter, as PFC that did nothing."""
    _, held = incast(output_of({"n1": {}, "n2": {}, "n3": {}}))
    assert held.value is None
    assert held.problem.kind == "not-run"


@cases(
    "spoil, words",
    ({"receiver": "n4"}, "another receiver, rail or senders"),
    ({"files": {"n2": "o2.txt"}}, "another receiver, rail or senders"),
    ({"files": {"n2": "o2.txt", "n9": "o3.txt"}}, "another receiver, rail or senders"),
    ({"files": {"n2": "o3.txt", "n3": "o3.txt"}}, "of this test is"),
    ({"ends": {"n3": "127.77.2.3"}}, "of this test is"),
)
def test_a_note_that_is_not_of_what_was_ordered_is_refused(spoil, words):
    """Catches: one sender counted twice, a sender left out, or the output of another rail in the sum."""
    refused(words, list, incast(output_of(MARKS, **spoil)))


def test_every_sender_must_have_moved_its_part():
    """Catches: a sum that no NIC has carried."""
    found = list(moved(output_of(MARKS)))
    assert {m.node for m in found if m.sent} == {"n2", "n3"}
    assert {m.node for m in found if m.received} == {"n1"}
