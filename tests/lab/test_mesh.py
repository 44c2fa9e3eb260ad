"""The mesh on three virtual nodes: faults on a switch port, a NIC and a node, and a node that dies.

`pytest tests/lab/test_mesh.py --repetitions 3` plants every fault three times, in one lab.
"""

import json
import threading
import time

import pytest
from conftest import NAME, converged, inventory_with

from lab.acceptance import BIN
from tests.kit.run import ran

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

NODES = ("n1", "n2", "n3")
# Four bandwidth and three latency matrices: with two rails and the noise of emulated nodes (20 %), fewer
# cannot tell a bad NIC from bad luck. A packet that a ping-pong loses costs 0.5 s (qp_timeout), so they
# are short.
ACCEPTANCE = {
    "perftest": [
        {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 200, "rails_at_once": ["one", "all"]},
        {"test": "ib_read_bw", "size_bytes": 65536, "iterations": 200, "rails_at_once": ["one", "all"]},
        {"test": "ib_write_lat", "size_bytes": 64, "iterations": 100, "rails_at_once": ["one", "all"]},
        {"test": "ib_send_lat", "size_bytes": 64, "iterations": 100},
    ],
    "measurement_timeout_s": 90,
    "qp_timeout": 17,
}
# What is planted on egress of a node's own NIC, as tc(8) takes it.
QDISCS = {
    "rate": "tbf rate 30mbit burst 64kb limit 16mb",
    "loss": "netem loss 4%",
    "delay": "netem delay 40ms limit 100000",
}


@pytest.fixture(scope="module")
def mesh_site(tmp_path_factory):
    """A lab of three compute nodes of its own, with a shorter plan."""
    folder = tmp_path_factory.mktemp("mesh")
    inventory = inventory_with(folder, acceptance={"acceptance": ACCEPTANCE})
    with converged(len(NODES), f"{NAME}3", folder, inventory) as made:
        yield made


@pytest.fixture
def mesh(mesh_site):
    """That lab as it was right after the playbook."""
    mesh_site.restore()
    return mesh_site


def causes_of(run):
    """Whom the mesh blames, as `shakedown localise` prints it."""
    done = ran(BIN / "shakedown", "localise", run, "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    found = json.loads(done.stdout)
    return done.returncode, [c for c in found["causes"] if c["blamed"]], found


def plant(site, kind, place):
    """Plant a fault of some kind on n2: on its leaf port, on its NIC, or on both NICs."""
    if place == "port":
        values = {"rate": 30, "loss": 4, "delay": 40}
        getattr(site.lab, f"fault_{kind}")("n2", "rail0", values[kind])
        return
    for netdev in ("fab0",) if place == "nic" else ("fab0", "fab1"):
        command = ["sh", "-c", f"tc qdisc replace dev {netdev} root {QDISCS[kind]}"]
        done = site.lab.ssh("n2", command)
        assert done.returncode == 0, done.stderr


def test_a_healthy_full_mesh_covers_every_pair_and_blames_nobody(mesh):
    """Catches: a pair, rail or direction left out, and good hardware blamed."""
    status, verdict, run = mesh.accept("mesh-healthy", "fabric")
    assert (status, verdict["outcome"]) == (0, "PASS"), (verdict["reason"], verdict["cells"][:5])
    pairs = {
        tuple(json.loads(line)["nodes"])
        for path in (run / "raw").glob("fabric.*/outputs.*.jsonl")
        for line in path.read_text().splitlines()
    }
    assert pairs == {("n1", "n2"), ("n1", "n3"), ("n2", "n3")}
    status, blamed, found = causes_of(run)
    assert (status, blamed) == (0, []), found


@pytest.mark.parametrize("place", ["port", "nic", "node"])
@pytest.mark.parametrize("kind", ["rate", "loss", "delay"])
def test_a_planted_fault_is_named(kind, place, mesh):
    """Catches: the wrong node, rail or direction accused, and a fault that nobody is accused of."""
    plant(mesh, kind, place)
    _, verdict, run = mesh.accept(f"mesh-{kind}-{place}", "fabric")
    status, blamed, found = causes_of(run)
    assert status == 1, (kind, place, found)
    assert {c["node"] for c in blamed} == {"n2"}, (kind, place, found)
    assert "n2" in verdict["reason"], verdict["reason"]
    if place == "node":
        rails = {c["rail"] for c in blamed}
        assert "node" in {c["kind"] for c in blamed} or rails == {"rail0", "rail1"}, found
        return
    assert {c["rail"] for c in blamed} == {"rail0"}, (kind, place, found)
    assert {c["kind"] for c in blamed} <= {"nic", "port", "cable"}, found
    # The port that the cable ends in is part of the evidence.
    assert "leaf0:swp2" in json.dumps(blamed), found
    if kind == "rate":  # what is slow one way only
        assert blamed[0]["direction"] == {"port": "rx", "nic": "tx"}[place], found


def test_a_node_that_dies_in_the_mesh_costs_its_own_cells(mesh):
    """Catches: Slurm killing what the others measure, a dead node named nowhere, and its partners blamed."""
    began: list[str] = []
    name = mesh.unused("mesh-killed")

    def kill() -> None:
        look = f'grep -l \'"event":"round"\' /shared/shakedown/runs/{name}/raw/fabric.*/journal.*.jsonl'
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline and not began:
            began.extend(mesh.lab.ssh("head", ["sh", "-c", look]).stdout.split()[:1])
            time.sleep(1)
        if began:
            mesh.lab.fault_kill("n3")

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    status, verdict, run = mesh.accept(name, "fabric")
    killer.join()
    assert began, "no round of the mesh was seen to end"
    assert (status, verdict["outcome"]) == (3, "INCONCLUSIVE"), verdict["reason"]
    assert not verdict["outcomes"].get("FAIL"), [c for c in verdict["cells"] if c["outcome"] == "FAIL"]
    job = began[0].split("/")[-2]
    record = json.loads((run / "raw" / job / "job.json").read_text())
    assert (record["state"], record["problem"]) == ("COMPLETED", None), record
    test = record["test"].partition(".")[2]
    mine = {c["cell"]: c["reason"] for c in verdict["cells"] if f"/{test}/" in c["cell"]}
    pairs = {cell: reason for cell, reason in mine.items() if "counter." not in cell}
    assert pairs, verdict["reason"]
    assert all("n3" in cell for cell in pairs), pairs  # n1 and n2 were measured to the end
    # All but those that were under way.
    assert sum("n3 lost" in reason for reason in pairs.values()) >= len(pairs) - 2, pairs
    status, blamed, found = causes_of(run)
    assert {c["node"] for c in blamed} <= {"n3"}, found
