"""Queue pairs, RDMA-CM and the sweep of sizes: planned, run by the driver, read, held to the order."""

from types import SimpleNamespace

import pytest
from fake_perftest import report

from shakedown.benchmarks.perftest.mesh.perftest import CmListener, argv, listening_by_cm
from shakedown.benchmarks.perftest.mesh.spec import SWEEP, parse_spec
from shakedown.benchmarks.perftest.metrics import moved, perftest
from shakedown.benchmarks.planning import site_of
from shakedown.records.base import cell_id
from shakedown.records.reading import BadInput
from shakedown.records.results import OutputRecord
from shakedown.references.catalogue import Catalogue
from shakedown.references.files import load_catalogue
from shakedown.references.physical import add_physical
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, plan_site
from tests.unit.benchmarks.perftest.local_mesh import LocalMesh
from tests.unit.benchmarks.perftest.test_planned_mesh import output_of

PLAIN = {"test": "ib_write_bw", "size_bytes": 65536, "iterations": 1000}
VARIANTS = {
    "q4": ({"queue_pairs": 4}, {"qps": 4}),
    "rdma-cm": ({"rdma_cm": True}, {"connection": "rdma-cm"}),
    "sweep": ({"sweep": True}, {"sweep": "all-sizes"}),
}


def with_physics(site):
    """The profile `physical` alone."""
    catalogue = Catalogue([])
    add_physical(catalogue, site)
    return catalogue


def planned(*tests, physical=False):
    """Plan and jobs of these tests between two nodes of two rails."""
    inventory = document(2)
    for number, host in enumerate(hosts(inventory), start=1):
        host["acceptance"] = {"perftest": list(tests), "counter_tests": False}
        host["mgmt_ip"] = f"127.77.0.{number}"
        for rail in range(2):
            host["fabric"]["rails"][rail]["subnet"] = f"127.77.{rail + 1}.0/24"
            host["fabric_nics"][rail]["ipv4"] = f"127.77.{rail + 1}.{number}/24"
    site = site_of(inventory, WHERE)
    catalogue = with_physics(site) if physical else load_catalogue(["lab"])
    return plan_site(site, catalogue)


def job_of(jobs, suffix):
    """The one job of a variant."""
    (job,) = (job for job in jobs.jobs if job.name == f"fabric.ib_write_bw.{suffix}")
    return job


def cells_of(plan, params):
    """The cells of the plan that have these parameters, with their items."""
    items = [i for i in plan.items if all(i.params.get(k) == v for k, v in params.items())]
    return sorted(cell for item in items for cell, *_ in item.cells())


@pytest.mark.slow
@pytest.mark.parametrize("suffix", VARIANTS)
def test_a_variant_is_planned_measured_and_read_beside_the_plain_test(tmp_path, suffix):
    """Catches: cells that driver, metrics and plan name otherwise, or that the plain test's job claims."""
    options, params = VARIANTS[suffix]
    plan, jobs = planned(PLAIN, {**PLAIN, **options})
    job = job_of(jobs, suffix)
    mesh = LocalMesh(tmp_path, dict(job.settings))
    assert set(mesh.run().values()) == {0}
    read = [
        cell_id("fabric", r.test, value[0], r.nodes, r.rail, r.direction, {**r.params, **value[4]})
        # The stand-in for perftest takes no time, whatever rate it prints.
        for r in (one.model_copy(update={"duration_s": 60.0}) for one in mesh.records())
        for value in perftest(output_of(mesh.out / r.file, r, job.settings))
    ]
    assert sorted(read) == cells_of(plan, params)
    for item in plan.items:
        for _, nodes, rail, direction in item.cells():
            whose = [j.name for j in jobs.jobs if j.measures(item.test, nodes, rail, direction, item.params)]
            assert len(whose) == 1, (item.params, whose)


def record_of(params):
    """The record of a cell."""
    about = {"schema": 1, "tool": "perftest", "test": "ib_write_bw", "file": "o.txt", "exit_code": 0}
    place = {"nodes": ("n1", "n2"), "rail": "rail0", "direction": "forward"}
    return OutputRecord.model_validate(
        {
            **about,
            **place,
            "params": {"rails_at_once": "one", **params},
            "started": "2026-01-01T00:00:00Z",
            "duration_s": 3,
            "problem": None,
        }
    )


ENDS = ("127.77.1.1", "127.77.1.2")


@cases(
    "suffix, printed, words",
    ("q4", {"qps": 1}, "ran on 1 queue pairs, its record says 4"),
    ("q4", {"qps": 4, "count": 500}, "ran 500 iterations, 1000 were ordered"),
    ("rdma-cm", {"cm": False}, "connected without RDMA-CM, its record says otherwise"),
    ("sweep", {"size": 65536}, "messages of 1 sizes, its record says all 23"),
    ("sweep", {"size": None, "count": 10}, "ran 10 iterations, 1000 were ordered"),
)
def test_what_is_less_than_ordered_is_refused(tmp_path, suffix, printed, words):
    """Catches: one queue pair taken for four, sockets for RDMA-CM, one size for a whole sweep."""
    options, params = VARIANTS[suffix]
    _, jobs = planned({**PLAIN, **options})
    size = printed.pop("size", 65536)
    text = report("ib_write_bw", size, 97.25, ENDS, **printed)
    record = record_of(params if suffix == "sweep" else {"size_bytes": 65536, **params})
    refused(words, list, perftest(output_of(tmp_path / "o.txt", record, job_of(jobs, suffix).settings, text)))


PRINTED = {"plain": {}, "q4": {"qps": 4}, "rdma-cm": {"cm": True}, "sweep": {"size": None}}
PRINTED |= {"both": {"both": True}}


@pytest.mark.parametrize("ordered", PRINTED)
def test_the_output_of_another_variant_is_no_value_of_this_one(tmp_path, ordered):
    """Catches: a row of a sweep, one of both ways or of RDMA-CM counted for the test that was ordered."""
    options, params = {**VARIANTS, "plain": ({}, {}), "both": ({"bidirectional": True}, {})}[ordered]
    _, jobs = planned({**PLAIN, **options})
    record = record_of(params if ordered == "sweep" else {"size_bytes": 65536, **params})
    if ordered == "both":
        record = record.model_copy(update={"direction": "both"})
    for name, printed in PRINTED.items():
        about = {"size": 65536, **printed}
        text = report("ib_write_bw", about.pop("size"), 97.25, ENDS, **about)
        output = output_of(tmp_path / "o.txt", record, jobs.jobs[0].settings, text)
        if name == ordered:
            assert list(perftest(output))
            continue
        refused("its record says", list, perftest(output))


def test_another_type_of_connection_is_refused(tmp_path):
    """Catches: perftest -c UC, which repeats nothing that was lost, taken for the reliable connection."""
    _, jobs = planned(PLAIN)
    text = report("ib_write_bw", 65536, 97.25, ENDS)
    assert "Connection type : RC" in text
    output = output_of(
        tmp_path / "o.txt",
        record_of({"size_bytes": 65536}),
        jobs.jobs[0].settings,
        text.replace("Connection type : RC", "Connection type : UC"),
    )
    refused("type UC, RC was ordered", list, perftest(output))


def test_a_plain_test_that_was_connected_by_rdma_cm_is_refused(tmp_path):
    """Catches: -R taken for the plain test, whose traffic class is another's."""
    _, jobs = planned(PLAIN)
    text = report("ib_write_bw", 65536, 97.25, ENDS, cm=True)
    with pytest.raises(BadInput, match="connected by RDMA-CM"):
        list(
            perftest(
                output_of(tmp_path / "o.txt", record_of({"size_bytes": 65536}), jobs.jobs[0].settings, text)
            )
        )


def test_a_sweep_with_a_row_missing_or_out_of_order_is_refused(tmp_path):
    """Catches: a cut or shuffled table of sizes read as a whole one."""
    _, jobs = planned({**PLAIN, "sweep": True})
    settings = job_of(jobs, "sweep").settings
    lines = report("ib_write_bw", None, 97.25, ENDS).splitlines()
    rows = [n for n, line in enumerate(lines) if line.startswith(" ") and "1000" in line]
    assert len(rows) == len(SWEEP)
    swapped = list(lines)
    swapped[rows[3]], swapped[rows[4]] = swapped[rows[4]], swapped[rows[3]]
    for spoilt in (lines[: rows[5]] + lines[rows[6] :], swapped, lines[: rows[-1]] + lines[rows[-1] + 1 :]):
        output = output_of(tmp_path / "o.txt", record_of(VARIANTS["sweep"][1]), settings, "\n".join(spoilt))
        refused(r"row of|the sweep ends", list, perftest(output))


def test_a_sweep_gives_each_planned_size_its_value_and_counts_all_bytes(tmp_path):
    """Catches: a rate under another size, or a sweep of which only one size must have gone over the NICs."""
    plan, jobs = planned({**PLAIN, "sweep": True})
    job = job_of(jobs, "sweep")
    text = report("ib_write_bw", None, 97.25, ENDS)
    output = output_of(tmp_path / "o.txt", record_of(VARIANTS["sweep"][1]), job.settings, text)
    values = {value[4]["size_bytes"]: value[1] for value in perftest(output)}
    assert values[8388608] == pytest.approx(97.25)
    assert values[65536] == pytest.approx(97.25 * 2 * 65536 / 8388608, rel=1e-4)
    assert set(values) == {item.params["size_bytes"] for item in plan.items}
    assert sum(m.sent for m in moved(output)) == 1000 * sum(SWEEP)


def test_every_size_of_a_sweep_has_physics_where_the_site_uses_it():
    """Catches: sizes left out of a published table although physics bounds them; a small one that gates."""
    plan, _ = planned({**PLAIN, "sweep": True}, physical=True)
    items = {item.params["size_bytes"]: item for item in plan.items}
    assert set(items) == set(SWEEP)
    required = {size for size, item in items.items() if item.required}
    assert 8388608 in required
    assert 2 not in required


@cases(
    "options, words",
    ({"test": "ib_write_lat", "queue_pairs": 4}, "queue_pairs needs a bandwidth test"),
    ({"sweep": True, "iterations": None, "duration_s": 5}, "sweep takes iterations"),
    ({"sweep": True, "size_bytes": 65537}, "sweep takes iterations, and a size_bytes that"),
    ({"queue_pairs": 0}, "queue_pairs"),
    ({"rdma_cm": "perhaps"}, "rdma_cm"),
)
def test_what_perftest_cannot_do_is_refused_when_planned(options, words):
    """Catches: an order that perftest would end with an error on every node."""
    refused(words, planned, {**PLAIN, **options})


def test_each_variant_once():
    """Catches: two jobs that measure one cell."""
    refused("once is enough", planned, {**PLAIN, "sweep": True}, {**PLAIN, "sweep": True, "size_bytes": 1024})


def words_of(**options):
    """The command lines of server and client."""
    _, jobs = planned({**PLAIN, **options})
    spec = parse_spec(dict(jobs.jobs[0].settings))
    device = SimpleNamespace(nic=spec.nodes["n1"].rails["rail0"], gid_index=3)
    return [argv(spec, spec.operations[0], device, 18600, server) for server in (None, "127.77.1.2")]


def test_both_sides_get_the_same_options():
    """Catches: an option of one side alone, on which perftest hangs; a traffic class that -R ignores."""
    for words in words_of(queue_pairs=4):
        assert "--qp=4" in words
    for words in words_of(sweep=True):
        assert "--all" in words and not [word for word in words if word.startswith("--size")]
    for words in words_of(rdma_cm=True):
        assert "--rdma_cm" in words and not [word for word in words if word.startswith("--tclass")]
    for words in words_of():
        assert "--tclass=106" in words


LISTED = """link rxe0/1 cm-idn 1 state LISTEN ps TCP pid 4711 comm ib_write_bw src-addr 0.0.0.0:18600
link rxe0/1 cm-idn 2 lqpn 17 type RC state CONNECT ps TCP comm x src-addr 10.0.0.1:18601 dst-addr 10.0.0.2:7
link rxe0/1 cm-idn 3 state LISTEN ps TCP comm [nvme] src-addr [::]:4420
"""


def test_who_listens_by_rdma_cm_is_read_from_the_tool():
    """Catches: a connected port taken for a listening one, so that a client starts too early."""
    assert listening_by_cm(LISTED) == {18600, 4420}
    assert listening_by_cm("") == set()


def test_without_the_tool_a_server_is_ready_a_while_after_it_opened_the_device(tmp_path, monkeypatch):
    """Catches: a client started before its server, and a wait for a TCP port that never opens."""
    clock = [0.0]
    monkeypatch.setattr("shakedown.benchmarks.perftest.mesh.perftest.time.monotonic", lambda: clock[0])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("shakedown.benchmarks.perftest.mesh.perftest._resources", str)
    listener, fds = CmListener(), tmp_path / "4711/fd"
    fds.mkdir(parents=True)
    for clock[0] in (0.0, 5.0):
        assert not listener.listens(18600, 4711, tmp_path)
    (fds / "7").symlink_to("/dev/infiniband/rdma_cm")
    assert not listener.listens(18600, 4711, tmp_path)
    clock[0] = 5.5
    assert not listener.listens(18600, 4711, tmp_path)
    clock[0] = 6.1
    assert listener.listens(18600, 4711, tmp_path)
