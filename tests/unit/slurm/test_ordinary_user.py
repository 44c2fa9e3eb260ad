"""Whose jobs and stage folder are, and what is said of sudo: playbooks with a sudo that notes its words."""

import json
import os
import sys

import pytest
import yaml
from submit_host import CHECKOUT, SubmitHost

from tests.kit.files import script
from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow

_SUDO = '#!/bin/sh\necho "$@" >> {log}\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n'
_NO_SUDO = '#!/bin/sh\necho "sudo: a password is required" >&2\nexit 1\n'
# Where scontrol 24.11 says it: on standard output.
_SCONTROL = (
    '#!/bin/sh\ncase "$*" in *"show partition"*) echo "Partition all not found"; exit 1;; esac\nexit 0\n'
)


@pytest.fixture
def sudo(tmp_path):
    """Return a sudo that does as it is told and notes it, and its notes."""
    program, log = tmp_path / "sudo", tmp_path / "sudo.log"
    script(program, _SUDO.format(log=log))
    return program, log


OWN_SUDO = {"ANSIBLE_STRATEGY": "linear"}  # Mitogen does not call that of a test


@pytest.mark.parametrize("run_as", [None, "nobody"])
def test_jobs_are_of_an_ordinary_user_where_the_site_has_sudo(tmp_path, sudo, run_as):
    """Catches: jobs and stage folder of root because the hosts' settings need sudo; run_as that nothing
    heeds; sudo on the controller; an unknown partition told after the folder was made."""
    program, log = sudo
    site = SubmitHost(tmp_path / "site")
    (site.bin / "scontrol").write_text(_SCONTROL)
    (site.bin / "scontrol").chmod(0o755)
    inventory = json.loads(site.inventory.read_text())
    block = {"run_as": run_as} if run_as else {}
    inventory["all"]["vars"] |= {"ansible_become": True, "ansible_become_exe": str(program), "slurm": block}
    site.inventory.write_text(json.dumps(inventory))
    site.plan("r1")
    before = sorted(str(path) for path in site.home.rglob("*"))
    status, said = site.play("r1", quick=False)
    assert status != 0 and "slurm.partition 'all': Slurm has no such partition" in said.replace("''", "'")
    assert (site.runs / "r1" / "refused.txt").read_text().startswith("slurm.partition 'all': Slurm has no")
    assert sorted(str(path) for path in site.home.rglob("*")) == before
    calls = [line for line in (log.read_text() if log.exists() else "").splitlines() if "-u " in line]
    users = {line.split("-u ")[1].split()[0] for line in calls}
    assert users == ({run_as} if run_as else set()), calls
    assert bool(calls) == bool(run_as), calls


def site_play(
    tmp_path, sudo: str, manage: dict[str, bool], *options: str, uid: int = 1000
) -> tuple[int, str]:
    """Call the first play of site.yml for two hosts as an ordinary user: status and what it printed."""
    program = tmp_path / "sudo"
    script(program, sudo)
    user = tmp_path / "id"
    script(user, f"#!/bin/sh\necho {uid}\n")
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    become = {"ansible_become": sudo == _NO_SUDO, "ansible_become_exe": str(program)}
    hosts = {"slurm": {"hosts": {"n1": here, "n2": here}}}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"all": {"vars": {"manage": manage, **become}, "children": hosts}}))
    play = yaml.safe_load((CHECKOUT / "playbooks" / "site.yml").read_text())[:1]
    play[0]["tasks"][0]["ansible.builtin.include_tasks"]["file"] = str(
        CHECKOUT / "playbooks/parts/tasks/moved.yml"
    )
    first = tmp_path / "first.yml"
    first.write_text(yaml.safe_dump(play))
    done = run_playbook(
        "-i",
        inventory,
        first,
        *options,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        ANSIBLE_CACHE_PLUGIN="memory",
        **OWN_SUDO,
    )
    return done.returncode, " ".join(done.stdout.replace("''", "'").split())


@pytest.mark.parametrize("sudo", [_NO_SUDO, _SUDO.format(log="/dev/null")], ids=["denied", "not-asked"])
def test_who_lacks_root_is_told_before_the_first_change(tmp_path, sudo):
    """Catches: a role that breaks off halfway for want of sudo; hosts or keys that are not named."""
    status, said = site_play(tmp_path, sudo, {"packages": True})
    assert status != 0
    assert "not root on n1, n2 (" in said
    assert "which manage.packages, manage.hosts need: set ansible_become true" in said


def test_who_has_root_goes_on(tmp_path):
    """Catches: a check that breaks off where all is well."""
    status, said = site_play(tmp_path, _SUDO.format(log="/dev/null"), {"packages": True}, uid=0)
    assert status == 0, said


def test_where_nothing_is_managed_root_is_not_asked_for(tmp_path):
    """Catches: a site that is only read, refused for want of sudo."""
    status, said = site_play(tmp_path, _SUDO.format(log="/dev/null"), {"hosts": False})
    assert status == 0, said


def test_an_old_key_is_refused_by_the_playbook(tmp_path):
    """Catches: -e slurm_partition=x without effect and without a word."""
    status, said = site_play(
        tmp_path, _SUDO.format(log="/dev/null"), {"hosts": False}, "-e", "slurm_partition=x"
    )
    assert status != 0 and "slurm_partition has moved: write slurm: {partition: ...}" in said


@pytest.mark.parametrize("run_as", [None, "nobody"])
def test_the_stage_folder_is_made_and_written_to_by_its_user(tmp_path, sudo, run_as):
    """Catches: a folder made or a mark written by root, which a share with root_squash refuses."""
    program, log = sudo
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    variables = {"ansible_become": True, "ansible_become_exe": str(program)}
    variables |= {"shared_stage_path": str(tmp_path / "share"), "mgmt_subnet": "127.0.0.0/8"}
    variables |= {"slurm": {"run_as": run_as} if run_as else {}}
    hosts = {"submit": {"hosts": {"n1": here}}, "slurm": {"hosts": {"n1": here, "n2": here}}}
    inventory, play = tmp_path / "hosts.yml", tmp_path / "stage.yml"
    inventory.write_text(json.dumps({"all": {"vars": variables, "children": hosts}}))
    play.write_text(
        json.dumps([{"hosts": "slurm", "gather_facts": False, "roles": [{"role": "shared_stage"}]}])
    )
    done = run_playbook("-i", inventory, play, ANSIBLE_CACHE_PLUGIN="memory", **OWN_SUDO)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "share" / ".mark.n2").read_text() == "n2\n"
    calls = [line for line in (log.read_text() if log.exists() else "").splitlines() if "-u " in line]
    assert {line.split("-u ")[1].split()[0] for line in calls} == ({run_as} if run_as else set()), calls
