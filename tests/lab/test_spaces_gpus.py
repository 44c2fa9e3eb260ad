"""Two GPU nodes as namespaces of one server, and faults planted there. Needs root and a GPU, or two:

    SHAKEDOWN_WHEELS=FOLDER SHAKEDOWN_PACKAGES=FOLDER SHAKEDOWN_PYTORCH=/opt/torch/bin/python3 \\
        python -m pytest tests/lab/test_spaces_gpus.py

nccl-tests are where a job looks for them (/opt/nccl-tests/build). On any other machine it is skipped. The
same steps were made one by one, on one GPU that both nodes share and on two (docs/evidence/gpu.md); as a
whole it has not been run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.acceptance import BIN
from lab.paths import CHECKOUT
from lab.spaces.cluster import SpaceLab, host_gpus

pytestmark = pytest.mark.skipif(not host_gpus() or os.geteuid() != 0, reason="needs root and a GPU")
SHARED = len(host_gpus()) < 2
NAME = "two-gpus"
BOOK_S = 1200


@pytest.fixture(scope="module")
def lab():
    """Two nodes with a GPU each, or with one together; down afterwards, whatever happened."""
    started = SpaceLab.up(2, "shared" if SHARED else "1", NAME)
    try:
        yield started
    finally:
        started.down()


@pytest.fixture(scope="module")
def play(lab, tmp_path_factory):
    """Run a playbook on the lab, with the acceptance of two GPU nodes."""
    site = tmp_path_factory.mktemp("site")
    own = CHECKOUT / "inventories" / "lab_gpus"
    values = site / "group_vars" / "all"
    values.mkdir(parents=True)
    (site / "hosts.py").symlink_to(own / "hosts.py")
    for name in ("fabric.yml", "lab.yml"):
        (values / name).symlink_to(own / "group_vars/all" / name)
    asked = Path(__file__).with_name("one_shared_gpu.yml" if SHARED else "two_gpus.yml")
    (values / "acceptance.yml").write_text(asked.read_text())
    python = os.environ.get("SHAKEDOWN_PYTORCH", "/usr/bin/python3")
    (values / "software.yml").write_text(f"software: {{pytorch: {{from: {{path: {python}}}}}}}\n")

    def run(book, *options):
        argv = [str(BIN / "ansible-playbook"), "-i", str(site), f"playbooks/{book}", *options]
        environment = {**os.environ, "SHAKEDOWN_LAB": NAME, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
        return subprocess.run(argv, cwd=CHECKOUT, env=environment, timeout=BOOK_S, check=False).returncode

    assert run("site.yml") == 0
    return run


def verdict_of(play, tmp_path, run_id, *options):
    """Measure, and return the run's verdict by cell."""
    play("acceptance.yml", "-e", f"run_id={run_id}", "-e", f"run_root={tmp_path}", *options)
    return {
        cell["cell"]: cell for cell in json.loads((tmp_path / run_id / "verdict.json").read_text())["cells"]
    }


def test_data_goes_over_both_rails_by_sockets(play, tmp_path):
    """Catches: two nodes that NCCL takes for one, or a healthy socket network taken for a fallback."""
    cells = verdict_of(play, tmp_path, "healthy", "-e", "acceptance_learn=true")
    proofs = {name: cell["outcome"] for name, cell in cells.items() if "nccl_transport" in name}
    assert proofs and set(proofs.values()) == {"PASS"}


def test_a_rail_left_out_is_named(play, tmp_path):
    """Catches: NCCL_SOCKET_IFNAME that halves the network, unseen."""
    own = json.dumps({"acceptance_learn": True, "acceptance_variables": {"NCCL_SOCKET_IFNAME": "=fab0"}})
    cells = verdict_of(play, tmp_path, "one-rail", "-e", own)
    failed = [cell["reason"] for cell in cells.values() if cell["outcome"] == "FAIL"]
    assert failed and all("fab1" in reason for reason in failed)


@pytest.mark.parametrize(
    ("fault", "words", "said"),
    [
        ("wrong-address", ("n2", "rail1"), "n2 fab1 (rail1): it has the address 10.10.99.2"),
        ("link-down", ("n2", "rail1"), "n2 fab1 (rail1): it is down"),
        ("port-mtu", ("n2", "rail1", 1500), "rail1 loses packets of 9000 bytes between n1 and n2"),
    ],
)
def test_a_spoiled_rail_is_named_and_nothing_is_measured_over_it(lab, play, tmp_path, fault, words, said):
    """Catches: a hang or NCCL's own error in the place of the rail, and a healthy node blamed."""
    lab.fault(fault, *words)
    try:
        cells = verdict_of(
            play, tmp_path, fault, "-e", "acceptance_learn=true", "-e", "acceptance_stages=collective"
        )
    finally:
        lab.fault_clear()
    reasons = {cell["reason"] for name, cell in cells.items() if "nccl_all_reduce" in name}
    assert reasons and all(said in reason and "n1 fab" not in reason for reason in reasons)


def test_a_slow_port_shows_in_its_rail_alone(lab, play, tmp_path):
    """Catches: a slow port that no collective shows, or one that is held against the other rail too."""
    lab.fault("rate", "n2", "rail1", 2000)
    try:
        slow = verdict_of(play, tmp_path, "slow", "-e", "acceptance_learn=true")
    finally:
        lab.fault_clear()
    healthy = verdict_of(play, tmp_path, "slow-cleared", "-e", "acceptance_learn=true")
    lower = {
        rail: [
            name
            for name, cell in healthy.items()
            if "busbw" in name and f"network={rail}" in name and slow[name]["value"] < 0.6 * cell["value"]
        ]
        for rail in ("rail0", "rail1")
    }
    assert lower["rail1"] and not lower["rail0"]
