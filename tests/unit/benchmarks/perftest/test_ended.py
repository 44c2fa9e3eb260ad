"""What a mesh's journals say after a node died: the rest counts, if every driver is accounted for."""

import json

import pytest

from shakedown.benchmarks.perftest.mesh.completeness import lost_nodes
from tests.kit.run import python

SPEC = {
    "schema": 1,
    "mode": "full",
    "nodes": {
        f"n{i}": {
            "address": f"10.0.0.{i}",
            "rails": {"rail0": {"rdma_device": "rxe0", "netdev": "fab0", "ipv4": f"10.10.0.{i}"}},
        }
        for i in (1, 2, 3)
    },
    "rails": ["rail0"],
    "operations": [{"test": "ib_write_bw", "size_bytes": 65536, "iterations": 10}],
    "directions": ["forward", "reverse"],
    "tclass": 106,
    "mtu": 4096,
}
START, END = {"event": "start"}, {"event": "end"}
N3_LOST = {"event": "dropped", "dropped": "n3"}


@pytest.fixture
def folder(tmp_path):
    """How to lay out a folder with these journals; None: the node left none."""

    def write(**journals):
        (tmp_path / "spec.json").write_text(json.dumps(SPEC))
        for node, events in journals.items():
            if events is not None:
                text = "".join(json.dumps(e) + "\n" for e in events)
                (tmp_path / f"journal.{node}.jsonl").write_text(text)
        return tmp_path

    return write


def test_a_dead_node_that_a_partner_names_is_the_only_one_lost(folder):
    """Catches the death of one node that makes worthless what all others measured."""
    where = folder(n1=[START, END], n2=[START, N3_LOST, END], n3=[START])
    assert lost_nodes(where, SPEC["nodes"]) == ["n3"]
    done = python("-m", "shakedown.benchmarks.perftest.mesh.completeness", where)
    assert (done.returncode, done.stdout) == (0, "shakedown mesh: complete except for n3\n")


def test_half_a_last_line_is_no_event(folder):
    """Catches a journal cut off by the node's death that stops the reader."""
    where = folder(n1=[START, END], n2=[START, N3_LOST, END], n3=[START])
    with (where / "journal.n3.jsonl").open("a") as journal:
        journal.write('{"event": "en')
    assert lost_nodes(where, SPEC["nodes"]) == ["n3"]


@pytest.mark.parametrize(
    "journals",
    [
        {"n1": [START, END], "n2": [START, END], "n3": [START]},  # nobody missed it
        {"n1": [START], "n2": [START, N3_LOST, END], "n3": None},  # nor did anybody miss n1
        {"n1": [START, N3_LOST], "n2": [START, END], "n3": [START]},  # whoever says so did not end itself
        {"n1": [START, END, START], "n2": [START, N3_LOST, END], "n3": [START]},  # a second start broke off
        {"n1": None, "n2": None, "n3": None},
    ],
)
def test_a_driver_that_is_not_accounted_for_spoils_the_job(folder, journals):
    """Catches a crashed driver, or a job that was cancelled, taken for a mesh that ended."""
    where = folder(**journals)
    assert lost_nodes(where, SPEC["nodes"]) is None
    done = python("-m", "shakedown.benchmarks.perftest.mesh.completeness", where)
    assert done.returncode == 1


def test_a_folder_without_a_mesh_is_refused(tmp_path):
    """Catches a mistyped folder taken for a mesh without losses."""
    done = python("-m", "shakedown.benchmarks.perftest.mesh.completeness", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
