"""The switches' part of site.yml, with a role that only fails or not: how far a failure goes."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit.run import ran

ROOT = Path(__file__).resolve().parents[3]


def plays(failing):
    """The two plays over switches, the role in them replaced."""
    book = [
        play
        for play in yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
        if play["hosts"] == "switches"
    ]
    for task in book[0]["tasks"][0]["block"]:
        if "ansible.builtin.include_role" in task:
            del task["ansible.builtin.include_role"]
            task["ansible.builtin.assert"] = {
                "that": f"inventory_hostname != '{failing}'",
                "fail_msg": "it refused",
            }
    return book


@pytest.mark.slow
@pytest.mark.parametrize("managed", [True, False])
def test_after_a_switch_that_fails_none_is_begun(managed, tmp_path):
    """Catches the second leaf of a pair changed although the first one just failed; and one unread for it."""
    hosts = {
        name: {"ansible_connection": "local", "roce_switch_nos": "eos"}
        for name in ("leaf1", "leaf2", "leaf3")
    }
    inventory = {"switches": {"hosts": hosts, "vars": {"manage": {"switches": managed}}}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays("leaf2")))
    done = ran(
        Path(sys.executable).parent / "ansible-playbook",
        "-i",
        tmp_path / "inventory.yml",
        tmp_path / "play.yml",
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp")},
        cwd=tmp_path,
        timeout=300,
    )
    output = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0, output
    assert "leaf2 is not as wanted - Configure and read back: it refused - as wanted: leaf1" in output, output
    begun = (
        "leaf3 is not as wanted - The switches before this one are as wanted: not begun, because leaf2 is not"
    )
    assert (begun in output) == managed, output
