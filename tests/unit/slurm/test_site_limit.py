"""`playbooks/site.yml` with --limit, up to where it would change a host."""

import json
import sys

import pytest
import yaml
from submit_host import CHECKOUT

from tests.kit.run import run_playbook

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--limit", "n1"), True),
        (("--limit", "n1", "--tags", "slurm"), True),
        (("--limit", "n1", "-e", '{"manage": {"slurm": false}}'), False),
        (("--limit", "n1", "--tags", "hosts"), False),
        (("--limit", "leaf0"), False),
        ((), False),
    ],
)
def test_a_limit_is_refused_where_slurm_needs_every_node(tmp_path, options, refused):
    """Catches: --limit n1 that breaks off in a template of Slurm; a limit refused that would have worked."""
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    groups = {"slurm": ("head", "n1", "n2"), "switches": ("leaf0",)}
    children = {group: {"hosts": dict.fromkeys(names, here)} for group, names in groups.items()}
    inventory = tmp_path / "hosts.yml"
    owned = {"manage": {"slurm": True}, "fabric": {"system": "lab"}}
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
