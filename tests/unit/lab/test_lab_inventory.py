"""The lab's inventory: what the plan and every role believe about the cabling."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab import state
from lab.processes import Process
from lab.topology import Topology
from tests.kit.run import python

SCRIPT = Path(__file__).resolve().parents[3] / "inventories" / "lab" / "hosts.py"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the inventory script without site packages."""
    return python("-S", SCRIPT, *arguments, env={**os.environ, **environment})


@pytest.fixture
def folders(short_path: Path) -> dict[str, str]:
    """An environment in which no lab is known."""
    return {
        "XDG_RUNTIME_DIR": str(short_path),
        "XDG_STATE_HOME": str(short_path / "state"),
        "SHAKEDOWN_LAB": "unit",
    }


def test_without_a_lab_the_default_topology_is_there_to_plan_with(folders: dict[str, str]) -> None:
    """Catches planning that needs a running lab, and a script that needs more than the standard library."""
    listed = json.loads(run("--list", **folders).stdout)
    assert listed["submit"]["hosts"] == ["head"]
    assert listed["compute"]["hosts"] == ["n1", "n2"]
    assert listed["leaf"]["hosts"] == ["leaf0"]
    assert listed["slurm"]["children"] == ["submit", "compute"]
    assert listed["switches"]["children"] == ["leaf"]
    n1 = listed["_meta"]["hostvars"]["n1"]
    assert n1["ansible_port"] == 0
    assert "ansible_ssh_private_key_file" not in n1


def test_both_ends_of_every_cable_say_the_same(folders: dict[str, str]) -> None:
    """Catches a leaf whose port list contradicts the nodes': LLDP would blame good cabling."""
    variables = json.loads(run("--list", **folders).stdout)["_meta"]["hostvars"]
    from_nodes = {
        (nic["leaf_port"], node, nic["netdev"], nic["rail"])
        for node in ("n1", "n2")
        for nic in variables[node]["fabric_nics"]
    }
    from_leaf = {(p["port"], p["host"], p["netdev"], p["rail"]) for p in variables["leaf0"]["leaf_ports"]}
    assert from_nodes == from_leaf
    assert variables["n2"]["fabric_nics"][1] == {
        "rail": "rail1",
        "netdev": "fab1",
        "rdma_device": "rxe1",
        "ipv4": "10.10.1.2/24",
        "leaf": "leaf0",
        "leaf_port": "swp4",
    }


def test_a_running_lab_brings_its_own_size_ports_and_strict_host_keys(folders: dict[str, str]) -> None:
    """Catches an inventory of the default size for a larger lab, and one that accepts any host key."""
    run_folder = Path(folders["XDG_RUNTIME_DIR"]) / f"shakedown-{os.getuid()}" / "unit"
    run_folder.mkdir(parents=True)
    guests = {m.name: state.Guest(Process(1, 1), 2200 + i) for i, m in enumerate(Topology(3).machines)}
    state.State("unit", 3, "/images/abc", "tcg", Process(1, 1), guests, ready=True).save(
        run_folder / "state.json"
    )
    variables = json.loads(run("--list", **folders).stdout)["_meta"]["hostvars"]
    assert sorted(variables) == ["head", "leaf0", "n1", "n2", "n3"]
    assert variables["n3"]["ansible_port"] == 2203
    assert variables["n3"]["ansible_ssh_private_key_file"] == "/images/abc/id_ed25519"
    arguments = variables["n3"]["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in arguments
    assert f"UserKnownHostsFile={run_folder}/known_hosts" in arguments
    assert json.loads(run("--host", "n3", **folders).stdout) == variables["n3"]


def test_a_damaged_state_is_one_line_and_status_2(folders: dict[str, str]) -> None:
    """Catches Ansible running against the default topology while the real lab is another."""
    run_folder = Path(folders["XDG_RUNTIME_DIR"]) / f"shakedown-{os.getuid()}" / "unit"
    run_folder.mkdir(parents=True)
    (run_folder / "state.json").write_text("{")
    done = run("--list", **folders)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
