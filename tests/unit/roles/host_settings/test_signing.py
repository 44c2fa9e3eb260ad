"""A host without a fabric's settings has the one service that signs, and nothing else."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from conftest import ROLE
from host_settings import system, targets
from host_settings.model import NotApplicable, Run
from jinja2 import Environment

from tests.kit.run import ran

REPOSITORY = ROLE.parents[1]
UNIT = "host-settings-sign.socket"
TREE = "etc/systemd/system"


@pytest.mark.parametrize("enabled", [False, True])
def test_it_is_the_one_service_and_comes_back_as_it_was(tmp_path, enabled):
    """Catches: a submit host that serves what only nodes serve, or gets a node's traffic class; a rollback
    that stops a service that ran before."""
    (tmp_path / "signing.json").write_text('{"schema": 1}')
    words = {"is-enabled": ("disabled", "enabled")[enabled], "is-active": ("inactive", "active")[enabled]}
    live = SimpleNamespace(
        root=Path("/"),
        exists=lambda path: path == "/run/systemd/system",
        run=lambda *argv: system.Done(0, f"{words[argv[1]]}\n", ""),
    )
    (item,) = targets.load_target(live, "signing", tmp_path).read()
    assert (item.key, item.wanted) == (UNIT, "enabled active")
    assert item.found == f"{words['is-enabled']} {words['is-active']}"
    for value, verb in ((item.wanted, "enable"), (item.found, ("disable", "enable")[enabled])):
        assert item.actions(value) == (Run(("systemctl", "--quiet", verb, "--now", UNIT)),)


@pytest.mark.slow
def test_the_role_writes_nothing_in_check_mode_and_takes_its_files_back(tmp_path):
    """Catches: a preview or check mode that writes; a second run that changes; a rollback that
    leaves the wanted state."""
    tree = tmp_path / "root"
    tree.mkdir()
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "tasks": [
                {"ansible.builtin.include_role": {"name": "host_settings", "tasks_from": "signing"}},
                {"ansible.builtin.debug": {"msg": "rows={{ host_settings_changes | default([]) | length }}"}},
            ],
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    facts = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "host_settings_root": str(tree),
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"head": facts}}}))

    def run(step: str, *options: str) -> str:
        done = ran(
            *("ansible-playbook", "-i", tmp_path / "hosts.yml", tmp_path / "play.yml"),
            *("-e", json.dumps({"host_settings_signing_step": step}), *options),
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "ANSIBLE_ROLES_PATH": str(REPOSITORY / "roles"),
                "ANSIBLE_NOCOLOR": "1",
                "LC_ALL": "C.UTF-8",
            },
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "rows=1" in run("preview")
    assert "changed=1" in run("apply", "--check")
    assert not list(tree.iterdir())
    wanted = tree / "etc/shakedown/settings/signing.json"
    assert "changed=1" in run("apply")
    assert (tree / TREE / UNIT).is_file() and (tree / TREE / "host-settings-sign@.service").is_file()
    assert json.loads(wanted.read_text()) == {"schema": 1}
    assert [path.name for path in wanted.parent.iterdir()] == ["signing.json"]
    assert "changed=0" in run("apply")
    assert "changed=1" in run("rollback", "--check") and wanted.exists()
    run("rollback")
    assert not wanted.exists()
    assert "changed=0" in run("rollback")


def test_where_no_systemd_runs_nothing_is_set(tmp_path):
    """Catches: site.yml that fails on hosts in namespaces or containers, where nothing serves a socket."""
    (tmp_path / "signing.json").write_text('{"schema": 1}')
    live = SimpleNamespace(root=Path("/"), exists=lambda path: False)
    (item,) = targets.load_target(live, "signing", tmp_path).read()
    assert isinstance(item, NotApplicable) and "no systemd" in item.reason


# Whether a host gets the service by itself; a node with a fabric has it with its settings.
HOSTS = {("compute", "fabric"): False, ("compute", "none"): True, ("submit", "fabric"): True}
HOSTS |= {("submit", "none"): True}


def test_the_playbooks_install_it_and_take_it_back():
    """Catches: a node or a submit host without the service, whose outputs or lines of an order's chain are
    named unsigned; one that stays after rollback.yml; a node that gets it twice; one that is only read, and
    is changed."""
    steps = {}
    for book in ("site", "rollback"):
        for play in yaml.safe_load((REPOSITORY / f"playbooks/{book}.yml").read_text()):
            for task in play.get("tasks", []):
                role = task.get("ansible.builtin.include_role", {})
                if role.get("tasks_from") == "signing":
                    assert play["hosts"] == "submit:compute" and play["tags"] == ["hosts"]
                    when = task["when"]
                    steps[book, task["vars"]["host_settings_signing_step"]] = (
                        when if isinstance(when, list) else [when]
                    )
    assert set(steps) == {("site", "preview"), ("site", "apply"), ("rollback", "rollback")}
    for step, conditions in steps.items():
        assert ("(manage | default({})).hosts | default(true)" in conditions) == (step[0] == "site")
        for (group, fabric), wanted in HOSTS.items():
            host = {
                "inventory_hostname": "x",
                "groups": {"compute": ["x"] if group == "compute" else ["n1"]},
                "fabric": {} if fabric == "fabric" else {"no_fabric": True},
            }
            met = [
                Environment(autoescape=True).compile_expression(condition)(**host) for condition in conditions
            ]
            assert all(met) == wanted, (step, group, fabric)


def test_a_host_without_a_fabric_is_rolled_back_without_one():
    """Catches: rollback.yml that ends there for want of fabric_nics, before it comes to the service."""
    (play,) = (
        play
        for play in yaml.safe_load((REPOSITORY / "playbooks/rollback.yml").read_text())
        if play["name"] == "Hosts of the fabric"
    )
    assert [task["when"] for task in play["tasks"]] == ["fabric.no_fabric is not defined"] * 3


def test_what_does_not_run_is_not_told_of_changed_files(tmp_path):
    """Catches: site.yml that fails on a host without systemd, where the signing service is not applicable."""
    spec = importlib.util.spec_from_file_location("its_module", ROLE / "library/host_settings.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.told_of_files(tmp_path) == []
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert module.told_of_files(tmp_path) == [["systemctl", "daemon-reload"]]
    (tmp_path / "run/udev").mkdir()
    (tmp_path / "run/udev/control").touch()
    assert [argv[0] for argv in module.told_of_files(tmp_path)] == ["systemctl", "udevadm"]
