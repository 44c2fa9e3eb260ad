"""A run of one real job, for all that is read of it."""

import json
import shutil

import pytest

from shakedown.records.base import to_json
from tests.kit.job import leave_the_rest, write_job
from tests.kit.site import document, hosts, plan_site
from tests.unit.collect.test_collect import GOLDEN


@pytest.fixture
def run(tmp_path):
    """A run of one fabric job, as it lies on disk after the job ended well."""
    inventory = document()
    for host in hosts(inventory):
        host["acceptance"]["mpi"] = {}
        host["acceptance"]["perftest"][0]["iterations"] = 300  # as the recorded job ran
    plan, jobs = plan_site(inventory)
    folder = tmp_path / "r1"
    job = folder / "raw" / "fabric.ib_write_bw.a1"
    shutil.copytree(GOLDEN, job)
    (folder / "plan.json").write_bytes(to_json(plan))
    (folder / "jobs.json").write_bytes(to_json(jobs))
    for node in ("n1", "n2"):
        for when, more in (("before", 0), ("after", 5000)):
            counters = json.loads((GOLDEN / "counters.n1.before.json").read_text())
            counters |= {"node": node, "when": when}
            for device in counters["devices"]:
                device["counters"]["rdma.rcvd_pkts"] += more
                # Two outputs each way of 300 messages of 64 KiB, and their headers.
                device["counters"]["netdev.rx_bytes"] += 8000 * more
                device["counters"]["netdev.tx_bytes"] += 8000 * more
            (job / f"counters.{node}.{when}.json").write_text(json.dumps(counters))
    write_job(job, nodes=["n1", "n2"])
    leave_the_rest(folder)
    return folder
