"""Storage: what counts, from the site's wish to the verdict, with a program in fio's place."""

import json
import re
import shutil
import sys
import types
from itertools import pairwise
from pathlib import Path

import pytest

from shakedown.benchmarks.storage import job
from shakedown.benchmarks.storage.output import StoragePath, StorageSettings, parse_fio
from tests.kit.cases import cases
from tests.kit.files import edited
from tests.kit.refusal import refused
from tests.kit.run import collected, ordered_in, raw_of, write_run
from tests.kit.site import one_node, plan_site

CAPTURES = Path(__file__).parents[1] / "outputs/captures"
READ = (CAPTURES / "fio_3.33_read.json").read_text()
PROFILE = """
schema: 1
profile: disks
title: disks of one node
published: nowhere; made for this test
audit: floors that the program in fio's place clears
references:
  - {id: rate, stage: node, test: storage, metric: bandwidth, scope: {path: scratch}, value: FLOOR,
     limit: FLOOR, unit: GB/s, better: higher, kind: baseline, source: this test, set_by: this test}
  - {id: iops, stage: node, test: storage, metric: iops, value: 1, limit: 1, unit: IO/s, better: higher,
     kind: baseline, source: this test, set_by: this test}
  - {id: p99, stage: node, test: storage, metric: latency_p99, value: 1000000, limit: 1000000, unit: us,
     better: lower, kind: baseline, source: this test, set_by: this test}
"""
# Makes the files that it is told to make, and prints what a real fio printed, of its own options and time.
FIO = """#!/bin/sh
exec PYTHON - "$@" << 'END'
import json, sys, time
from pathlib import Path
given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
for number in range(int(given["numjobs"])):
    Path(given["directory"], f"data.{number}").touch()
writes = "write" in given["rw"] and "verify_only" not in given
side, other = ("write", "read") if writes else ("read", "write")
told = json.loads(Path("CAPTURE").read_text())
(one,) = told["jobs"]
now, rest = one["read"], one["write"]
now |= {"bw_bytes": 10**9, "io_bytes": 10**9 * 6, "iops": 1000.0, "total_ios": 6000, "runtime": 6000}
if "verify_only" in given:
    size = int(given["numjobs"]) * int(given["size"][:-1]) << 20
    now |= {"io_bytes": size, "bw_bytes": size, "iops": 1.0, "total_ios": 1, "runtime": 1000}
one[side], one[other] = now, rest
told |= {"timestamp": int(time.time()), "timestamp_ms": time.time_ns(), "global options": {}}
one |= {"jobname": given["name"], "job options": given}
SPOIL
print("fio: multiple writers may overwrite blocks that belong to other jobs.", file=sys.stderr)
print(json.dumps(told))
sys.exit(1 if one["error"] else 0)
END
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Plan a run, run its one job here, and return the verdict and how the job ended."""

    def run(spoil="", after=lambda raw: None, floor=0.5, **options):
        profile = tmp_path / "disks.yml"
        profile.write_text(PROFILE.replace("FLOOR", str(floor)))
        capture = str(CAPTURES / "fio_3.33_read.json")
        program = FIO.replace("PYTHON", sys.executable).replace("CAPTURE", capture).replace("SPOIL", spoil)
        fio, place = tmp_path / "bin/fio", tmp_path / "scratch"
        fio.parent.mkdir()
        place.mkdir()
        fio.write_text(program)
        fio.chmod(0o755)
        asked = {
            "name": "scratch",
            "path": str(place),
            "size_mib": 16,
            "processes": 2,
            "seconds": 5,
            **options,
        }
        site = one_node("disks", programs={"fio": str(fio)}, storage=[asked])
        plan, jobs = plan_site(site, [profile])
        folder, (spec,) = tmp_path / "r1", jobs.jobs
        raw = raw_of(write_run(folder, plan, jobs), spec)
        ordered_in(raw, spec)
        monkeypatch.setenv("SLURMD_NODENAME", "n1")
        monkeypatch.setattr(job, "time", types.SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
        status = job.main([str(raw)])
        after(raw)
        assert not list(place.iterdir()), "files stay on somebody's file system"
        return collected(folder), status

    return run


def test_every_access_is_measured_and_what_was_written_is_compared(measured, tmp_path):
    """Catches: an access that no cell holds, a checksum pass that nobody judges."""
    verdict, status = measured()
    assert (verdict.outcome.value, status) == ("PASS", 0), verdict.reason
    lines = map(json.loads, (tmp_path / "r1/results.jsonl").read_text().splitlines())
    found = {(m["params"]["access"], m["metric"]): m["value"] for m in lines}
    assert found == {
        ("write", "bandwidth"): 1.0,
        ("read", "bandwidth"): 1.0,
        ("check", "wrong"): 0.0,
        ("randread", "iops"): 1000.0,
        ("randread", "latency_p99"): pytest.approx(100139.008),
        ("randwrite", "iops"): 1000.0,
        ("randwrite", "latency_p99"): pytest.approx(100139.008),
    }


def test_a_shared_folder_is_also_measured_by_each_node_alone(measured, tmp_path, monkeypatch):
    """Catches: a node that is slow alone and hidden behind the server's own limit."""
    monkeypatch.setattr(job, "filesystem", lambda _path: ("nfs4", "server:/scratch"))
    verdict, _ = measured(shared=True)
    assert verdict.outcome.value == "PASS", verdict.reason
    found = [m["params"] for m in map(json.loads, (tmp_path / "r1/results.jsonl").read_text().splitlines())]
    assert {p["access"] for p in found if p["clients"] == "one"} == {"write", "read"}


@cases(
    "spoil, outcome, words",
    (
        "if given['name'] == 'check': one['error'] = 84; "
        "print('crc32c: verify failed at file /s/data.0 offset 4194304, length 1048576', file=sys.stderr)",
        "FAIL",
        "differs from what was written: verify failed at file /s/data.0 offset 4194304",
    ),
    (
        "if given['name'] == 'check': now['io_bytes'] //= 2; now['bw_bytes'] //= 2",
        "INCONCLUSIVE",
        "were written",
    ),
    ("if given['name'] == 'check': one['error'] = 5", "INCONCLUSIVE", "fio"),
    ("if given['name'] == 'read': now['bw_bytes'] *= 10", "INCONCLUSIVE", "are not 10000000000"),
    ("if given['name'] == 'read': now['iops'] *= 10", "INCONCLUSIVE", "are not 10000.0 a second"),
    ("one['job options']['direct'] = '0'", "INCONCLUSIVE", "it ran with direct 0, 1 was ordered"),
    ("one['job options']['size'] = '1m'", "INCONCLUSIVE", "it ran with size 1m, 16m was ordered"),
    ("told['timestamp'] -= 3600", "INCONCLUSIVE", "s after it was started, by its own clock"),
    ("now['short_ios'] = 3", "INCONCLUSIVE", "3 short requests"),
    ("now.update(bw_bytes=6*10**9, iops=6000.0, runtime=1000)", "INCONCLUSIVE", "1 s and 0 short requests"),
    ("told['jobs'] *= 2", "INCONCLUSIVE", "not one group of processes"),
    ("now['clat_ns'] = {}", "INCONCLUSIVE", "does not tell the 99th percentile"),
    ("one['error'] = 5; one['read']['bw_bytes'] = 0", "INCONCLUSIVE", "fio"),
)
def test_what_does_not_bear_its_numbers_out_does_not_count(measured, spoil, outcome, words):
    """Catches: another size, a cached read, a rate without its bytes, lost data, yesterday's output."""
    verdict, _ = measured(spoil=spoil)
    assert verdict.outcome.value == outcome, verdict.reason
    assert any(words in cell.reason for cell in verdict.cells), [c.reason for c in verdict.cells]


def test_a_job_that_is_told_to_end_takes_its_files_away_at_once(measured, tmp_path):
    """Catches: files that stay on somebody's file system: the job goes on to its next step, and is killed."""
    verdict, status = measured(spoil="if given['name'] == 'write': one['error'] = 4; sys.exit(128)")
    assert (verdict.outcome.value, status) == ("INCONCLUSIVE", 3)
    left = [file.name for file in (tmp_path / "r1/raw").rglob("storage.*.json") if file.stat().st_size]
    assert left == []


def test_a_slow_disk_fails(measured):
    """Catches: a rate that no reference decides."""
    verdict, _ = measured(floor=1.01)
    assert verdict.outcome.value == "FAIL"


def test_smaller_files_than_ordered_do_not_count(measured):
    """Catches: files that fit into the disk's cache, judged as if they were what was ordered."""

    def larger(raw):
        with edited(raw.parents[1] / "jobs.json") as spec:
            spec["jobs"][0]["settings"]["size_mib"] = 32

    verdict, _ = measured(after=larger)
    assert verdict.outcome.value == "INCONCLUSIVE"
    assert any("it ran with size 16m, 32m was ordered" in cell.reason for cell in verdict.cells)


@cases(
    "options, words",
    ({"shared": True}, "wanted a file system of other machines"),
    ({"filesystem": "lustre"}, "wanted lustre: is it mounted?"),
    ({"size_mib": 1 << 24, "processes": 256}, "GB free"),
    ({"direct": False}, "its memory can hold the files: without direct, size_mib of"),
)
def test_what_could_not_be_measured_says_why(measured, options, words):
    """Catches: the system's disk measured for a mount that is missing, a file system filled to its end."""
    verdict, status = measured(**options)
    assert (verdict.outcome.value, status) == ("INCONCLUSIVE", 3)
    assert all(words in cell.reason for cell in verdict.cells), verdict.cells[0].reason


def test_a_missing_fio_is_said(measured, tmp_path):
    """Catches: software that is not there taken for a slow disk."""
    real = job.enter

    def gone(*words, **more):
        shutil.rmtree(tmp_path / "bin")
        return real(*words, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "enter", gone)
        verdict, _ = measured()
    assert verdict.outcome.value == "NOT-RUN"
    assert "fio from path" in verdict.cells[0].reason


def test_the_last_mount_over_a_folder_is_its_file_system(tmp_path):
    """Catches: a mount point with a blank, one mount over another, a name that only begins alike."""
    (tmp_path / "a b/deep").mkdir(parents=True)
    (tmp_path / "a bc").mkdir()
    rows = [
        ("/", "ext4", "/dev/vda1"),
        (f"{tmp_path}/a\\040b", "nfs4", "one:/x"),
        (f"{tmp_path}/a\\040b", "lustre", "two"),
    ]
    mounts = tmp_path / "mountinfo"
    mounts.write_text("".join(f"1 2 0:3 / {at} rw shared:1 - {kind} {of} rw\n" for at, kind, of in rows))
    assert job.filesystem(tmp_path / "a b/deep", mounts) == ("lustre", "two")
    assert job.filesystem(tmp_path / "a bc", mounts) == ("ext4", "/dev/vda1")


def test_a_step_that_is_late_ends_what_all_do_together(tmp_path, monkeypatch):
    """Catches: nodes said to work at once, of which one still writes while the others read."""
    order = StorageSettings(name="s", path=str(tmp_path), size_mib=16, processes=1, seconds=5, fill_s=5)
    (tmp_path / "spec.json").write_text(order.model_dump_json())
    now = iter([0.0, *range(30, 3000, 30)])
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(job, "time", types.SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None))
    monkeypatch.setattr(job, "_fio", lambda *_: (0, None))
    assert job.main([str(tmp_path)]) == 3
    (line, *_) = map(json.loads, (tmp_path / "outputs.n1.jsonl").read_text().splitlines())
    assert "ended 20 s too late: more fill_s" in line["problem"]["message"]


def test_nodes_have_their_turns_one_after_another():
    """Catches: two nodes that measure alone at the same time."""
    order = StorageSettings(name="s", path="/scratch", shared=True, seconds=5, fill_s=5, turns=("n1", "n2"))
    turns = [(at, node) for at, _, clients, node in job.steps(order.model_dump()) if clients == "one"]
    assert [node for _, node in turns] == ["n1", "n1", "n2", "n2"]
    assert all(later - at >= order.seconds for (at, _), (later, _) in pairwise(turns))


@cases(
    "old, new, words",
    (r'"fio version"', '"version"', "not the JSON of fio 3"),
    ("fio-3.33", "fio-2.21", "not the JSON of fio 3"),
    (r'"99.000000" : \d+', '"99.000000" : 5', "do not rise"),
    (r'"99.000000" : \d+', '"99.000000" : 99999999999', "or end above the longest"),
    (r"(?s)\A.*\Z", "fio: engine libaio not loadable\n", "text for people, not JSON"),
    (r"(?s)\n  \"disk_util.*", "", "ends before the closing bracket"),
    (r'"bw_bytes" : 1670517324', '"bw_bytes" : NaN', "not a finite number"),
    (r'"bw_bytes" : 1670517324', '"bw_bytes" : -5', "greater than or equal to 0"),
)
def test_damaged_output_is_refused(old, new, words):
    """Catches: output that was cut, or is no number."""
    assert parse_fio(READ).read.bw_bytes == 1670517324
    refused(words, parse_fio, re.sub(old, new, READ, count=1))


@cases(
    "options, words",
    ({"path": "//."}, "a folder of its own below /"),
    ({"path": "scratch"}, "path"),
    ({"path": "/a/../b"}, "without .."),
    ({"name": "a,b"}, "name"),
    ({"accesses": ["read", "read"]}, "twice"),
)
def test_what_cannot_be_asked_is_refused(options, words):
    """Catches: the root of a machine filled with files, a cell that cannot be told from another."""
    with pytest.raises(ValueError, match=words):
        StoragePath(**{"name": "s", "path": "/scratch", **options})


def test_two_folders_of_one_name_are_refused():
    """Catches: cells of two disks that are one."""
    asked = [{"name": "s", "path": f"/{where}"} for where in "ab"]
    refused("acceptance.storage names s twice", plan_site, one_node("none", storage=asked), learn=True)
    for path in ("/a", "/a/deep"):
        asked = [{"name": "s", "path": "/a"}, {"name": "t", "path": path}]
        refused("lies in s", plan_site, one_node("none", storage=asked), learn=True)
