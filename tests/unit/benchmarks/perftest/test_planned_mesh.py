"""The planner's job, run by the driver with a fake perftest: both must speak of the same cells."""

from __future__ import annotations

from local_mesh import LocalMesh

from shakedown.benchmarks.planning import make_plan, site_of
from shakedown.records.base import cell_id
from shakedown.references.files import load_catalogue
from tests.unit.plan.test_planner import WHERE, document


def test_pairs_from_rail_to_rail_are_measured_as_planned(tmp_path):
    """Catches: a cell across rails named otherwise by driver and plan; one that goes over one rail."""
    inventory = document(3)
    for number, host in enumerate(inventory["_meta"]["hostvars"].values(), start=1):
        test = {"test": "ib_read_bw", "size_bytes": 65536, "duration_s": 1, "cross_rail": True}
        host["acceptance"] = {"perftest": [test], "counter_tests": False}
        host["mgmt_ip"] = f"127.77.0.{number}"
        for rail in range(2):  # the driver's nodes are processes of this machine
            host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
            host["fabric_nics"][rail]["ipv4"] = f"127.77.{rail + 1}.{number}/24"
    plan, jobs = make_plan(
        site_of(inventory, WHERE), load_catalogue(["lab"]), run="r1", created="2026-01-01T00:00:00Z"
    )
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
