"""What hosts tell of themselves is checked before it is written anywhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.run import run_playbook

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def play(tmp_path: Path, tasks: list[dict], **variables: object) -> subprocess.CompletedProcess[str]:
    """Run tasks on one local host called n1."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **variables}
    children = {"submit": {"hosts": {"n1": {}}}}  # the snapshot asks it for a credential
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"n1": here}, "children": children}}))
    book = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(book))
    return run_playbook(
        "-i",
        tmp_path / "hosts.json",
        tmp_path / "play.yml",
        timeout=240,
        ANSIBLE_ROLES_PATH=str(ROOT / "roles"),
    )


@pytest.mark.parametrize(
    ("name", "good"), [("gpu-node_07", True), ("n1\nEpilog=/tmp/x", False), ("n1\n", False), ("", False)]
)
def test_a_host_name_with_a_line_break_writes_no_epilog(tmp_path, name, good):
    """Catches: a node whose host name adds an Epilog, run by root on every node, to slurm.conf."""
    tasks = [
        {"set_fact": {"hostname": name, "cacheable": True}},
        {
            "include_role": {"name": "slurm", "tasks_from": "preflight"},
            "vars": {"slurm_controller": "n1", "slurm_nodes": ["n1"], "slurm_take_over": True},
        },
    ]
    done = play(tmp_path, tasks)
    assert ("which is no host name" not in done.stdout) is good, done.stdout[-2000:]
    assert (done.returncode == 0) is good, done.stdout[-2000:]


def test_a_node_cannot_speak_for_another_in_the_snapshot(tmp_path):
    """Catches: firmware of a good node shown as a bad one's, because the node says whose it is."""
    probe = tmp_path / "probe.py"
    part = {"host": "n2", "kind": "node", "name": "n2", "attributes": {}}
    probe.write_text(f"print({json.dumps({'schema': 1, 'components': [part]})!r})")
    variables = {"inventory_snapshot_probe": str(probe), "inventory_snapshot_python": sys.executable}
    variables |= {"inventory_snapshot_kind": "node"}
    variables |= {"inventory_snapshot_file": str(tmp_path / "inventory.json"), "inventory_snapshot_run": "r1"}
    done = play(tmp_path, [{"include_role": {"name": "inventory_snapshot"}, "vars": variables}])
    assert done.returncode == 0, done.stdout[-3000:]
    snapshot = json.loads((tmp_path / "inventory.json").read_text())
    assert [part["host"] for part in snapshot["components"]] == ["n1"]


@pytest.mark.parametrize(("owner", "squash"), [("alice", "root_squash"), ("root", "no_root_squash")])
def test_root_of_a_node_is_not_root_of_the_share(tmp_path, owner, squash):
    """Catches: an export on which one node's root may rewrite all outputs and programs."""
    export = (ROOT / "roles/shared_stage/tasks/export.yml").read_text()
    assert "{{ folder.squash }}" in export and "no_root_squash" not in export
    tasks = [
        {"include_vars": str(ROOT / "roles/shared_stage/vars/main.yml")},
        {"assert": {"that": f"_shared_stage_squash == '{squash}'"}},
    ]
    done = play(tmp_path, tasks, slurm={"run_as": owner}, shared_stage_connected={"stdout": "someone"})
    assert done.returncode == 0, done.stdout[-2000:]
