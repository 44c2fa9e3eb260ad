"""The planner's job, run by the driver with a fake perftest: both must speak of the same cells."""

from types import SimpleNamespace

import pytest
from fake_perftest import report

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.perftest.mesh.perftest import argv
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.benchmarks.perftest.metrics import moved, perftest
from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.records.base import cell_id
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder
from tests.kit.refusal import refused
from tests.kit.site import document, hosts, plan_site
from tests.unit.benchmarks.perftest.local_mesh import LocalMesh


@pytest.mark.slow
def test_pairs_from_rail_to_rail_are_measured_as_planned(tmp_path):
    """Catches: a cell across rails named otherwise by driver and plan; one that goes over one rail."""
    inventory = document(3)
    for number, host in enumerate(hosts(inventory), start=1):
        test = {"test": "ib_read_bw", "size_bytes": 65536, "duration_s": 1, "cross_rail": True}
        host["acceptance"] = {"perftest": [test], "counter_tests": False}
        host["mgmt_ip"] = f"127.77.0.{number}"
        for rail in range(2):  # the driver's nodes are processes of this machine
            host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
            host["fabric_nics"][rail]["ipv4"] = f"127.77.{rail + 1}.{number}/24"
    plan, jobs = plan_site(inventory)
    (job,) = jobs.jobs
    mesh = LocalMesh(tmp_path, dict(job.settings))
    assert set(mesh.run().values()) == {0}
    records = mesh.records()
    measured = [
        cell_id("fabric", r.test, "bandwidth", r.nodes, r.rail, r.direction, r.params) for r in records
    ]
    assert sorted(measured) == sorted(cell for item in plan.items for cell, *_ in item.cells())
    assert len(measured) == 3 * 4 * 2
    # The fake's server listens at the address of the device that it was given: another NIC is not reached.
    assert all(r.exit_code == 0 and r.problem is None for r in records)


def both_ways(nodes=2, **options):
    """Plan and jobs of ib_write_bw -b beside ib_write_bw one way."""
    inventory = document(nodes)
    one = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 1000}
    for number, host in enumerate(hosts(inventory), start=1):
        tests = [one, {**one, "bidirectional": True, **options}]
        host["acceptance"] = {"perftest": tests, "counter_tests": False}
        host["mgmt_ip"] = f"127.77.0.{number}"
        for rail in range(2):
            host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
            host["fabric_nics"][rail]["ipv4"] = f"127.77.{rail + 1}.{number}/24"
    return plan_site(inventory)


def test_both_ways_at_once_are_planned_measured_and_read(tmp_path):
    """Catches: a bidirectional test run one way, or whose cells the driver and the metrics name otherwise."""
    plan, jobs = both_ways()
    (job,) = (job for job in jobs.jobs if job.name == "fabric.ib_write_bw.both")
    mesh = LocalMesh(tmp_path, dict(job.settings))
    assert set(mesh.run().values()) == {0}
    records = mesh.records()
    values = [
        (cell_id("fabric", r.test, value[0], r.nodes, r.rail, r.direction, r.params), value[1])
        for r in records
        for value in perftest(output_of(mesh.out / r.file, r, job.settings))
    ]
    items = [item for item in plan.items if item.metric == "bandwidth_both"]
    assert sorted(cell for cell, _ in values) == sorted(cell for item in items for cell, *_ in item.cells())
    assert {value for _, value in values} == {194.5} and len(values) == 2


def output_of(file, record, settings, text=""):
    """An output as metrics receive it."""
    order = MeshSettings.model_validate(settings)
    return Output(text=text or file.read_text(), record=record, order=order, folder=JobFolder(file.parent))


def test_one_way_and_both_ways_have_a_reference_each():
    """Catches: the sum of both ways held to the reference of one, which half of it passes."""
    plan, jobs = both_ways()
    metrics = {item.metric: item for item in plan.items if item.test == "ib_write_bw"}
    assert metrics["bandwidth"].directions == ("forward", "reverse")
    assert metrics["bandwidth_both"].directions == ("both",)
    one, both = (plan.references[metrics[name].reference] for name in ("bandwidth", "bandwidth_both"))
    assert both.ceiling == pytest.approx(2 * one.ceiling)
    assert len({job.name for job in jobs.jobs}) == len(jobs.jobs)


@pytest.mark.parametrize("options", [{"cross_rail": True}, {"test": "ib_write_lat"}])
def test_what_has_no_both_ways_is_refused(options):
    """Catches: a latency or a way across rails asked for both ways, and measured as something else."""
    refused("bidirectional needs a bandwidth test between NICs of one rail", both_ways, **options)


@pytest.mark.parametrize(("count", "fits"), [(4_000_000, True), (8_000_000, False)])
def test_a_time_counts_the_iterations_of_one_side(tmp_path, count, fits):
    """Catches: a good bidirectional test refused as half as long as ordered, or a doubled one taken.

    perftest adds both sides' bandwidths and prints the client's own iterations (print_full_bw_report).
    """
    _, jobs = both_ways(duration_s=40, iterations=None)
    (job,) = (job for job in jobs.jobs if job.name == "fabric.ib_write_bw.both")
    ends = ("127.77.1.1", "127.77.1.2")
    gbps = 2 * 4_000_000 * 65536 * 8 / 20 / 1e9  # each side's 4 million messages in the 20 s that count
    text = report("ib_write_bw", 65536, gbps, ends, both=True).replace("      1000  ", f"      {count}  ")
    params = {"size_bytes": 65536, "rails_at_once": "one"}
    about = {"schema": 1, "tool": "perftest", "test": "ib_write_bw", "file": "o.txt", "exit_code": 0}
    place = {"nodes": ("n1", "n2"), "rail": "rail0", "direction": "both", "params": params}
    record = OutputRecord.model_validate(
        {**about, **place, "started": "2026-01-01T00:00:00Z", "duration_s": 40, "problem": None}
    )
    output = output_of(tmp_path / "o.txt", record, job.settings, text)
    if not fits:
        refused("this test counted over", list, perftest(output))
        return
    ((metric, value, *_),) = perftest(output)
    assert (metric, value) == ("bandwidth_both", pytest.approx(gbps, rel=1e-6))
    # Each node must have sent, and received, its own four million messages.
    whole = 4_000_000 * 65536
    sent = {node: sum(m.sent for m in moved(output) if m.node == node) for node in ("n1", "n2")}
    received = {node: sum(m.received for m in moved(output) if m.node == node) for node in ("n1", "n2")}
    assert sent == received == {"n1": whole, "n2": whole}


def test_both_sides_are_told_to_send():
    """Catches: -b given to the client alone, on which perftest ends with an error."""
    _, jobs = both_ways()
    for name, wanted in (("fabric.ib_write_bw", False), ("fabric.ib_write_bw.both", True)):
        (job,) = (job for job in jobs.jobs if job.name == name)
        spec = parse_spec(dict(job.settings))
        nic = spec.nodes["n1"].rails["rail0"]
        device = SimpleNamespace(nic=nic, gid_index=3)
        for server in (None, "127.77.1.2"):
            words = argv(spec, spec.operations[0], device, 18600, server, both=spec.directions == ("both",))
            assert ("--bidirectional" in words) is wanted


def test_a_site_that_wants_first_results_to_decide_has_no_rule():
    """Catches: `measure_again: false` that the plan or the driver's order ignores, or as the default."""
    for asked in ({}, {"measure_again": True}, {"measure_again": False}):
        inventory = document(3)
        for host in hosts(inventory):
            test = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 1000}
            host["acceptance"] = {"perftest": [test], "counter_tests": False, **asked}
        plan, jobs = plan_site(inventory)
        ruled = asked.get("measure_again", True)
        assert (plan.remeasure is not None) is ruled
        assert [(job.settings.get("remeasure") is not None) for job in jobs.jobs] == [ruled]
