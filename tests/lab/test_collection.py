"""The built collection on machines: converge, come to rest, mend; with no checkout in reach."""

import re
import subprocess

import pytest

from collection.build import build
from lab.acceptance import BIN, environment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(2400)]


PLAY = """\
- hosts: compute
  gather_facts: false
  roles:
    - shakedown.roce.roce_host
    - shakedown.roce.openmpi
"""
BREAK = "ip link set dev fab1 mtu 1500 && rm /etc/shakedown/mpi.env && cat /sys/class/net/fab1/mtu"
LOOK = "cat /sys/class/net/fab1/mtu; grep -c UCX_ /etc/shakedown/mpi.env"
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@pytest.fixture
def converge(fresh, tmp_path):
    """Run the collection's roles on the lab's nodes; return what changed on each, and what was printed."""
    file = build(tmp_path)
    install = [BIN / "ansible-galaxy", "collection", "install", "--no-deps", "-p", tmp_path, file]
    subprocess.run(install, check=True, capture_output=True, cwd=tmp_path)
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "ansible.cfg").write_text("[defaults]\ninventory_ignore_patterns = ^profiles$\n")
    # What the filters must not take from a checkout fails when it is imported.
    hidden = tmp_path / "hidden/shakedown"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('shakedown of this machine')")
    own = {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_ROLES_PATH": str(tmp_path / "none")}
    own |= {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "PYTHONPATH": str(hidden.parent)}

    def run() -> tuple[dict[str, int], str]:
        argv = [BIN / "ansible-playbook", "-i", fresh.inventory, "play.yml"]
        known = environment(fresh.lab.name, fresh.wheels) | own
        done = subprocess.run(argv, cwd=tmp_path, env=known, capture_output=True, text=True, check=False)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed[-4000:]
        recap = RECAP.findall(printed)
        assert {host for host, *_ in recap} == {"n1", "n2"}, recap
        assert all(bad == "0" for *_, unreachable, failed in recap for bad in (unreachable, failed)), recap
        return {host: int(changed) for host, changed, *_ in recap}, printed

    return run


def test_roles_of_the_collection_converge_and_come_to_rest(fresh, converge):
    """Catches: a role that works from a checkout alone, sets nothing, or changes something every time."""
    changed, printed = converge()
    # site.yml has been here: the same roles from the collection find everything as wanted.
    assert changed == {"n1": 0, "n2": 0}, printed[-4000:]
    broken = fresh.lab.ssh("n1", ["sh", "-c", BREAK])
    assert (broken.returncode, broken.stdout.strip()) == (0, "1500"), broken.stderr
    changed, printed = converge()
    assert changed["n1"] >= 2 and changed["n2"] == 0, (changed, printed[-4000:])
    mtu, settings = fresh.lab.ssh("n1", ["sh", "-c", LOOK]).stdout.split()
    assert int(mtu) > 1500 and int(settings) > 0
    assert converge()[0] == {"n1": 0, "n2": 0}
