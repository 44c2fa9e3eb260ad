"""What else worked on a node's CPUs beside a measurement, and ways that stray: read live, and as recorded."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shakedown.benchmarks.base.contract import Moved, TcpPath, rails_of
from shakedown.collect.counters import confirmed
from shakedown.collect.outputs import Told
from shakedown.collect.surroundings import beside_others
from shakedown.evidence.job_folder import given
from shakedown.onnode import host, tcp_paths
from shakedown.onnode.pin import cpu_set
from shakedown.plan.jobs import Jobs
from shakedown.records.base import Better, NicSpec, Stage
from shakedown.records.results import Measurement
from shakedown.run.nic_counters import HostReading, NodeCounters, read_counters
from tests.kit import records

RAIL = {"rail": "rail0", "netdev": "fab0", "ipv4": "10.0.0.2"}


def reading(at_s, others=(), **more):
    """One reading of a node of eight CPUs, of which two serve its NIC."""
    told = {
        "at_s": at_s,
        "cpus": 8,
        "others": None if others is None else list(others),
        "queue_pairs": {},
        "stolen_ms": {},
        "hot_ms": {},
        "octets": {},
        "serve": {"fab0": [2, 3]},
        "astray": [],
    }
    return NodeCounters(host=HostReading.model_validate_json(json.dumps(told | more)))


def process(name, cpu_s, cpus="0-7", pid=77):
    """Another's process, and the CPU time that it has used."""
    return {"pid": pid, "began": 5, "uid": 1002, "name": name, "cpu_s": cpu_s, "cpus": cpus}


def judged(first, last, unit="Gb/s", nodes=("n1", "n2"), rail="rail0"):
    """Return a measurement of two nodes of which the second has these readings."""
    m = Measurement(
        schema=1, run="r", stage=Stage.FABRIC, test="ib_write_bw", metric="bandwidth", value=9.0, unit=unit,
        better=Better.HIGHER, nodes=nodes, rail=rail, direction="forward", state="COMPLETED",
    )  # fmt: skip
    nic = NicSpec(rail="rail0", rdma_device="mlx5_0", netdev="fab0", ipv4="10.0.0.2")
    (told,) = beside_others([Told((m,))], {"n2": (first, last)}, {"n2": (nic,)})
    return told.measurements[0]


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        (reading(10), reading(70, others=[process("stress", 61.0, "2-3")]), "'stress' of user 1002"),
        (
            reading(10, others=[process("ib_write_bw", 1.0)], queue_pairs={"77": ["mlx5_0"]}),
            reading(70, others=[process("ib_write_bw", 58.0)]),
            "'ib_write_bw' of user 1002 (process 77) has queue pairs on mlx5_0 and used 0.9 CPUs",
        ),
        (reading(10), reading(70, stolen_ms={"2": 15_000}), "the machine below kept back CPU 2 for 25%"),
        (reading(10), reading(70, hot_ms={"3": 12_000, "7": 50_000}), "heat slowed down CPU 3 for 20%"),
    ],
    ids=["hog", "second perftest", "hypervisor", "heat"],
)
def test_what_makes_a_good_nic_slow_stands_beside_its_value(first, last, said):
    """Catches: a NIC that is blamed, and its node drained, for what others did on the CPUs that serve it."""
    (load,) = judged(first, last).loaded
    assert said in load.said and load.said.startswith("n2 was busy: ") and load.node == "n2"
    assert not judged(first, last, unit="1").loaded, "what is wrong was not made wrong by load"
    assert not judged(first, last, nodes=("n2",), rail=None).loaded, "a GPU's rate needs no CPU of a NIC"


@pytest.mark.parametrize(
    "last",
    [
        reading(70, others=[process("node_exporter", 70.0)]),  # floats over eight CPUs
        reading(70, others=[process("stress", 60.0, "6-7")]),  # CPUs that serve no NIC
        reading(70, others=[process("mmfsd", 5.0)], queue_pairs={"77": ["mlx5_0"]}),  # waits on the NIC
        reading(70, stolen_ms={"2": 2_900}, hot_ms={"7": 60_000}),  # little, and elsewhere
        reading(10.5, others=[process("stress", 60.0, "2-3")]),  # no job is so short
    ],
    ids=["monitor", "elsewhere", "storage", "little", "moment"],
)
def test_what_every_node_does_is_no_load(last):
    """Catches: healthy runs that are undecided for a monitoring agent, or for the test's own polling."""
    assert not judged(reading(10), last).loaded


def test_a_program_that_a_full_list_left_out_is_no_load():
    """Catches: what a daemon used since the node started, counted as used in this job."""
    many = [process("busy", 5000.0 + i, pid=100 + i) for i in range(host.MOST_OTHERS)]
    old = process("daemon", 5001.0, "2-3", pid=7)
    assert judged(reading(10, others=many), reading(70, others=[*many, old])).loaded == ()
    impossible = process("daemon", 1e11, "2-3", pid=7)
    assert judged(reading(10), reading(70, others=[impossible])).loaded == ()


@pytest.mark.parametrize("key", ["x", "", "1e3", "\u00b2"])
def test_a_cpu_has_a_number(key):
    """Catches: a reading of one node that no reader takes, and with it no verdict on any other."""
    with pytest.raises(ValueError, match="stolen_ms"):
        reading(70, stolen_ms={key: 5})
    assert cpu_set(f"0-99999999999,{key or 'x'},3") - {1000} == {3}


def test_a_hog_is_seen_by_the_node_itself(monkeypatch, tmp_path):
    """Catches: a process of another user, pinned to a CPU, that an ordinary user's job does not see."""
    monkeypatch.setenv("SLURM_JOB_ID", "4242")
    cpu = sorted(os.sched_getaffinity(0))[0]
    burn = f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    theirs = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "17"}
    with subprocess.Popen([sys.executable, "-c", burn], env=theirs) as hog:
        try:
            end = time.monotonic() + 30
            while not (seen := [p for p in host.others(Path("/")) or () if p["pid"] == hog.pid]):
                assert time.monotonic() < end
                time.sleep(0.2)
            assert not host.ours(Path(f"/proc/{hog.pid}"))
            monkeypatch.setenv("SLURM_JOB_ID", "17")
            assert host.ours(Path(f"/proc/{hog.pid}")), "a job's own programs are no load on it"
        finally:
            hog.kill()
    assert seen[0]["cpus"] == str(cpu) and seen[0]["cpu_s"] >= 1


def test_a_reading_is_one_that_its_reader_takes(tmp_path):
    """Catches: a field that is written and that no reader knows, or takes for damaged."""
    file = tmp_path / "counters.n1.after.json"
    (tmp_path / "rails.json").write_text(json.dumps({host.node_name(): [{**RAIL, "netdev": "lo"}]}))
    told = host.read_host(tmp_path)
    file.write_text(json.dumps({"node": "n1", "when": "after", "devices": [], "host": told}))
    seen = read_counters(file).host
    assert seen is not None and seen.cpus == os.cpu_count() and seen.serve == {"lo": []}
    (stray,) = seen.astray
    assert "10.0.0.2 is planned" in stray["words"]


STRAY = {"rail": "rail0", "to": "n1", "words": "10.0.0.1 is reached over fab1"}


def test_jobs_over_tcp_are_told_their_ways_and_judged_by_them():
    """Catches: a route that appears while MPI runs over TCP: only NICs of RoCE were told."""
    path = {**RAIL, "mtu_bytes": 9000}
    paths = {"n2": [path], "n1": [{**path, "ipv4": "10.0.0.1"}]}
    job = records.job(name="j", kind="mpi_allreduce", tests=("t",), settings={"paths": paths})
    jobs = Jobs(run="r", jobs=(job,), nics={"n1": (), "n2": ()})
    assert json.loads(given(jobs, job)["rails.json"])["n2"] == [RAIL]
    readings = {"n2": (reading(10), reading(70, astray=[STRAY]))}
    m = judged(reading(10), reading(70), rail=None)
    (told,) = beside_others([Told((m,))], readings, rails_of(jobs, job))
    assert "10.0.0.1 is reached over fab1" in told.measurements[0].problem.message
    forged = job.model_copy(update={"settings": {"paths": {"n2": "x"}}})
    assert rails_of(jobs, forged) == {}


def test_a_link_that_was_away_in_the_job_decides_nothing():
    """Catches: a PASS over a port that flapped, or died after the first look; an older release's reading."""
    up, flapped = reading(10, carriers={"fab0": 3}), reading(70, carriers={"fab0": 5})
    problem = judged(up, flapped).problem
    assert problem is not None and problem.kind == "environment"
    assert "n2 fab0 (rail0): its link went down or came up 2 times during the job" in problem.message
    assert judged(up, reading(70, carriers={"fab0": 3, "fab1": 9})).problem is None
    assert judged(reading(10), flapped).problem is None
    older = [replace(up, host=None, devices={"mlx5_0": {"netdev.carrier_down_count": n}}) for n in (2, 3)]
    assert "its link went down or came up 1 times" in judged(*older).problem.message
    assert judged(older[0], older[0]).problem is None


def test_a_rail_that_dies_silently_in_the_job_decides_nothing():
    """Catches: a PASS over a rail whose switch drops everything since the first look, its link up."""
    way, back = {"rail": "rail0", "to": "n1"}, {"rail": "rail1", "to": "n1"}
    alive, dead = reading(10, answered=[way, back]), reading(70, answered=[back])
    problem = judged(alive, dead).problem
    assert problem is not None and problem.kind == "environment"
    assert "n2 fab0 (rail0) no longer reaches n1: it did when the job began" in problem.message
    filtered = reading(10, answered=[back])
    assert judged(filtered, dead).problem is None, "nobody says that n1 has such a rail"
    assert judged(reading(10), dead).problem is None, "an older release did not ask"
    assert judged(alive, reading(70, answered=[way])).problem is None, "another rail's"


def test_a_rail_that_loses_whole_packets_in_the_job_decides_nothing():
    """Catches: a PASS over a rail that became a black hole for long packets; short ones still pass."""
    way = {"rail": "rail0", "to": "n1"}
    well, cut = (reading(at, answered=[way], answered_long=of) for at, of in ((10, [way]), (70, [])))
    problem = judged(well, cut).problem
    assert "n2 fab0 (rail0) reaches n1 with short packets alone, before the job with long" in problem.message
    assert judged(well, well).problem is None
    assert judged(cut, cut).problem is None, "a firewall keeps such answers back"
    assert judged(well, reading(70, answered=[way])).problem is None, "an older release did not ask"


def test_whole_packets_are_answered_by_a_kernel_where_nobody_listens():
    """Catches: a question that is never answered, so that nothing is ever held against it."""

    def at(ipv4):
        return [{"rail": "rail0", "netdev": "lo", "ipv4": ipv4}]

    assert host.answered_long(at("127.0.0.1"), {"zz": at("127.0.0.2")}) == [{"rail": "rail0", "to": "zz"}]
    assert host.answered_long(at("127.0.0.1"), {"zz": at("10.255.255.1")}) == []


def test_a_neighbour_that_listens_to_nothing_answers_and_a_silent_one_does_not():
    """Catches: a rail that passes for dead as no program waits there; one that passes for alive unasked."""

    def at(ipv4):
        return [{"rail": "rail0", "netdev": "lo", "ipv4": ipv4}]

    began = time.monotonic()
    assert host.answered(at("127.0.0.1"), {"zz": at("127.0.0.2")}) == [{"rail": "rail0", "to": "zz"}]
    assert time.monotonic() - began < 1, "asking a sound rail costs a job nothing"
    with socket.create_server(("127.0.0.3", tcp_paths.port())):
        assert host.answered(at("127.0.0.1"), {"zz": at("127.0.0.3")})
    for silent in ("10.255.255.1", "224.0.0.9"):  # nobody's, by lo; none that TCP can call
        assert host.answered(at("127.0.0.1"), {"zz": at(silent)}) == []
    assert host.answered(at("127.0.0.1"), {}) == [], "a job of one node"


@pytest.mark.parametrize(
    ("before", "after", "mute"),
    [
        (["rail1"], ["rail1"], True),
        (["rail0", "rail1"], ["rail0", "rail1"], False),
        ([], [], False),  # a firewall that lets nothing in, on any rail
        (["rail1"], [], False),  # the node is gone, or slow
        (["rail1"], ["rail0", "rail1"], False),
    ],
)
def test_a_rail_that_opens_no_connection_of_its_own_is_told(before, after, mute):
    """Catches: a PASS over a dead rail whose connections a rule, or NAT, leads over another."""
    nics = {
        node: tuple(
            TcpPath(rail=f"rail{n}", netdev=f"fab{n}", ipv4=f"10.0.{n}.{number}", mtu_bytes=1500)
            for n in range(rails)
        )
        for number, (node, rails) in enumerate({"n1": 2, "n2": 2}.items(), 1)
    }
    around = [
        reading(at, answered=[{"rail": r, "to": "n1"} for r in of]) for at, of in ((10, before), (70, after))
    ]
    (told,) = beside_others([Told((judged(reading(10), reading(70)),))], {"n2": tuple(around)}, nics)
    problem = told.measurements[0].problem
    words = "n2 fab0 (rail0) opens no connection to n1 that leaves by it, its other rails do"
    assert (problem is not None and words in problem.message) is mute
    lacks = {**nics, "n1": nics["n1"][1:]}  # a neighbour that has no such NIC
    (told,) = beside_others([Told((judged(reading(10), reading(70)),))], {"n2": tuple(around)}, lacks)
    assert told.measurements[0].problem is None


def test_a_rail_on_top_of_another_is_told(tmp_path):
    """Catches: two rails over one NIC, by a macvlan that has a dead NIC's name; a VLAN called so."""
    mine = [{"rail": f"rail{n}", "netdev": f"fab{n}", "ipv4": f"10.0.{n}.1"} for n in (0, 1)]
    for name in ("fab0", "fab1"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    assert host._on_another(mine[1], mine, tmp_path) == ""
    (tmp_path / "sys/class/net/fab1/lower_fab0").touch()
    assert host._on_another(mine[1], mine, tmp_path).endswith("it lies on fab0, which is rail0")
    assert host._on_another(mine[0], mine, tmp_path) == ""
    (tmp_path / "sys/class/net/fab1/uevent").write_text("DEVTYPE=vlan\nINTERFACE=fab1\n")
    assert host._on_another(mine[1], mine, tmp_path) == ""


def test_a_mesh_whose_way_strays_in_the_job_decides_nothing():
    """Catches: a PASS over a dead rail, whose traffic two routes send around it while the job runs."""
    for first, last in (
        (reading(10, astray=[STRAY]), reading(70)),
        (reading(10), reading(70, astray=[STRAY])),
    ):
        problem = judged(first, last).problem
        assert problem is not None and problem.kind == "environment"
        assert "n2 fab0 (rail0): n1's 10.0.0.1 is reached over fab1" in problem.message
    other = dict(STRAY, rail="rail1")
    assert judged(reading(10), reading(70, astray=[other])).problem is None
    unaddressed = {"rail": "rail0", "to": "", "words": "it has no address, 10.0.0.2 is planned"}
    assert (
        "n2 fab0 (rail0): it has no address"
        in judged(reading(10), reading(70, astray=[unaddressed])).problem.message
    )


@pytest.mark.parametrize(
    ("way", "free", "words"),
    [
        (tcp_paths.Route("fab0"), tcp_paths.Route("fab0", source="10.0.0.2"), ""),
        (tcp_paths.Route("fab1", "10.0.1.1"), None, "is reached over fab1 and 10.0.1.1"),
        (tcp_paths.Route("fab0", mtu_bytes=1500), None, "is reached by a route with an MTU of 1500 bytes"),
        (tcp_paths.Route("lo", own=True), None, "is an address of this node too"),
        (tcp_paths.Route("fab0"), tcp_paths.Route("fab0", source="10.9.9.9"), "is sent to from 10.9.9.9"),
    ],
)
def test_each_way_to_stray_is_read_in_the_job(way, free, words):
    """Catches: device, gateway, MTU, source or owner of a way that one job's reading leaves out."""
    mine = [{"rail": "rail0", "netdev": "fab0", "ipv4": "10.0.0.2", "mtu_bytes": 9000}]
    others = {"n1": [{"rail": "rail0", "ipv4": "10.0.0.1"}]}
    found = tcp_paths.astray(mine, others, lambda _to, own: way if own else free, sources=True)
    assert [one["words"] for one in found] == ([] if not words else [found[0]["words"]])
    assert not words or words in found[0]["words"]


@pytest.mark.parametrize(("carried", "busy"), [(1190, True), (60, False), (250, False)])
def test_what_others_send_over_the_rail_is_beside_its_values(carried, busy):
    """Catches: a rail called slow that another user filled; a collective's own repeats taken for others."""
    m = judged(reading(10), reading(70))
    nics = {"n2": (TcpPath(rail="rail0", netdev="fab0", ipv4="10.0.0.2", mtu_bytes=1500),)}
    first, last = (
        reading(at, octets={"fab0": [10**9 + mb * 10**6] * 2}) for at, mb in ((10, 0), (70, carried))
    )
    told = [Told((m,), (Moved("n2", None, 27e6, 27e6),)), Told((m,), (Moved("n2", "fab0", 27e6, 27e6),))]
    for one in beside_others(told, {"n2": (first, last)}, nics):
        (found,) = one.measurements
        said = [load.said for load in found.loaded]
        assert [text[:50] for text in said] == (
            ["n2 was busy: fab0 (rail0) carried 1.19 GB, of whic"] if busy else []
        )


@pytest.mark.parametrize(
    ("fab0", "fab1", "said"),
    [
        ((28, 28), (0, 0), ""),
        ((28, 28), (0, 28), "n2 fab1 (rail1) received 28 MB, of which no output tells"),
        (
            (28, 0),
            (0, 28),
            "received 27 MB, the NIC counted 0 bytes; n2 fab1 (rail1) received 28 MB, of which",
        ),
        ((28, 28), (28, 28), ""),  # others that talk
        ((28, 28), (0, 90), ""),  # another amount
    ],
    ids=["healthy", "both", "instead", "both ways", "more"],
)
def test_what_a_rail_moved_that_no_output_tells_of_is_told(fab0, fab1, said):
    """Catches: a PASS over joined rails, or a wrong neighbour entry, that lead frames to another NIC."""

    def counted(at_s, *of):
        grown = {f"fab{n}": [10**9 + got * 10**6, 10**9 + sent * 10**6] for n, (sent, got) in enumerate(of)}
        return reading(at_s, octets=grown)

    m = judged(reading(10), reading(70))
    nics = tuple(
        TcpPath(rail=f"rail{n}", netdev=f"fab{n}", ipv4=f"10.0.{n}.2", mtu_bytes=1500) for n in (0, 1)
    )
    told = Told((m,), (Moved("n2", "fab0", 27e6, 27e6), Moved("n2", None, 27e6, 27e6)))
    around = {"n2": (counted(10, (0, 0), (0, 0)), counted(70, fab0, fab1))}
    (held,) = confirmed([told], around, {}, {}, {"n2": nics})
    problem = held.measurements[0].problem
    assert said in problem.message if said else problem is None, problem
