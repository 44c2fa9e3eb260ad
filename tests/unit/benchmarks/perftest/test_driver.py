"""The driver with a fake perftest: what it must record when things go wrong, and that it loses nothing."""

import json
import os
import socket
import time

import pytest

from shakedown.benchmarks.perftest.mesh.schedule import blocks_of, drop_superseded, pairs_of
from shakedown.records.base import cell_id
from shakedown.records.plan import PlanItem
from tests.kit.run import python
from tests.unit.benchmarks.perftest.local_mesh import REPOSITORY

pytestmark = pytest.mark.slow  # drivers that wait for each other by the clock


def by_cell(records):
    """Index records by their cell."""
    return {(r.test, r.nodes, r.rail, r.direction, r.params["rails_at_once"]): r for r in records}


def plan_cells(mesh):
    """The cells that the planner would plan from the same specification."""
    spec = mesh.spec
    return {
        cell
        for block in blocks_of(spec)
        for cell, *_ in PlanItem(
            stage="fabric",
            test=block.test,
            metric="bandwidth",
            unit="Gb/s",
            better="higher",
            nodes=tuple(pairs_of(spec)),
            rails=block.rails,
            directions=block.directions,
            params=block.params,
            reference="r",
        ).cells()
    }


def test_odd_mesh_measures_every_planned_cell_once(mesh):
    """Catches: an odd node untested; a cell unlike the plan's; a read the wrong way round; fixed GIDs."""
    local = mesh(
        3,
        rails=2,
        rails_at_once=["one", "all"],
        operations=[
            {"test": "ib_write_bw", "size_bytes": 65536, "duration_s": 1},
            {"test": "ib_read_bw", "size_bytes": 65536, "duration_s": 1},
        ],
    )
    assert set(local.run().values()) == {0}
    records = local.records()
    cells = [cell_id("fabric", r.test, "bandwidth", r.nodes, r.rail, r.direction, r.params) for r in records]
    assert sorted(cells) == sorted(plan_cells(local))
    assert len(cells) == 3 * 2 * 2 * 2 * 2
    assert all(r.exit_code == 0 and r.problem is None and (local.out / r.file).exists() for r in records)
    # Who ran the client wrote the record: the data's source, but of a read its sink.
    clients = {
        (record["test"], record["direction"], tuple(record["nodes"]).index(node))
        for node in local.data["nodes"]
        for record in map(json.loads, (local.out / f"outputs.{node}.jsonl").read_text().splitlines())
    }
    assert clients == {
        ("ib_write_bw", "forward", 0),
        ("ib_write_bw", "reverse", 1),
        ("ib_read_bw", "forward", 1),
        ("ib_read_bw", "reverse", 0),
    }
    # Index 0 is RoCE v1, 1 another address.
    assert local.journal("n1", "start")[0]["gid_index"] == {"rail0": 3, "rail1": 3}


def test_what_has_no_clock_is_measured_again(mesh):
    """Catches: a rate of 0 Gb/s, and a NIC blamed for it, because perftest could not tell its CPU's clock; a
    cell that is measured again counted as a second attempt; and an endless repetition."""
    local = mesh(2, rails=2)
    local.faults = [
        {"node": "n1", "side": "client", "device": "rxe0", "fault": "noclock", "times": 2},
        {"node": "n2", "side": "client", "device": "rxe1", "fault": "noclock", "times": 99},
    ]
    local.run()
    records = {(r.rail, r.direction): r for r in local.records()}
    assert len(records) == len(local.records()) == 4
    mended = records["rail0", "forward"]
    assert (mended.problem, mended.attempt, mended.exit_code) == (None, 1, 0)
    assert "97.25" in (local.out / mended.file).read_text()
    assert len(list(local.out.glob("*rail0.forward*noclock*.txt"))) == 2
    hopeless = records["rail1", "reverse"]
    assert hopeless.problem is not None and hopeless.problem.kind == "environment"
    assert "n2 is too busy" in hopeless.problem.message
    assert records["rail1", "forward"].problem is records["rail0", "reverse"].problem is None
    assert sum(line["repeated"] for n in ("n1", "n2") for line in local.journal(n, "round")) == 2 + 3


def test_hang_crash_and_deaf_server_are_recorded_and_the_rest_is_measured(mesh):
    """Catches: a hung perftest blocking the mesh; a crash read as success; an endless wait for a server."""
    local = mesh(2, rails=3)
    local.faults = [
        {"node": "n1", "side": "client", "device": "rxe0", "fault": "crash"},
        {"node": "n1", "side": "server", "device": "rxe1", "fault": "deaf"},
        {"node": "n2", "side": "client", "device": "rxe2", "fault": "hang"},
    ]
    assert local.run() == {"n1": 3, "n2": 3}
    cells = by_cell(local.records())
    crashed = cells["ib_write_bw", ("n1", "n2"), "rail0", "forward", "one"]
    assert crashed.exit_code == -11 and "exit status -11" in crashed.problem.message
    deaf = cells["ib_write_bw", ("n1", "n2"), "rail1", "reverse", "one"]
    assert deaf.exit_code is None and "n1 does not listen" in deaf.problem.message
    hung = cells["ib_write_bw", ("n1", "n2"), "rail2", "reverse", "one"]
    assert (hung.exit_code, hung.problem.kind) == (None, "killed")
    assert local.spec.timeout_s <= hung.duration_s < local.spec.timeout_s + 5
    assert sum(r.exit_code == 0 for r in cells.values()) == 3


def test_a_port_in_use_is_reported_and_not_dodged(mesh):
    """Catches: measuring against a stranger who listens on our port."""
    local = mesh(2)
    with socket.socket() as squatter:
        squatter.bind(("127.77.1.2", local.data["base_port"]))
        squatter.listen()
        assert local.run() == {"n1": 3, "n2": 0}
    cells = by_cell(local.records())
    spoiled = cells["ib_write_bw", ("n1", "n2"), "rail0", "forward", "one"]
    assert f"port {local.data['base_port']} of n2 is in use" in spoiled.problem.message
    assert cells["ib_write_bw", ("n1", "n2"), "rail0", "reverse", "one"].exit_code == 0


def test_a_second_start_measures_only_what_is_missing(mesh):
    """Catches: a resumed run that repeats good cells (best of two), or passes a retry for a first try."""
    local = mesh(3)
    local.faults = [{"node": "n2", "side": "client", "fault": "crash"}]
    local.run()
    failed = [r for r in local.records() if r.exit_code != 0]
    assert len(failed) == 2  # n2 is the client towards n1 and towards n3
    local.faults = []
    assert set(local.run().values()) == {0}
    records = local.records()
    assert len(records) == 6 + 2
    assert sorted(r.attempt for r in records) == [1] * 6 + [2] * 2
    assert len(drop_superseded(records)) == 8  # a retry hides nothing
    assert local.coverage().complete
    assert all((local.out / r.file).read_text() for r in records if r.exit_code == 0)
    assert [e["skipped"] for e in local.journal("n1", "end")] == [0, 4 - 1]


def test_a_node_that_never_comes_is_named_and_costs_only_its_own_pairs(mesh):
    """Catches: one missing node stopping the mesh, or its cells vanishing without a reason."""
    local = mesh(4)
    assert local.run("n1", "n2", "n4") == {"n1": 3, "n2": 3, "n4": 3}
    cells = by_cell(local.records())
    assert len(cells) == 12
    for (_, nodes, *_), record in cells.items():
        if "n3" in nodes:
            assert record.exit_code is None and "n3 lost" in record.problem.message
        else:
            assert record.exit_code == 0
    assert {e["dropped"] for n in ("n1", "n2", "n4") for e in local.journal(n, "dropped")} == {"n3"}
    covered = local.coverage()
    assert (covered.cells, covered.pairs, covered.rails) == ((6, 12), (3, 6), (0, 1))
    assert {"n3"} <= set.intersection(*({a, b} for a, b, *_ in covered.missing))
    # What was never started is no retry when it is measured at last.
    assert set(local.run().values()) == {0}
    counting = drop_superseded(local.records())
    assert len(counting) == 12
    assert all(r.exit_code == 0 and r.attempt == 1 for r in counting)


def test_a_node_that_dies_mid_measurement_is_dropped_by_all(mesh):
    """Catches: survivors waiting for ever, or blaming each other, when a driver dies without a word."""
    local = mesh(4)
    local.faults = [{"node": "n3", "side": "client", "fault": "hang"}]
    local.data["timeout_s"] = 30
    running = local.start()
    deadline = time.monotonic() + 20
    while not list(local.out.glob("ib_write_bw.n2,n3.rail0.reverse*one.txt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    running["n3"].kill()
    survivors = {node: process for node, process in running.items() if node != "n3"}
    assert set(local.wait(survivors).values()) == {3}
    running["n3"].communicate()
    for record in local.records():
        assert (record.exit_code == 0) or "n3" in record.nodes, record
    others = [r for r in local.records() if "n3" not in r.nodes]
    assert len(others) == 6 and all(r.exit_code == 0 for r in others)
    assert {e["dropped"] for n in survivors for e in local.journal(n, "dropped")} == {"n3"}


def test_a_missing_rail_a_dead_port_and_a_second_version_are_refused_by_name(mesh):
    """Catches: a rail silently left out; results of two perftest versions compared as one."""
    local = mesh(3, rails=2)
    del local.data["nodes"]["n2"]["rails"]["rail1"]
    state = local.sysfs("n3") / "class/infiniband/rxe1/ports/1/state"
    state.write_text("1: DOWN\n")
    local.versions = {"n3": "6.06"}
    assert set(local.run().values()) == {3}
    said = {(r.nodes, r.rail): r.problem and r.problem.message for r in local.records()}
    assert said[("n1", "n2"), "rail0"] is None
    assert said[("n1", "n2"), "rail1"] == "n2 has no rail1"
    assert said[("n1", "n3"), "rail1"] == "n3 rail1: rxe1 port 1 is 1: DOWN"
    assert "two versions" in said[("n1", "n3"), "rail0"]


def test_a_missing_perftest_is_recorded_and_not_an_empty_result(mesh):
    """Catches: a missing program that leaves no trace."""
    local = mesh(2)
    (local.bin / "ib_write_bw").unlink()
    # The machine's own perftest must not step in.
    path = os.environ["PATH"]
    os.environ["PATH"] = "/nonexistent"
    try:
        assert local.run() == {"n1": 3, "n2": 3}
    finally:
        os.environ["PATH"] = path
    assert {r.problem.kind for r in local.records()} == {"missing-tool"}


def test_a_stranger_on_the_control_port_does_not_disturb(mesh):
    """Catches: rubbish, or another job's driver, taken for a partner."""
    local = mesh(2)
    running = local.start("n1")
    deadline = time.monotonic() + 10
    address = ("127.77.0.1", local.data["control_port"])
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, timeout=1) as sock:
                sock.sendall(b'{"type":"hello","session":"other","round":0,"node":"n2"}\n')
                assert b"pong" in sock.recv(1000)
                break
        except OSError:
            time.sleep(0.1)
    for rubbish in (b"\n", b"[1]\n", b"\xff" * 100 + b"\n", b'{"type":"hello","session":null,"round":"0"}\n'):
        with socket.create_connection(address, timeout=1) as sock:
            sock.sendall(rubbish)
    silent = socket.create_connection(address, timeout=1)
    assert local.wait({**running, **local.start("n2")}) == {"n1": 0, "n2": 0}
    silent.close()
    assert all(r.exit_code == 0 for r in local.records())


def test_a_node_outside_the_mesh_is_refused_in_one_line(mesh):
    """Catches: a driver on a wrong node that waits, or dies with a traceback."""
    local = mesh(2)
    assert local.run("n9") == {"n9": 2}
    assert local.errors.count("\n") == 1 and "SLURMD_NODENAME='n9'" in local.errors


def test_the_driver_needs_the_standard_library_only():
    """Catches: an import of the planner's libraries, which compute nodes lack or load for seconds."""
    said = python(
        "-c",
        "import sys, shakedown.benchmarks.perftest.mesh.driver; print(*sys.modules)",
        check=True,
        cwd=REPOSITORY,
    )
    loaded = {name.partition(".")[0] for name in said.stdout.split()}
    assert not loaded & {"pydantic", "numpy", "scipy", "typer", "rich", "mpi4py", "yaml"}
