"""Which way MPI's messages went and where its ranks ran, from plan to verdict; srun is faked."""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shakedown.benchmarks.base.contract import Output
from shakedown.benchmarks.mpi import job
from shakedown.benchmarks.mpi.benchmark import BENCHMARK
from shakedown.benchmarks.mpi.output import Lane, MpiSettings, UcxLog, judge_way, moved, mpi, parse_ucx_log
from shakedown.benchmarks.registry import Acceptance
from shakedown.intent.site import Site
from shakedown.onnode import pin
from shakedown.records.base import Stage
from shakedown.records.reading import BadInput
from shakedown.records.results import OutputRecord
from shakedown.references.files import load_catalogue
from shakedown.run.nic_counters import JobFolder
from tests.kit import records
from tests.kit.cases import cases
from tests.kit.job import write_counters
from tests.kit.refusal import refused
from tests.kit.run import collected, python, raw_of, write_run
from tests.kit.site import lab_fabric, nic, plan_site

PROFILE = (Path(__file__).parent / "profiles/mpi_way.yml").read_text()
# As srun would run it: one rank for each node of the job, with what it prints and what UCX logs.
SRUN = """
import json, os, sys
for node in ("n1", "n2"):
    log = os.environ["UCX_LOG_FILE"].replace("%h", node).replace("%p", "7")
    with open(log, "w") as file:
        for text in WAYS.get(node, []):
            file.write(f"[1700000000.000001] [{node}:7:0]      ucp_worker.c:1903 UCX  INFO  {text}\\n")
sys.stderr.write(LAYER)
header = {"type": "header", "mpi": "Open MPI", "hosts": ["n1", "n2"], "sizes": [8]}
print(json.dumps({**header, "iterations": 5, "warmup": 2}))
print(json.dumps({"type": "row", "size_bytes": 8, "time_us": 9.0, "algbw_gb_per_s": 1.0,
                  "busbw_gb_per_s": 1.0, "wrong": 0}))
"""
SELF = "ucp_context_0 self cfg#0 tag(self/memory cma/memory)"
RC = "ucp_context_0 inter-node cfg#1 tag(rc_verbs/rxe0:1) ka(ud_verbs/rxe0:1)"
TCP = "ucp_context_0 inter-node cfg#1 tag(tcp/eth0)"


def site(**mpi):
    """Two nodes with one NIC each."""
    asked = {"allreduce": {"min_bytes": 8, "max_bytes": 8, "iterations": 5}, **mpi}
    nics = {node: (nic(0, "eth0", "rxe0", f"10.0.0.{i}"),) for i, node in enumerate(("n1", "n2"), 1)}
    return Site(
        fabric=lab_fabric(1, profile="mpi"),
        acceptance=Acceptance(mpi=asked, counter_tests=False),
        nics=nics,
        addresses={"n1": "10.20.0.1", "n2": "10.20.0.2"},
    )


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Plan a run of two nodes, run its job with a made-up srun, and return cells by their last part."""

    def run(ways, layer="", notes=(), fails="", counted=10_000, **mpi):
        file = tmp_path / "mpi.yml"
        file.write_text(PROFILE)
        plan, jobs = plan_site(site(**mpi), [file])
        # The collective stage alone: the others' machines are not there.
        plan = plan.model_copy(update={"items": tuple(i for i in plan.items if i.stage == "collective")})
        (spec,) = (one for one in jobs.jobs if one.kind == "mpi_allreduce")
        jobs = jobs.model_copy(update={"jobs": (spec,)})
        folder = tmp_path / "r1"
        state = {"state": "FAILED", "exit_code": "1:0"} if fails else {}
        raw = raw_of(write_run(folder, plan, jobs), spec, nodes=["n1", "n2"], **state)
        (raw / "spec.json").write_text(json.dumps(spec.settings))
        now = [(datetime.now(UTC) + timedelta(seconds=s)).isoformat() for s in (0, 1)]
        write_counters(raw, ["n1", "n2"], counted, (now[0], now[1]))
        for note in notes:
            (raw / f"pinned.{note['node']}.{note['rank']}.json").write_text(json.dumps(note))
        for name, value in BENCHMARK.jobs["mpi_allreduce"].launch(spec, raw).variables.items():
            monkeypatch.setenv(name, value)
        program = f"WAYS = {ways!r}\nLAYER = {layer!r}\n{SRUN}\n{fails}"
        status = job.main([str(raw), "mpi_allreduce", "n1,n2", "--", sys.executable, "-c", program])
        verdict = collected(folder)
        # A verdict lists what did not pass.
        found = {cell.cell: (cell.outcome.value, cell.reason) for cell in verdict.cells}
        checks = [item for item in plan.items if item.test.endswith("_transport")]
        cells = {
            str(item.params["check"]): found.get(cell, ("PASS", ""))
            for item in checks
            for cell, *_ in item.cells()
        }
        return verdict, cells, status

    return run


def outcomes(cells):
    """Outcome of each check."""
    return {name: outcome for name, (outcome, _) in cells.items()}


def test_rc_as_planned_passes(measured, tmp_path):
    """Catches: a job that does not record what UCX chose; keepalive's datagrams taken for the way of data."""
    verdict, cells, status = measured({node: [SELF, RC] for node in ("n1", "n2")})
    assert (status, outcomes(cells)) == (0, {"network": "PASS", "nics": "PASS"})
    # Nothing else is open but the all-reduce, whose made-up rate is not that of its time.
    assert {cell.cell.split("/")[1] for cell in verdict.cells} == {"mpi_allreduce"}
    raw = tmp_path / "r1/raw/collective.mpi_allreduce.a1"
    assert (raw / "mpi_allreduce_transport.log").read_text().count("rc_verbs/rxe0:1") == 2
    assert not list(raw.glob("ucx.*"))


def test_a_nic_that_ucx_names_and_that_carried_nothing_does_not_pass(measured):
    """Catches: a PASS over a dead rail, whose addresses the kernel sends over another one."""
    verdict, cells, _ = measured({node: [SELF, RC] for node in ("n1", "n2")}, counted=7)
    assert (verdict.outcome, outcomes(cells)) == ("INCONCLUSIVE", {"network": "PASS", "nics": "INCONCLUSIVE"})
    assert "n1 rxe0: by the outputs of this job it sent 40 bytes, the NIC counted 7 bytes" in cells["nics"][1]


def test_tcp_does_not_pass_for_rc(measured):
    """Catches: TCP fallback of one node certified as RDMA."""
    verdict, cells, _ = measured({"n1": [SELF, RC], "n2": [SELF, TCP]})
    assert (verdict.outcome.value, outcomes(cells)["network"]) == ("FAIL", "FAIL")
    assert "MPI all-reduce on n1 and n2 does not run as planned" in verdict.reason
    assert "UCX chose tcp/eth0 on n2, rc wanted: TCP fallback, no RDMA" in verdict.reason


def test_tcp_where_it_is_planned_passes(measured):
    """Catches: a site that says TCP and cannot pass, or whose messages go over the management network."""
    ways = {node: [SELF, TCP] for node in ("n1", "n2")}
    assert outcomes(measured(ways, transport="tcp")[1]) == {"network": "PASS", "nics": "PASS"}


def test_another_network_is_named(measured):
    """Catches: MPI over the management network, counted as the fabric."""
    ways = {node: [TCP.replace("eth0", "mgmt0")] for node in ("n1", "n2")}
    _, cells, _ = measured(ways, transport="tcp")
    assert outcomes(cells) == {"network": "PASS", "nics": "FAIL"}
    assert "UCX uses tcp/mgmt0 on n1, n2, no planned device of the fabric" in cells["nics"][1]


@cases(
    "ways, layer, outcome, words",
    ({}, "[n1:7] select: component ob1 selected\n", "FAIL", "OpenMPI chose its layer ob1 and not UCX"),
    ({}, "[n1:7] selected ob1 best priority 20\n", "FAIL", "set OMPI_MCA_pml=ucx"),
    ({}, "", "INCONCLUSIVE", "is OpenMPI built with UCX"),
    ({"n1": [RC]}, "", "INCONCLUSIVE", "1 of 2 nodes told their way"),
)
def test_without_proof_nothing_passes(measured, ways, layer, outcome, words):
    """Catches: a run that says nothing of its way, or that never used UCX, passed as RC."""
    verdict, cells, _ = measured(ways, layer)
    assert (verdict.outcome.value, cells["network"][0]) == (outcome, outcome)
    assert words in cells["network"][1]


def test_ucx_says_itself_why_it_could_not(measured, tmp_path):
    """Catches: a start that failed in UCX, recorded as an exit status and no reason."""
    line = (
        "[1700000000.000001] [n1:7:0]  select.c:639  UCX  ERROR   no auxiliary transport to n2: Unreachable"
    )
    log = "os.environ['UCX_LOG_FILE'].replace('%h', 'n1').replace('%p', '9')"
    verdict, _, status = measured({}, fails=f"open({log}, 'w').write({line!r})\nsys.exit(1)")
    assert (status, verdict.outcome.value) == (1, "INCONCLUSIVE")
    # The record of the benchmark itself says it, not only that of the log.
    first = (tmp_path / "r1/raw/collective.mpi_allreduce.a1/outputs.jsonl").read_text().splitlines()[0]
    assert "UCX says: no auxiliary transport to n2: Unreachable" in json.loads(first)["problem"]["message"]


def note(node, runs, wanted=(2, 3), by="rankfile"):
    """What a rank notes."""
    return {"schema": 1, "node": node, "rank": 0, "by": by, "wanted": list(wanted), "runs": list(runs)}


def test_a_way_that_is_not_as_planned_is_named_and_mpi_is_not_started(tmp_path, monkeypatch):
    """Catches: MPI's own error, without node and rail, where an address or an MTU is wrong."""
    (tmp_path / "spec.json").write_text(json.dumps({"paths": {"n1": [], "n2": []}}))
    said = {"kind": "environment", "message": "n2 fab1 (rail1): it is down"}
    monkeypatch.setattr(job.tcp_paths, "look", lambda _, spec: said if spec["paths"] else None)
    status = job.main([str(tmp_path), "mpi_allreduce", "n1,n2", "--", "/no/such/program"])
    lines = [json.loads(line) for line in (tmp_path / "outputs.jsonl").read_text().splitlines()]
    assert status == BENCHMARK.jobs["mpi_allreduce"].also_good == 3
    assert [(line["tool"], line["test"], line["problem"]) for line in lines] == [
        ("mpi", "mpi_allreduce", said),
        ("mpi-log", "mpi_allreduce_transport", said),
    ]
    assert all((tmp_path / line["file"]).read_text() == "" for line in lines)


@cases(
    "notes, outcome, words",
    ([note("n1", (2, 3)), note("n2", (2,))], "PASS", ""),
    (
        [note("n1", (2, 3)), note("n2", (0, 1))],
        "FAIL",
        "rank 0 on n2 runs on CPUs 0,1, its rank file says 2,3",
    ),
    ([note("n1", (2, 3)), note("n2", (0, 1), (), "nothing")], "FAIL", "has no CPUs for it"),
    ([note("n1", (2, 3))], "INCONCLUSIVE", "rank 0 on n2 left no note"),
)
def test_ranks_run_where_the_rank_file_says(measured, notes, outcome, words):
    """Catches: a rank file that is written and applied by nothing."""
    _, cells, _ = measured({node: [RC] for node in ("n1", "n2")}, notes=notes, pinned=True)
    assert cells["pinning"][0] == outcome
    assert words in cells["pinning"][1]


@cases(
    "text, lanes",
    ("[1566814148.941358] [n1:3473 :0] ucp_worker.c:1689 UCX  INFO  ep_cfg[1]: tag(rc_verbs/rxe0:1); ", 1),
    ("[1566814148.9] [n1:3473:0] ucp_worker.c:1689 UCX INFO ep_cfg[0]: tag(self/memory cma/memory); ", 0),
    (
        "[1701292112.8] [n1:162239:0]  ucp_worker.c:1855 UCX  INFO    0x100b240 inter-node cfg#3 "
        "tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1)",
        2,
    ),
    (
        "[1701292112.8] [n1:1:0]  ucp_worker.c:1903 UCX  INFO  ucp_context_0 intra-node cfg#2 "
        "tag(sysv/memory cma/memory) rma(sysv/memory)",
        0,
    ),
    ("[1701292112.8] [n1:1:0]  ucp_worker.c:1903 UCX  INFO  inter-node cfg#2 am(tcp/eth0)", 1),
    ("[1701292112.8] [n1:1:0]  parser.c:2314 UCX  INFO  UCX_* env variables: UCX_TLS=tag(tcp/eth0)", 0),
)
def test_forms_of_ucx_log(text, lanes):
    """Catches: the line of an older or newer UCX passed over, or a way inside a node taken for the fabric."""
    assert len(parse_ucx_log(f"{text}\n").lanes) == lanes


def test_a_way_that_cannot_be_read_is_refused():
    """Catches: a connection that is left out because its name is new, so that the others alone pass."""
    with pytest.raises(BadInput, match="not a transport and a device"):
        parse_ucx_log("[1.0] [n1:1:0]  w.c:1 UCX  INFO  inter-node cfg#2 tag(rc_verbs/rxe0:1 MYSTERY)\n")


def test_the_rank_file_binds_a_rank(tmp_path):
    """Catches: a rank that runs anywhere though its node's rank file gives its CPUs."""
    allowed = sorted(os.sched_getaffinity(0))
    (tmp_path / pin.RANK_FILE).parent.mkdir(parents=True)
    lines = f"rank 0=n1 slot={allowed[0]}\nrank 1=n1 slot={allowed[-1]}\n"
    (tmp_path / pin.RANK_FILE).write_text(lines)
    program = (
        "import sys; from pathlib import Path; from shakedown.onnode import pin; "
        f"pin.main(sys.argv[1:], Path({str(tmp_path)!r}))"
    )
    shown = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    environment = {**os.environ, "SLURMD_NODENAME": "n1", "SLURM_LOCALID": "1"}
    environment.pop("OMPI_COMM_WORLD_LOCAL_RANK", None)
    done = python("-c", program, "--note", tmp_path, *shown, env=environment, check=True)
    assert done.stdout.strip() == str([allowed[-1]])
    noted = json.loads((tmp_path / "pinned.n1.1.json").read_text())
    assert (noted["by"], noted["wanted"], noted["runs"]) == ("rankfile", [allowed[-1]], [allowed[-1]])


def test_ranks_of_mpirun_know_their_own_number(monkeypatch):
    """Catches: all ranks of mpirun on GPU 0's CPUs, because they inherit SLURM_LOCALID from its daemon."""
    monkeypatch.setenv("SLURM_LOCALID", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    assert pin.local_rank() == 3


def test_without_a_rank_file_the_kernel_says_where(tmp_path):
    """Catches: nodes without roles/numa_pinning no longer bound beside their GPUs."""
    (tmp_path / "proc/driver/nvidia/gpus/0000:17:00.0").mkdir(parents=True)
    device = tmp_path / "sys/bus/pci/devices/0000:17:00.0"
    device.mkdir(parents=True)
    (device / "local_cpulist").write_text("4-5,9\n")
    assert pin.wanted_cpus(0, tmp_path) == ("kernel", {4, 5, 9})
    assert pin.wanted_cpus(1, tmp_path) == ("nothing", set())


def test_a_site_may_say_the_way_itself(tmp_path):
    """Catches: MPI that goes any way, or cannot be measured, where site.yml may write nothing below /etc."""
    file = tmp_path / "mpi.yml"
    file.write_text(PROFILE)
    catalogue, made = load_catalogue([file]), "2026-11-20T00:00:00Z"
    for variables, source in (
        ({}, ("/etc/shakedown/mpi.env",)),
        ({"UCX_TLS": "rc,self", "OMPI_MCA_pml": "ucx"}, ()),
    ):
        _, jobs = plan_site(site(variables=variables), catalogue, created=made)
        (spec,) = (one for one in jobs.jobs if one.kind == "mpi_allreduce")
        launch = BENCHMARK.jobs["mpi_allreduce"].launch(spec, tmp_path)
        assert launch.source == source
        assert {k: v for k, v in launch.variables.items() if k in variables} == variables
        assert launch.variables["UCX_LOG_LEVEL"] == "info"


@cases("variables", {"LD_PRELOAD": "/x.so"}, {"UCX_TLS": "rc; reboot"}, {"UCX_TLS": "$(id)"}, {"UCX_TLS": ""})
def test_variables_hold_no_program(variables):
    """Catches: a site's option that loads code into a job, or a second command in its script."""
    with pytest.raises(ValueError, match="variables"):
        site(variables=variables)


# As mpi4py 4.0.0 to 4.1.1 print it (src/mpi4py/bench.py).
TIMED = """\
# MPI PingPong Test
# Size [B]  Bandwidth [MB/s] | Time Mean [s] \u00b1 StdDev [s]  Samples
     16384              2.87 | 5.7121300e-03 \u00b1 1.2000e-04       10
     32768              6.22 | 5.2688100e-03 \u00b1 2.2000e-04       10
   2097152            240.10 | 8.7345000e-03 \u00b1 3.1000e-04       10
"""
BARE = "\n".join(line.split(" |")[0] for line in TIMED.splitlines()) + "\n"
SIZES = {16384, 32768, 2097152}


def output(text: str, *, timed: bool = True) -> Output[MpiSettings]:
    """The output of a ping-pong of three sizes."""
    order = MpiSettings(min_bytes=16384, max_bytes=2097152, iterations=10, timed=timed)
    rows = [*text.splitlines(keepends=True)]
    # The sizes between are those of no interest here: each as good as the last.
    for size in (x for x in order.powers_of_two() if x not in SIZES):
        row = f"{size:10d}{size / 1e-3 / 1e6:18.2f}"
        rows.insert(
            -1, row + (" | 1.0000000e-03 \u00b1 1.0000e-04       10\n" if "Samples" in text else "\n")
        )
    record = OutputRecord(
        tool="mpi",
        test="mpi_pingpong",
        file="mpi_pingpong.txt",
        nodes=("n1", "n2"),
        exit_code=0,
        started="2026-11-20T13:32:12Z",
        duration_s=8.0,
    )
    return Output("".join(rows), record, order, JobFolder(Path("r1")))


def test_bandwidths_are_read_with_their_times():
    """Catches: a table with times that is not read, and bytes that the NICs are not asked for."""
    values = {value[4]["size_bytes"]: value[1] for value in mpi(output(TIMED))}
    assert (values[16384], values[2097152]) == (0.00287, 0.2401)
    sent = 10 * sum(values)
    assert list(moved(output(TIMED))) == [("n1", None, sent, sent), ("n2", None, sent, sent)]


@cases(
    "old, new, words",
    ("   2.87 ", "   9.87 ", "bandwidth contradicts size and mean time"),
    ("   2.87 ", "   2.88 ", "bandwidth contradicts size and mean time"),
    (" 240.10 ", " 440.10 ", "bandwidth contradicts size and mean time"),
    ("5.7121300e-03", "5.7121300e-04", "bandwidth contradicts size and mean time"),
    ("5.7121300e-03", "0.0000000e+00", "bandwidth contradicts size and mean time"),
    ("1.2000e-04       10", "1.2000e-04        1", "16384 bytes: 1 sample, planned were 10"),
    (" | 5.7121300e-03 \u00b1 1.2000e-04       10", "", "not a row of the ping-pong table"),
)
def test_a_bandwidth_that_its_time_does_not_give_is_refused(old, new, words):
    """Catches: a bandwidth edited alone, or of fewer samples than were ordered, which passed."""
    assert TIMED.count(old) == 1
    refused(words, list, mpi(output(TIMED.replace(old, new))))


def test_bandwidths_alone_count_only_where_they_were_ordered_so():
    """Catches: times taken out of the table, so that an edited bandwidth has no second witness."""
    refused("no time beside the bandwidth", list, mpi(output(BARE)))
    assert len(list(mpi(output(BARE, timed=False)))) == len(list(mpi(output(TIMED))))


@pytest.mark.parametrize("timed", [True, False])
def test_what_is_ordered(tmp_path, timed):
    """Catches: times not asked for, or messages above 1 MiB sent ten times, whatever was ordered."""
    order = MpiSettings(min_bytes=4, max_bytes=8, iterations=70, timed=timed)
    spec = records.job(
        name="collective.mpi_pingpong",
        kind="mpi_pingpong",
        stage=Stage.COLLECTIVE,
        tests=("mpi_pingpong",),
        nodes=("n1", "n2"),
        expected_s=1,
        settings=order.model_dump(),
    )
    launch = BENCHMARK.jobs["mpi_pingpong"].launch(spec, tmp_path)
    assert {"--loop=70", "--loop-large=70", "--loop-huge=70"} < set(launch.words)
    assert ("--no-stats" in launch.words) is not timed
    # Its heading has a letter that no other language's encoding of a site must spoil.
    assert launch.variables["PYTHONIOENCODING"] == "utf-8"


@cases("lanes, wrong", ("rc_mlx5", 0), ("rc_mlx5 gga_mlx5", None), ("gga_mlx5 tcp", 1))
def test_a_transport_of_a_later_ucx_is_no_fallback_and_no_proof(lanes, wrong):
    """Catches: a new name of UCX blamed as a way that was not wanted, or taken for it."""
    found = [
        Lane(host=host, transport=one, device="mlx5_0") for host in ("n1", "n2") for one in lanes.split()
    ]
    log = UcxLog(lanes=tuple(found), hosts=("n1", "n2"), layers=("ucx",))
    network, _ = judge_way(log, "rc", 2, {})
    assert network.wrong == wrong and lanes.split()[-1] in network.detail
