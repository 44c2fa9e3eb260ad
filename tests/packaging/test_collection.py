"""The roles as a collection: built, installed into an empty folder, and run with nothing else in reach."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from installed import ROOT, done

from collection.build import NAME, PLUGINS, build, filter_names, with_full_names

pytestmark = pytest.mark.slow


ANSIBLE = Path(sys.executable).parent
# A host with GPUs and without RDMA devices, as recorded.
MAP = ROOT / "tests/unit/topology/h200_vm.json"
PLAY = """\
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    map: "{{ lookup('ansible.builtin.file', 'map.json') }}"
    fabric_nics: []
    host_settings_topology: "{{ map }}"
    host_settings_root: "{{ playbook_dir }}/root"
  tasks:
    - name: Bridges
      ansible.builtin.debug:
        msg: "bridges={{ map | shakedown.roce.gpudirect_acs_bridges }}"
    - name: One role by itself
      ansible.builtin.include_role:
        name: shakedown.roce.numa_pinning
"""
ACCEPTED = (
    '{"numa_pinning_accepted": ["no NIC with an RDMA device"], '
    '"numa_pinning_governor": "keep", "numa_pinning_irqbalance": "keep"}'
)


def entry_points(role: Path) -> set[str]:
    """The ways into a role: what its argument_specs describe."""
    return set(yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"])


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """Where `ansible-galaxy collection install` put the built file."""
    folder = tmp_path_factory.mktemp("collection")
    file = build(folder)
    into = folder / "collections"
    argv = [ANSIBLE / "ansible-galaxy", "collection", "install", "--no-deps", "-p", into, file]
    ended = done(argv, cwd=folder, env={"HOME": str(folder)})
    assert ended.returncode == 0, ended.stderr
    return into


@pytest.fixture
def play(installed, tmp_path):
    """A runner of the play in check mode, with this collection and no checkout: status and output."""
    (tmp_path / "map.json").write_text(MAP.read_text())
    (tmp_path / "root").mkdir()

    def run(*words: str, hides: str, text: str = PLAY) -> subprocess.CompletedProcess[str]:
        (tmp_path / "play.yml").write_text(text)
        # What the collection must not take from elsewhere fails when it is imported.
        hidden = tmp_path / "hidden" / hides
        hidden.mkdir(parents=True)
        (hidden / "__init__.py").write_text(f"raise ImportError('{hides} of this machine')")
        places = {"ANSIBLE_COLLECTIONS_PATH": str(installed), "PYTHONPATH": str(hidden.parent)}
        argv = [ANSIBLE / "ansible-playbook", "-i", "localhost,", "play.yml", "--check", *words]
        return done(argv, cwd=tmp_path, env={"HOME": str(tmp_path), "COLUMNS": "400", **places})

    return run


def test_a_role_of_the_installed_collection_runs(play):
    """Catches: a plugin that only a checkout's roles find, a source or file of a role that was not packed."""
    ended = play("-e", ACCEPTED, hides="shakedown")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r'"?msg"?: "?bridges=\[', ended.stdout)
    assert re.search(r"localhost +: ok=7 +changed=1 +unreachable=0 +failed=0", ended.stdout)
    assert "shakedown.roce.host_settings : Set what differs" in ended.stdout


# Every role by itself, as a site's own play would name it, with all its ways in.
ENTRIES = sorted(
    (path.parents[1].name, path.stem)
    for path in ROOT.glob("roles/*/tasks/*.yml")
    if path.stem in entry_points(path.parents[1])
)
# Roles in a play each, in check mode: what each needs stands in its vars, and nothing of the others does.
ALONE = """\
- hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - role: shakedown.roce.openmpi
      vars: {openmpi_control_subnet: 192.0.2.0/24, fabric_nics: [{rdma_device: mlx5_0}]}
- hosts: localhost
  connection: local
  gather_facts: false
  roles: [shakedown.roce.perftest]
- hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - role: shakedown.roce.gpudirect
      vars:
        fabric_nics: []
        host_settings_topology: "{{ lookup('ansible.builtin.file', 'map.json') }}"
        host_settings_root: "{{ playbook_dir }}/root"
"""


def test_the_example_of_its_readme_runs(play):
    """Catches: an example that names a role, a variable or a form of it that the collection does not have."""
    text = (ROOT / "collection/README.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    assert "role: shakedown.roce." in text
    with_host = "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.add_host:\n"
    with_host += (
        "        {name: localhost, groups: gpu_nodes, ansible_connection: local, ansible_become: false}\n"
    )
    more = {**json.loads(ACCEPTED), "host_settings_root": "{{ playbook_dir }}/root", "fabric_nics": []}
    more["host_settings_topology"] = "{{ lookup('ansible.builtin.file', 'map.json') }}"
    ended = play("-e", json.dumps(more), hides="shakedown", text=with_host + text)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "PLAY [gpu_nodes]" in ended.stdout and re.search(r"changed=[0-9]+ .*failed=0", ended.stdout)


def test_roles_run_alone_in_check_mode(play):
    """Catches: a role that runs only after another has set what it needs."""
    ended = play("-e", ACCEPTED, "--diff", hides="shakedown", text=ALONE)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for role in ("openmpi", "perftest", "gpudirect"):
        assert f"shakedown.roce.{role} : " in ended.stdout
    assert "+export UCX_NET_DEVICES=mlx5_0:1" in ended.stdout


def test_every_role_is_found_by_its_full_name_and_alone(play):
    """Catches: a role that needs another role's file, filter or variable to be read at all."""
    plays = "".join(
        f"- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.import_role:\n"
        f"        name: shakedown.roce.{role}\n        tasks_from: {entry}\n"
        for role, entry in ENTRIES
    )
    assert {role for role, _ in ENTRIES} == {path.name for path in (ROOT / "roles").iterdir()}
    ended = play("--syntax-check", hides="shakedown", text=plays)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_role_refuses_a_host_that_is_not_as_it_should_be(play):
    """Catches: a collection whose filters find nothing wrong, whatever they read."""
    ended = play(hides="shakedown")
    assert ended.returncode == 2
    assert "there are GPUs and no NIC with an RDMA device" in ended.stdout + ended.stderr


def test_a_missing_requirement_is_named(play):
    """Catches: `No filter named ...` and no word of what to install."""
    ended = play(hides="pydantic")
    assert ended.returncode != 0
    said = " ".join((ended.stdout + ended.stderr).split())
    assert f"{NAME} needs the Python packages pydantic and PyYAML where ansible-playbook runs" in said


def test_every_role_and_plugin_is_in_it(installed):
    """Catches: a new role or kind of plugin that the builder does not know."""
    root = installed / "ansible_collections/shakedown/roce"
    roles = {path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir()}
    assert {path.name for path in (root / "roles").iterdir()} == roles
    kinds = {path.parent.name for path in ROOT.glob("roles/*/*/*.py")} - {"files"}
    assert kinds == set(PLUGINS)
    for kind, place in PLUGINS.items():
        assert {path.name for path in ROOT.glob(f"roles/*/{kind}/*.py")} == {
            path.name for path in (root / "plugins" / place).iterdir() if path.suffix == ".py"
        }
    assert not [path for kind in PLUGINS for path in root.glob(f"roles/*/{kind}")]


def test_every_filter_is_called_by_its_full_name(installed):
    """Catches: a short name, which Ansible does not resolve inside a collection."""
    names = {name for path in ROOT.glob("roles/*/filter_plugins/*.py") for name in filter_names(path)}
    assert len(names) > 10
    # Variables of roles may be named like a filter: only calls count, by a bar or through map and select.
    short = re.compile(rf"(?:\||(?:map|select|reject)\(\s*['\"])\s*({'|'.join(names)})\b")
    root = installed / "ansible_collections/shakedown/roce/roles"
    files = [*root.rglob("*.yml"), *root.rglob("*.j2")]
    assert [(path.name, match[1]) for path in files for match in short.finditer(path.read_text())] == []
    full = re.compile(rf"\|\s*{re.escape(NAME)}\.({'|'.join(names)})\b")
    assert {match for path in files for match in full.findall(path.read_text())} == names
    assert with_full_names("{{ a |  roce_x(1) | roce_xy }}", {"roce_x"}, {"m"}) == (
        f"{{{{ a |  {NAME}.roce_x(1) | roce_xy }}}}"
    )


def test_every_module_is_called_by_its_full_name(installed):
    """Catches: a module by its short name, which Mitogen does not find inside a collection."""
    names = {
        path.stem for kind in ("library", "action_plugins") for path in ROOT.glob(f"roles/*/{kind}/*.py")
    }
    assert names
    root = installed / "ansible_collections/shakedown/roce/roles"
    text = "\n".join(path.read_text() for path in root.glob("*/tasks/*.yml"))
    called = re.findall(rf"(?m)^ *((?:{re.escape(NAME)}\.)?(?:{'|'.join(names)})):$", text)
    assert set(called) == {f"{NAME}.{name}" for name in names}
