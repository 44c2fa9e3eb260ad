"""Programs that all hosts run lie where no node can change them; tasks of the roles, on this host."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit.files import script
from tests.kit.run import run_playbook

ROOT = Path(__file__).parents[3]
ROLES = ROOT / "roles"
pytestmark = pytest.mark.slow
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def play(tmp_path: Path, tasks: list[dict], **variables: object) -> subprocess.CompletedProcess[str]:
    """Run tasks on the local host `head`, which shares with `n1`."""
    groups = {"submit": {"hosts": {"head": HERE}}, "slurm": {"hosts": {"head": HERE, "n1": HERE}}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
    book = [{"hosts": "head", "gather_facts": True, "gather_subset": ["min"], "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(book))
    return run_playbook(
        "-i", tmp_path / "hosts.json", tmp_path / "play.yml", timeout=240, ANSIBLE_ROLES_PATH=str(ROLES)
    )


def exports(tmp_path: Path, owner: str, **variables: object) -> list[str]:
    """Return what is exported, with its options, where the jobs are of that user."""
    file = tmp_path / "exports"
    task = next(
        task
        for task in yaml.safe_load((ROLES / "shared_stage/tasks/export.yml").read_text())
        if task["name"].startswith("Export it")
    )
    copied = {**task["ansible.builtin.copy"], "dest": str(file), "owner": str(os.getuid())}
    copied |= {"group": str(os.getgid())}
    tasks = [{"include_vars": str(ROLES / "shared_stage/vars/main.yml")}, {"ansible.builtin.copy": copied}]
    done = play(
        tmp_path,
        tasks,
        shared_stage_path="/shared/s",
        shared_stage_clients="10.20.0.0/24",
        shared_stage_connected={"stdout": owner},
        **variables,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("owner", ["alice", "root"])
def test_programs_are_exported_to_be_read_alone(tmp_path, owner):
    """Catches: one node's root that changes what the head and all other nodes run, also where jobs are
    root's."""
    runs, code = exports(tmp_path, owner, shared_code_path="/shared/code")
    squash = "no_root_squash" if owner == "root" else "root_squash"
    assert runs == f"/shared/s 10.20.0.0/24(rw,async,no_subtree_check,{squash})"
    assert code == "/shared/code 10.20.0.0/24(ro,async,no_subtree_check,root_squash)"


def test_without_a_folder_of_their_own_there_is_one_export(tmp_path):
    """Catches: an export of nothing at a site that has one folder."""
    assert len(exports(tmp_path, "alice")) == 1


def test_what_is_mounted_gives_no_rights_and_is_read_back():
    """Catches: a program with root's rights that root of one node leaves for another; programs that a node
    mounts to write; a change that no read-back looks at."""
    mount = yaml.safe_load((ROLES / "shared_stage/tasks/mount.yml").read_text())[-1]
    options = mount["ansible.posix.mount"]["opts"].split(",")
    assert options[0] == "{{ item.access }}" and {"nosuid", "nodev"} <= set(options)
    tasks = yaml.safe_load((ROLES / "shared_stage/tasks/main.yml").read_text())
    read_back = next(task for task in tasks if task["name"].startswith("Nodes cannot write"))
    assert read_back["ansible.builtin.command"]["argv"] == ["test", "!", "-w", "{{ shared_code_path }}"]


@pytest.mark.parametrize("apart", [True, False])
def test_programs_are_put_where_nodes_only_read(tmp_path, apart):
    """Catches: checks or settings of the site that stay on the share that every node writes to."""
    home, code = tmp_path / "share", tmp_path / "code"
    for folder in (home, code):
        folder.mkdir()
    site_packages = (code if apart else home) / (
        f"venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    )
    site_packages.mkdir(parents=True)
    python = site_packages.parents[2] / "bin/python"
    python.parent.mkdir()
    script(python, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    variables = {"shared_stage_path": str(home), "manage": {"shared_folder": True}}
    variables |= {"reframe_site": {"system": "s"}, "reframe_requirements": "/dev/null"}
    variables |= {"reframe_uv": "/bin/true", "ansible_user": "root"}
    if apart:
        variables["shared_code_path"] = str(code)
    # Without rsync's ssh: that the files go there is its own affair.
    configure = [
        task
        for task in yaml.safe_load((ROLES / "reframe/tasks/configure.yml").read_text())
        if "ansible.posix.synchronize" not in task
    ]
    for task in configure:
        if "ansible.builtin.template" in task:
            task["ansible.builtin.template"]["src"] = str(ROLES / "reframe/templates/shakedown.pth.j2")
    (tmp_path / "configure.yml").write_text(json.dumps(configure))
    tasks = [
        {"include_vars": str(ROLES / "reframe/defaults/main.yml")},
        {"include_vars": str(ROLES / "reframe/vars/main.yml")},
        # include_vars is above the play's variables; a default is below.
        {"set_fact": {"reframe_site": {"system": "s"}}},
        {"include_tasks": str(tmp_path / "configure.yml")},
    ]
    done = play(tmp_path, tasks, **variables)
    assert done.returncode == 0, done.stdout[-2000:]
    where = code if apart else home
    assert (where / "site.json").exists()
    assert (site_packages / "shakedown.pth").read_text() == f"{where}/src\n"
    if apart:
        assert list(home.iterdir()) == []


def test_no_playbook_runs_a_program_of_the_share_that_nodes_write_to():
    """Catches: one more command of the submit host, and so of its user there, that any node can change."""
    for book in (ROOT / "playbooks").rglob("*.yml"):
        text = book.read_text()
        for name in ("lock_home", "stage_home", "run_remote", "stage_run", "shared_stage_path"):
            for below in ("venv", "src", "bin", "site.json"):
                assert f"{{{{ {name} }}}}/{below}" not in text, f"{book}: {name}/{below}"
