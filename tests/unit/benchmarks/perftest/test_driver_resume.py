"""A second start in the same folder: what it takes over, and what it refuses to mix."""

import json
import os

import pytest

from tests.kit.cases import cases

pytestmark = pytest.mark.slow  # drivers that wait for each other by the clock


def content(folder):
    """All files of a folder with what they hold."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_folder_of_another_specification_is_refused(mesh):
    """Catches: results of one message size, MTU or traffic class taken for those of another, because the
    cells have the same names."""
    local = mesh(2)
    assert local.run() == {"n1": 0, "n2": 0}
    before = content(local.out)
    local.data["mtu"] = 1024
    assert local.run("n1") == {"n1": 2}
    assert local.errors.count("\n") == 1
    assert "journal.n1.jsonl:1: started with another specification" in local.errors and " -- " in local.errors
    assert content(local.out) == before


def test_a_node_that_is_new_to_a_folder_of_another_specification_is_refused(mesh):
    """Catches: two new nodes of a larger mesh that measure each other into the folder of the smaller one."""
    local = mesh(3)
    whole = local.data["nodes"]
    local.data["nodes"] = {name: whole[name] for name in ("n1", "n2")}
    assert local.run() == {"n1": 0, "n2": 0}
    local.data["nodes"] = whole
    assert local.run("n3") == {"n3": 2}
    assert "journal.n1.jsonl:1" in local.errors


def test_results_of_two_versions_of_perftest_are_not_mixed(mesh):
    """Catches: a mesh of which one half was of another perftest, after an update between two starts."""
    local = mesh(2)
    local.faults = [{"node": "n2", "side": "client", "fault": "crash"}]
    assert local.run() == {"n1": 0, "n2": 3}
    before = content(local.out)
    local.versions = {"n1": "24.07", "n2": "24.07"}
    assert local.run("n1") == {"n1": 2}
    assert local.errors.count("\n") == 1
    assert "journal.n1.jsonl:1: ib_write_bw 6.22 has measured here, and 24.07 is another" in local.errors
    assert content(local.out) == before


def test_an_update_before_anything_was_measured_is_no_other_version(mesh):
    """Catches: a node with an old perftest, for which nothing was measured, refused after its update."""
    local = mesh(2)
    local.versions = {"n2": "6.06"}
    assert local.run() == {"n1": 3, "n2": 3}
    local.versions = {}
    assert local.run() == {"n1": 0, "n2": 0}
    # And after it has measured it is still the same version.
    assert local.run() == {"n1": 0, "n2": 0}


@pytest.mark.parametrize("damage", ["gone", "empty", "link"])
def test_a_result_whose_output_is_lost_is_measured_again(mesh, damage):
    """Catches: a cell called measured whose only proof was deleted, or never reached the disk."""
    local = mesh(2)
    assert local.run() == {"n1": 0, "n2": 0}
    lost = local.out / next(r for r in local.records() if r.direction == "forward").file
    lost.unlink()
    if damage == "empty":
        lost.touch()
    elif damage == "link":
        lost.symlink_to("/etc/hostname")
    assert local.run() == {"n1": 0, "n2": 0}
    again = [r for r in local.records() if r.direction == "forward"]
    assert [r.attempt for r in again] == [1, 2]  # no first try: there was one
    assert "97.25" in (local.out / again[1].file).read_text()
    assert sum(r.direction == "reverse" for r in local.records()) == 1


def test_what_failed_in_its_last_attempt_is_measured_again(mesh):
    """Catches: a cell settled for ever by its first attempt, although its second one failed."""
    local = mesh(2)
    assert local.run() == {"n1": 0, "n2": 0}
    [written] = local.out.glob("outputs.n1.jsonl")
    failed = json.loads(written.read_text().splitlines()[0]) | {"attempt": 2, "exit_code": 1}
    with written.open("a") as file:
        file.write(json.dumps(failed) + "\n")
    assert local.run() == {"n1": 0, "n2": 0}
    assert [r.attempt for r in local.records() if r.direction == failed["direction"]] == [1, 2, 3]


def test_an_output_without_a_record_is_not_overwritten(mesh):
    """Catches: what a killed driver had measured, wiped out by the second start."""
    local = mesh(2)
    local.out.mkdir()
    old = local.out / "ib_write_bw.n1,n2.rail0.forward.65536.one.txt"
    old.write_text("cut off")
    assert local.run() == {"n1": 0, "n2": 0}
    assert old.read_text() == "cut off"
    record = next(r for r in local.records() if r.direction == "forward")
    assert record.file != old.name and "97.25" in (local.out / record.file).read_text()


def record(**changes):
    """Return a record's line, sound but for the changes."""
    sound = {"test": "ib_write_bw", "rail": "rail0", "direction": "forward", "file": "f.txt"}
    sound |= {"started": "2026-01-01T00:00:00.000Z", "nodes": ["n1", "n2"], "params": {}, "attempt": 1}
    sound |= {"exit_code": 0, "problem": None}
    return json.dumps({**sound, **changes}).encode()


DAMAGED = [b"null", b"[]", b"7", b'{"problem":"x"}', b"[" * 100_000 + b"]" * 100_000, b"\xff"]
DAMAGED_RECORDS = [
    record(params=[1]),
    record(params={"a": []}),
    record(attempt=1).replace(b'"attempt": 1', b'"attempt": 1e999'),
    record(problem={"kind": []}),
    record(file="../f.txt"),
    record(nodes=[["n1"], "n2"]),
]


@cases(
    "name, line",
    *(("journal.n1.jsonl", line) for line in DAMAGED),
    *(("outputs.n1.jsonl", line) for line in DAMAGED + DAMAGED_RECORDS),
)
def test_a_damaged_line_is_named(mesh, name, line):
    """Catches: a traceback, or a damaged record taken for a sound one, at a second start."""
    local = mesh(2)
    local.out.mkdir()
    (local.out / name).write_bytes(b"\n" + line + b"\n")
    assert local.run("n1") == {"n1": 2}
    assert local.errors.count("\n") == 1 and f"{name}:2: not " in local.errors, local.errors


@pytest.mark.parametrize("name", ["outputs.n1.jsonl", "journal.n1.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_folder_in_place_of_a_file_is_refused(mesh, name, make):
    """Catches: a driver that waits for ever, or ends with a traceback, at something that is no file."""
    local = mesh(2)
    local.out.mkdir()
    make(local.out / name)
    assert local.run("n1", timeout=10) == {"n1": 2}
    assert local.errors.count("\n") == 1 and name in local.errors
