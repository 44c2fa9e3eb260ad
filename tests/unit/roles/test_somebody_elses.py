"""What Shakedown did not write is refused with its path and the key that would allow it, and comes back.

The roles' own tasks are played, with /etc below a folder: one copy of the roles for each case.
"""

import functools
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit.run import run_playbook

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_OURS = "# Written by Shakedown (roles/slurm): change the inventory, not this file.\n"
_SLURM = (
    "not written by Shakedown: leave this Slurm as it is with manage.slurm false, "
    "or replace it with -e slurm_take_over=true"
)
_LINK = (
    "symbolic link, which rollback.yml could not bring back: leave this Slurm as it is with manage.slurm "
    "false, or put a file in its place"
)
_MUNGE = (
    "and was not written by Shakedown: leave it with manage.slurm false, "
    "or replace it with -e munge_take_over=true"
)
_MARK = f"munge.key was written by Shakedown (roles/munge), sha256 {hashlib.sha256(b'older').hexdigest()}\n"
_FOLDER = (
    "and not by Shakedown: use it as it is with manage.shared_folder false, or name another shared_stage_path"
)
# By host: files of /etc, what runs, and what is refused of it (nothing: it is ours).
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "slurm-conf": ({"slurm/slurm.conf": "ClusterName=theirs\n"}, "", f"/etc/slurm/slurm.conf {_SLURM}"),
    "slurm-others": (
        {"slurm/slurm.conf": _OURS, "slurm/cgroup.conf": "ConstrainCores=yes\n", "slurm/gres.conf": "x\n"},
        "slurmd",
        f"/etc/slurm/cgroup.conf, /etc/slurm/gres.conf {_SLURM}",
    ),
    # To a file of theirs, to nothing, and to one that reads as ours: none would come back as a link.
    "slurm-links": (
        {
            "slurm/slurm.conf": "-> theirs.conf",
            "slurm/theirs.conf": "ClusterName=theirs\n",
            "slurm/cgroup.conf": "-> nowhere",
            "slurm/gres.conf": "-> ours",
            "slurm/ours": _OURS,
        },
        "",
        f"/etc/slurm/slurm.conf, /etc/slurm/cgroup.conf, /etc/slurm/gres.conf: {_LINK}",
    ),
    "slurm-link-taken-over": ({"slurm/slurm.conf": "-> nowhere"}, "", f"/etc/slurm/slurm.conf: {_LINK}"),
    "slurmdbd-conf": ({"slurm/slurmdbd.conf": "StoragePass=x\n"}, "", f"/etc/slurm/slurmdbd.conf {_SLURM}"),
    "daemons": (
        {},
        "slurmctld slurmd slurmdbd",
        f"the running service slurmctld, the running service slurmd, the running service slurmdbd {_SLURM}",
    ),
    "ours": (
        {
            "slurm/slurm.conf": _OURS,
            "slurm/cgroup.conf": _OURS,
            "slurm/gres.conf": _OURS,
            "slurm/slurmdbd.conf": "StoragePass=x\n",
        },
        "slurmctld slurmd slurmdbd",
        "",
    ),
    "empty": ({}, "", ""),
    "munge-key": ({"munge/munge.key": "theirs"}, "", f"/etc/munge/munge.key is not that of key {_MUNGE}"),
    "munge-ours": ({"munge/munge.key": "older", "munge/.shakedown": _MARK}, "", ""),
    # Changed by the site since, or marked by a version that also marked keys which it had only found.
    "munge-changed": (
        {"munge/munge.key": "changed", "munge/.shakedown": _MARK},
        "",
        f"/etc/munge/munge.key is not that of key {_MUNGE}",
    ),
    "munge-marked": (
        {
            "munge/munge.key": "older",
            "munge/.shakedown": "munge.key was written by Shakedown (roles/munge)\n",
        },
        "",
        f"/etc/munge/munge.key is not that of key {_MUNGE}",
    ),
    "fstab": ({"fstab": "fs:/x {share} nfs noauto 0 0\n"}, "", f"fs:/x is in fstab for {{share}}, {_FOLDER}"),
    "fstab-ours": ({"fstab": "10.20.0.10:{share} {share} nfs4 rw 0 0\n"}, "", ""),
    "exports": (
        {"exports": "# all of it\n{share} 10.0.0.0/8(rw)\n"},
        "",
        f"/etc/exports exports {{share}}, {_FOLDER}",
    ),
    "exports-d": (
        {"exports.d/site.exports": '"{share}" *(rw)\n'},
        "",
        f"/etc/exports.d/site.exports exports {{share}}, {_FOLDER}",
    ),
    "exports-ours": (
        {"exports.d/shakedown.exports": "{share} *(rw)\n", "exports": "{share}s *(rw)\n"},
        "",
        "",
    ),
}
_PART = {"munge": "munge", "fstab": "shared_stage", "exports": "shared_stage"}


def below(folder: Path, text: str) -> str:
    """Return a role's text with its /etc below a folder."""
    return re.sub(r"(?<![\w/])/etc\b", str(folder / "etc"), text)


def copied(folder: Path, role: str) -> Path:
    """Copy a role, with its /etc below the folder."""
    made = folder / role
    shutil.copytree(ROOT / "roles" / role, made)
    for path in made.rglob("*.yml"):
        path.write_text(below(folder, path.read_text()))
    return made


def play(folder: Path, plays: list[dict[str, object]], *options: str, **hosts: dict[str, object]) -> str:
    """Play on hosts that are this machine; return what was printed, on one line."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    key = {"mgmt_ip": "10.20.0.10", "munge_before": {"results": [{"stat": {"checksum": "another"}}]}}
    groups = {
        "submit": {"hosts": {"key": here | key}},
        "compute": {"hosts": {n: here | v for n, v in hosts.items()}},
    }
    (folder / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    (folder / "play.json").write_text(json.dumps(plays))
    done = run_playbook(
        "-i",
        folder / "hosts.json",
        folder / "play.json",
        *options,
        timeout=500,
        ANSIBLE_ROLES_PATH=str(ROOT / "roles"),
        ANSIBLE_CACHE_PLUGIN="memory",
    )
    assert done.returncode in (0, 2), done.stdout[-3000:] + done.stderr
    return " ".join(done.stdout.split())


def programs(folder: Path, running: str) -> str:
    """Write a systemctl and a findmnt for the folder; return the folder that they are in."""
    made = folder / "bin"
    made.mkdir()
    systemctl = (
        f'#!/bin/sh\nshift\nfor unit; do case " {running} " in\n'
        '*" $unit "*) echo active;; *) echo inactive;; esac; done\nexit 3\n'
    )
    real = shutil.which("findmnt") or "findmnt"
    findmnt = (
        f'#!/bin/sh\n[ "$1" = --fstab ] || exit 1\nshift\nexec {real} --tab-file {folder}/etc/fstab "$@"\n'
    )
    for name, text in (("systemctl", systemctl), ("findmnt", findmnt)):
        (made / name).write_text(text)
        (made / name).chmod(0o755)
    return str(made)


@functools.cache
def refusals(base: Path) -> dict[str, str]:
    """Play every case once; return by host what was refused."""
    plays: list[dict[str, object]] = []
    hosts: dict[str, dict[str, object]] = {}
    for host, (files, running, _says) in CASES.items():
        folder = base / host
        for name, text in files.items():
            path = folder / "etc" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                path.symlink_to(text[3:])
            else:
                path.write_text(text.replace("{share}", "/nowhere/share"))
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        (folder / "etc/fstab").touch()
        role = copied(folder, _PART.get(host.partition("-")[0], "slurm"))
        variables = {"slurm_controller": "key", "slurm_take_over": "taken-over" in host}
        variables |= {"slurm_nodes": [host], "shared_stage_path": "/nowhere/share"}
        variables |= {"shared_stage_server": host if "exports" in host else "key"}
        path = f"{programs(folder, running)}:{os.environ['PATH']}"
        include = {"include_role": {"name": str(role), "tasks_from": "preflight"}, "vars": variables}
        tasks = [{"block": [include], "rescue": [{"debug": {"msg": "refused"}}]}]
        plays.append({"hosts": host, "gather_facts": False, "environment": {"PATH": path}, "tasks": tasks})
        hosts[host] = {}
    said = play(base, plays, "-e", json.dumps({"mgmt_subnet": "10.20.0.0/24"}), **hosts)
    found = re.findall(r"\[ERROR\]: Task failed: Action failed: ([\w-]+): (.*?)(?= Origin:)", said)
    assert len(found) == said.count("[ERROR]"), said[-6000:]
    return {host: words.replace(f"{base}/{host}/etc/", "/etc/") for host, words in found}


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What was refused, by host."""
    return refusals(tmp_path_factory.mktemp("theirs"))


@pytest.mark.parametrize("host", CASES)
def test_what_is_not_ours_is_refused_with_its_path_and_key(refused, host):
    """Catches: a file or service of the site's that a role replaces, or a refusal without the way out."""
    says = CASES[host][2].replace("{share}", "/nowhere/share")
    said = refused.get(host, "")
    assert bool(said) == bool(says), said
    assert says in said


def munge_with(folder: Path, key: str) -> Path:
    """Copy the role munge with a takeover.yml: its own tasks, but with this key as that of the cluster."""
    role = copied(folder, "munge")
    block = next(
        b["block"] for b in yaml.safe_load((role / "tasks/configure.yml").read_text()) if "block" in b
    )
    tasks = {task["name"]: task for task in block}
    for task in tasks.values():
        for words in task.values():
            if isinstance(words, dict):
                words.pop("owner", None), words.pop("group", None)
    install = tasks["Install the key"]
    del install["notify"], install["ansible.builtin.copy"]["src"]
    install["ansible.builtin.copy"]["content"] = key
    names = ("Keep the key that is replaced", install["name"], "Look at the key that is there now")
    wanted = [{"include_tasks": "preflight.yml"}, *(tasks[name] for name in (*names, "Note that it is ours"))]
    (role / "tasks/takeover.yml").write_text(json.dumps(wanted))
    return role


def rollback_of(folder: Path) -> dict[str, object]:
    """Return the play of rollback.yml for Slurm, with the roles of this folder."""
    book = yaml.safe_load((ROOT / "playbooks/rollback.yml").read_text())
    found = next(one for one in book if one["name"] == "Slurm that Shakedown replaced")
    for task in found["tasks"]:
        role = task["ansible.builtin.include_role"]
        role["name"] = str(folder / role["name"])
    return {**found, "hosts": "n1"}


def test_what_is_replaced_comes_back(tmp_path):
    """Catches: a slurm.conf or munge.key that is lost with -e ..._take_over=true, or ours kept as theirs by a
    second run; a gres.conf of ours that stays beside their slurm.conf; a rollback that leaves a key that
    others may read, or writes over what the site has changed since."""
    etc, bin_path = tmp_path / "etc", programs(tmp_path, "")
    theirs = {"slurm/slurm.conf": 0o644, "slurm/cgroup.conf": 0o640, "munge/munge.key": 0o400}
    for name, mode in {**theirs, "slurm/slurmdbd.conf": 0o600}.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(f"theirs: {name}\n")
        (etc / name).chmod(mode)
    slurm, munge = copied(tmp_path, "slurm"), munge_with(tmp_path, "ours")
    ours = [f"slurm/{name}.conf" for name in ("slurm", "cgroup", "gres")]
    takeover = [
        {"include_role": {"name": str(slurm), "tasks_from": "preflight"}},
        {"include_role": {"name": str(munge), "tasks_from": "takeover"}},
        *({"copy": {"dest": str(etc / name), "content": _OURS, "mode": "0644"}} for name in ours),
    ]
    variables = {"slurm_nodes": ["n1"], "slurm_take_over": True, "munge_take_over": True}
    path = f"{bin_path}:{os.environ['PATH']}"
    play_of = {"hosts": "n1", "gather_facts": False, "vars": variables, "environment": {"PATH": path}}
    look = {"hosts": "n1", "gather_facts": False, "tasks": [{"command": f"cp -a {etc} {tmp_path}/taken"}]}
    change = {"hosts": "n1", "gather_facts": False, "tasks": []}
    change["tasks"] = [
        {"copy": {"dest": str(etc / name), "content": "since\n"}}
        for name in ("slurm/slurm.conf", "munge/munge.key")
    ]
    back = rollback_of(tmp_path)
    keep = {**look, "tasks": [{"command": f"cp -a {etc} {tmp_path}/back"}]}
    plays = [*[{**play_of, "tasks": takeover}] * 2, look, back, keep, change, back]
    said = play(tmp_path, plays, n1={})
    assert "failed=0" in said, said[-3000:]
    assert (tmp_path / "taken/munge/munge.key").read_text() == "ours"
    assert (tmp_path / "taken/slurm/gres.conf").read_text() == _OURS
    for name, mode in theirs.items():
        assert (etc / f"{name}.before-shakedown").read_text() == f"theirs: {name}\n"
        assert (tmp_path / "back" / name).read_text() == f"theirs: {name}\n"
        assert stat.S_IMODE((tmp_path / "back" / name).stat().st_mode) == mode, name
    assert sorted(path.name for path in (tmp_path / "back/slurm").glob("*.conf")) == [
        "cgroup.conf",
        "slurm.conf",
        "slurmdbd.conf",
    ]
    assert (etc / "slurm/slurmdbd.conf").read_text() == "theirs: slurm/slurmdbd.conf\n"
    for name in ("slurm/slurm.conf", "munge/munge.key"):
        assert (etc / name).read_text() == "since\n", name


def test_a_key_that_all_nodes_share_already_stays_the_sites(tmp_path):
    """Catches: a munge.key of the site's that is marked as Shakedown's because all hosts have the same one: a
    later, different key would replace it without a word, and without a copy."""
    (tmp_path / "etc/munge").mkdir(parents=True)
    (tmp_path / "etc/munge/munge.key").write_text("theirs")
    role = munge_with(tmp_path, "theirs")
    one = {"hosts": "n1", "gather_facts": False, "vars": {"munge_key_host": "n1"}}
    said = play(
        tmp_path, [{**one, "tasks": [{"include_role": {"name": str(role), "tasks_from": "takeover"}}]}], n1={}
    )
    assert "failed=0" in said, said[-3000:]
    assert [path.name for path in (tmp_path / "etc/munge").iterdir()] == ["munge.key"]


def test_packages_are_the_sites_and_what_is_missing_is_told_with_the_key(tmp_path):
    """Catches: a package that is installed though manage.packages is false, or a missing program told in
    Ansible's words, without the key that would allow it."""
    installed = tmp_path / "installed"
    for name in ("apt-get", "dnf"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {installed}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ompi_info").write_text("#!/bin/sh\necho mca:pml:ob1:version\n")
    (tmp_path / "ompi_info").chmod(0o755)
    tasks = [
        {"block": [{"include_role": {"name": role}}], "rescue": [{"debug": {"msg": "refused"}}]}
        for role in ("perftest", "openmpi")
    ]
    variables = {"manage": {"packages": False, "hosts": False}, "openmpi_control_subnet": "10.0.0.0/8"}
    one = {"hosts": "n1", "gather_facts": False, "vars": variables, "environment": {"PATH": str(tmp_path)}}
    said = play(tmp_path, [{**one, "tasks": tasks}], n1={})
    words = "or let it be installed with manage.packages true, or say in software."
    assert re.search(rf"n1: ib_write_bw --version says .{{1,300}}: install perftest, {words}perftest", said)
    assert re.search(rf"n1: ompi_info says .mca:pml:ob1.{{1,300}} OpenMPI with UCX, {words}openmpi", said)
    assert not installed.exists()
