"""The commands of docs/how-to/discover.md, run as they stand on two nodes by recorded answers."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from shakedown.discover import ask
from shakedown.onnode import discover_probe
from shakedown.slurm.client import Slurm
from tests.kit.key import make_key
from tests.unit.discover import machines

ROOT = Path(__file__).parents[3]


PAGE = (ROOT / "docs/how-to/discover.md").read_text()
COMMANDS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0].splitlines()
# Before there is a shakedown to run: what they are for is a test of its own (make wheel, CI's clone).
BEFORE = ["git clone https://example.org/shakedown.git", "cd shakedown", "make setup", ". .venv/bin/activate"]
SLURM = {
    "partition": "PartitionName=gpu MaxTime=04:00:00 State=UP",
    "node": "NodeName=gpu1 State=IDLE Partitions=gpu\nNodeName=gpu2 State=IDLE Partitions=gpu\n",
}


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """A folder to work in, with a key, beside a cluster of two HGX H100 that answers as recorded."""
    nodes = (machines.hgx("gpu1", 1), machines.hgx("gpu2", 2))
    monkeypatch.setattr(
        Slurm, "ask", lambda _self, *argv: SLURM["partition" if "partition" in argv else "node"]
    )
    lines = [line for node in nodes for line in discover_probe.lines(node)]
    monkeypatch.setattr(ask, "_run", lambda *_: "\n".join(lines))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inventories").mkdir()
    (tmp_path / ".ssh").mkdir()
    make_key(tmp_path / ".ssh", "id_ed25519")
    return tmp_path


def test_a_new_site_needs_at_most_ten_commands():
    """Catches: a page on which bringing up a site has grown, or whose beginning is not what a clone needs."""
    assert len(COMMANDS) <= 10
    assert COMMANDS[: len(BEFORE)] == BEFORE
    assert re.search(r"^setup:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.slow
def test_the_commands_lead_to_a_signed_plan(cluster, shakedown):
    """Catches: a command of the page that fails, or a plan that no one can check the signature of."""
    done = []
    for line in COMMANDS[len(BEFORE) :]:
        words = shlex.split(line.replace("SITE", "ourcluster").replace("~", str(cluster)))
        if words[0] == "shakedown":
            status, _, err = shakedown(*words[1:])
            assert (status, err) == (0, ""), line
        elif words[0] == "vi":  # the reader takes every mark away
            marked = [p for p in (cluster / "inventories").rglob("*.yml") if "# check" in p.read_text()]
            assert marked
            for path in marked:
                path.write_text(re.sub(r" *# check.*", "", path.read_text()))
        else:
            assert words[:3] == ["ssh-keygen", "-Y", "sign"]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        done.append(words[0])
    assert done == ["shakedown", "vi", "shakedown", "shakedown", "ssh-keygen"]
    plan = cluster / "reports/runs/first/plan.json"
    check = ["ssh-keygen", "-Y", "check-novalidate", "-n", "shakedown-plan", "-s", f"{plan}.sig"]
    with plan.open("rb") as signed:
        subprocess.run(check, check=True, stdin=signed, capture_output=True, env=dict(os.environ))
