"""`--check` writes nothing, on an empty submit host either; and what is somebody else's is refused first."""

import json
import os
import subprocess
import sys

import pytest
from submit_host import CHECKOUT, SubmitHost

from tests.kit.files import script
from tests.kit.run import run_playbook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PLAYS = [
    {"hosts": "slurm", "gather_facts": False, "roles": [{"role": "shared_stage"}]},
    {"hosts": "submit", "gather_facts": True, "gather_subset": ["min"], "roles": [{"role": "reframe"}]},
]


def play(
    tmp_path, shared: bool, *options: str, plays: list[dict[str, object]] = PLAYS
) -> subprocess.CompletedProcess[str]:
    """Play the roles of the stage folder on a submit host, and on a node if the folder is ours to share."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    variables = {"shared_stage_path": str(tmp_path / "share/shakedown"), "mgmt_subnet": "127.0.0.0/8"}
    variables |= {"mgmt_ip": "127.0.0.1", "fabric": {"system": "lab"}, "manage": {"shared_folder": shared}}
    children = {
        "submit": {"hosts": {"head": here}},
        "slurm": {"hosts": {"head": here, **({"n1": here} if shared else {})}},
    }
    inventory, book = tmp_path / "hosts.yml", tmp_path / "play.yml"
    inventory.write_text(json.dumps({"all": {"vars": variables, "children": children}}))
    book.write_text(json.dumps(plays))
    return run_playbook(
        "-i",
        inventory,
        book,
        *options,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        ANSIBLE_CACHE_PLUGIN="memory",
    )


def test_a_file_system_of_somebody_elses_is_not_mounted_over(tmp_path):
    """Catches: a site's parallel file system that loses its place, or its line in fstab, to our NFS."""
    findmnt = tmp_path / "findmnt"
    script(findmnt, "#!/bin/sh\necho 10.0.0.1@o2ib:/scratch\n")
    done = play(tmp_path, True)
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    words = f"10.0.0.1@o2ib:/scratch is mounted at {tmp_path}/share/shakedown, and not by Shakedown"
    assert words in said
    assert not (tmp_path / "share").exists()


@pytest.mark.parametrize(
    ("first_line", "refused"),
    [("# The site's own. Nobody but its owner writes here.", True), ("# Written by Shakedown", False)],
)
def test_a_slurm_of_somebody_elses_is_not_replaced(tmp_path, first_line, refused):
    """Catches: a site's slurm.conf, with its accounting and its cluster's name, that ours is written over."""
    reader = tmp_path / "cat"
    theirs = f'[ "$1" = /etc/slurm/slurm.conf ] || exit 1\necho "{first_line}"\n'
    script(reader, f"#!/bin/sh\n{theirs}")
    role = {"name": "slurm", "tasks_from": "preflight"}
    tasks = [{"ansible.builtin.include_role": role, "vars": {"slurm_nodes": ["head"]}}]
    done = play(tmp_path, False, plays=[{"hosts": "submit", "gather_facts": False, "tasks": tasks}])
    said = " ".join(done.stdout.split())
    assert (done.returncode != 0) == refused, said
    # Both cases get as far as the role's own word on it.
    assert "Slurm is not somebody else's" in said
    words = (
        "head: /etc/slurm/slurm.conf not written by Shakedown: leave this Slurm as it is with manage.slurm "
        "false, or replace it with -e slurm_take_over=true"
    )
    assert (words in said) == refused, said


def test_a_submit_host_that_is_still_empty_can_be_checked(tmp_path):
    """Catches: --check that breaks off because a folder is not there yet, writes one, or shows lock files."""
    (tmp_path / "hosts.yml").touch()
    (tmp_path / "play.yml").touch()
    before = sorted(tmp_path.rglob("*"))
    done = play(tmp_path, False, "--check", "--diff")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "ReFrame and shakedown would be installed into" in " ".join(done.stdout.split())
    assert sorted(tmp_path.rglob("*")) == before
    assert "sha256" not in done.stdout
    assert len(done.stdout.splitlines()) < 120


def test_the_whole_of_site_yml_can_be_checked_and_a_site_that_manages_nothing_keeps_etc(tmp_path):
    """Catches: a role that breaks off in --check, or that writes below /etc though manage.hosts is false; a
    table of rows where nothing would change."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    site = tmp_path / "site"
    (site / "group_vars/all").mkdir(parents=True)
    fabric = (CHECKOUT / "inventories/lab/group_vars/all/fabric.yml").read_text()
    (site / "group_vars/all/fabric.yml").write_text(fabric)
    everything = {"shared_stage_path": str(tmp_path / "share/shakedown"), "mgmt_subnet": "127.0.0.0/8"}
    everything |= {"manage": {"hosts": False}, "numa_pinning_accepted": ["no NIC with an RDMA device"]}
    (site / "group_vars/all/site.yml").write_text(json.dumps(everything))
    nics = {
        name: [
            {
                "rail": f"rail{rail}",
                "netdev": f"fab{rail}",
                "rdma_device": f"rxe{rail}",
                "ipv4": f"10.10.{rail}.{number}/24",
                "leaf": "leaf0",
                "leaf_port": f"swp{2 * rail + number}",
            }
            for rail in range(2)
        ]
        for number, name in enumerate(("n1", "n2"), start=1)
    }
    hosts = {name: {**here, "mgmt_ip": "127.0.0.1", "fabric_nics": nics[name]} for name in nics}
    groups = {"submit": {"hosts": {"head": here}}, "compute": {"hosts": hosts}}
    groups |= {"slurm": {"children": {"submit": {}, "compute": {}}}, "switches": {"hosts": {}}}
    (site / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
    before = sorted(tmp_path.rglob("*"))
    done = run_playbook("-i", site, "playbooks/site.yml", "--check", "--diff", ANSIBLE_CACHE_PLUGIN="memory")
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "nothing: every setting is as wanted" in said
    assert "/etc/shakedown" not in said, said
    assert sorted(tmp_path.rglob("*")) == before


def test_acceptance_cannot_be_checked_and_says_so(tmp_path):
    """Catches: acceptance.yml --check that breaks off with a template's words, or that makes a run."""
    site = SubmitHost(tmp_path)
    before = sorted(path for folder in (site.home, site.runs) for path in folder.rglob("*"))
    status, said = site.play("one", "--check")
    assert status != 0
    assert "acceptance measures, so --check has nothing to show: " in said, said[-3000:]
    assert sorted(path for folder in (site.home, site.runs) for path in folder.rglob("*")) == before
