"""`playbooks/site.yml` with --limit, up to where it would change a host."""

import json
import sys

import pytest
import yaml
from submit_host import CHECKOUT

from tests.kit.cases import cases
from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow


@cases(
    "options, refused",
    (("--limit", "n1"), True),
    (("--limit", "n1", "--tags", "slurm"), True),
    (("--limit", "n1", "-e", '{"manage": {"slurm": false}}'), False),
    (("--limit", "n1", "--tags", "hosts"), False),
    (("--limit", "leaf0"), False),
    ((), False),
)
def test_a_limit_is_refused_where_slurm_needs_every_node(tmp_path, options, refused):
    """Catches: --limit n1 that breaks off in a template of Slurm; a limit refused that would have worked."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    groups = {"slurm": ("head", "n1", "n2"), "switches": ("leaf0",)}
    children = {group: {"hosts": dict.fromkeys(names, here)} for group, names in groups.items()}
    inventory = tmp_path / "hosts.yml"
    owned = {"manage": {"slurm": True}, "fabric": {"system": "lab"}, "mgmt_subnet": "127.0.0.0/8"}
    groups_of_slurm = {"submit": {"hosts": {"head": {}}}, "compute": {"hosts": {"n1": {}, "n2": {}}}}
    inventory.write_text(json.dumps({"all": {"children": children | groups_of_slurm, "vars": owned}}))
    # Only the play that asks of --limit: the later ones change hosts.
    first = tmp_path / "first.yml"
    plays = yaml.safe_load((CHECKOUT / "playbooks" / "site.yml").read_text())
    first.write_text(yaml.safe_dump(plays[1:2]))
    done = run_playbook("-i", inventory, first, *options, ANSIBLE_CACHE_PLUGIN="memory")
    said = " ".join(done.stdout.split())
    assert (done.returncode != 0) is refused, done.stdout
    assert ("--limit n1 leaves out head, n2: Slurm's files name every node" in said) is refused


@cases(
    "playbook, limit, said",
    ("nightly", "n1", "--limit n1 leaves out localhost, the host of the timer"),
    ("nightly", "leaf0", "--limit leaf0 leaves out localhost, the host of the timer"),
    ("rollback", "leaf0", "leaf0: nothing was kept in"),  # status 0: the switch was never changed
    ("discover", "n1", "`shakedown discover FOLDER --ansible INVENTORY` calls this playbook"),
)
def test_a_limit_that_leaves_nothing_to_do_is_refused_in_a_sentence(playbook, limit, said):
    """Catches: plays without a host and exit status 0, as if the timer were there or the switch as before."""
    words = ("-i", "inventories/lab", f"playbooks/{playbook}.yml", "--check", "--limit", limit)
    done = run_playbook(*words, ANSIBLE_TIMEOUT="3")
    assert done.returncode == (0 if playbook == "rollback" else 2), done.stdout
    assert said in " ".join((done.stdout + done.stderr).split()), done.stdout
