"""Every shipped and every discovered folder has what the playbooks use, and the next command takes it."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from jinja2 import Environment, nodes

from lab.cabling import document
from shakedown.discover.ask import Answers
from shakedown.discover.draft_site import describe
from shakedown.discover.folder import files, write_folder
from tests.kit.run import ran
from tests.kit.site import CHECKOUT
from tests.unit.slurm.submit_host import SubmitHost, end_turn

sys.path.append(str(CHECKOUT / "tests/unit/discover"))
import machines

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:invalid escape")]
JINJA = Environment()  # noqa: S701  (parsed, never rendered)
# What Ansible and Jinja know by themselves.
GIVEN = re.compile(
    r"(ansible|inventory|playbook|role|play)_\w+|groups|group_names|hostvars|omit|item|lookup|query|now|vars|range"
    r"|dict|namespace|loop|discover_(file|program)"  # the last two by `shakedown discover`
)
# Keys whose text is an expression without braces.
BARE = frozenset({"when", "that", "failed_when", "changed_when", "until"})


class Loader(yaml.SafeLoader):
    """Reads what Ansible reads."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def read(file: Path) -> Any:
    """Return a YAML file's content."""
    return yaml.load(file.read_text(), Loader)  # noqa: S506  (a SafeLoader)


def used(text: str) -> set[str]:
    """Return the variables that a template needs: neither set in it nor asked whether they are there."""
    tree = JINJA.parse(text)
    names = {one.name for one in tree.find_all(nodes.Name) if one.ctx == "load"}
    made = {one.name for one in tree.find_all(nodes.Name) if one.ctx != "load"}
    macros = {one.name for one in tree.find_all(nodes.Macro)}
    asked = {
        one.name
        for kind in (nodes.Filter, nodes.Test)
        for guard in tree.find_all(kind)
        if guard.name in ("default", "d", "defined", "undefined")
        for one in ([guard.node] if guard.node else [])
        if isinstance(one, nodes.Name)
    }
    return names - made - macros - asked


def templates(content: Any, *, bare: bool = False) -> Iterator[str]:
    """Yield every template in what a YAML file holds."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from templates(value, bare=key in BARE)
    elif isinstance(content, list):
        for value in content:
            yield from templates(value, bare=bare)
    elif isinstance(content, str):
        if "{{" in content or "{%" in content:
            yield content
        elif bare:
            yield f"{{{{ {content} }}}}"


def asked_in(content: Any) -> set[str]:
    """Return the names that a task asks for with `is defined` before it uses them."""
    return set(re.findall(r"(\w+) is (?:not )?defined", json.dumps(content, default=str)))


def set_in(content: Any) -> set[str]:
    """Return the variables that tasks and plays set."""
    found: set[str] = set()
    if isinstance(content, dict):
        for key, value in content.items():
            if key in ("vars", "ansible.builtin.set_fact") and isinstance(value, dict):
                found |= value.keys()
            if key in ("register", "loop_var", "index_var"):
                found.add(value)
            found |= set_in(value)
        if "role" in content:
            found |= content.keys()
    elif isinstance(content, list):
        for value in content:
            found |= set_in(value)
    return found


def playbooks_and_roles() -> tuple[dict[str, set[str]], set[str]]:
    """Return what each file needs, and what the playbooks and roles give by themselves."""
    needs: dict[str, set[str]] = {}
    gives: set[str] = set()
    books = [*(CHECKOUT / "playbooks").rglob("*.yml")]
    tasks = [file for part in ("tasks", "handlers") for file in (CHECKOUT / "roles").glob(f"*/{part}/*.yml")]
    known = [file for part in ("defaults", "vars") for file in (CHECKOUT / "roles").glob(f"*/{part}/*.yml")]
    for file in (*books, *tasks, *known):
        content = read(file)
        gives |= set_in(content)
        if file in known:
            gives |= {*(content or {})}
        name = str(file.relative_to(CHECKOUT))
        for task in content if isinstance(content, list) else [content]:
            found = {one for text in templates(task) for one in used(text)}
            needs.setdefault(name, set()).update(found - asked_in(task))
            for text in templates(task):
                if "template_vars=" in text:
                    gives.update(re.findall(r"'(\w+)':", text))
    for file in (CHECKOUT / "roles").glob("*/templates/*"):
        text = file.read_text()
        needs[str(file.relative_to(CHECKOUT))] = used(text)
        # What one template sets, those that it includes may use.
        gives |= {one.name for one in JINJA.parse(text).find_all(nodes.Name) if one.ctx == "store"}
    for options in specifications():
        gives |= options.keys()  # refused by its name where it is required and not there
    return needs, gives


def specifications() -> Iterator[dict[str, Any]]:
    """Yield the options of every entry point of every role."""
    for file in sorted((CHECKOUT / "roles").glob("*/meta/argument_specs.yml")):
        for entry in read(file)["argument_specs"].values():
            yield entry.get("options", {})


def variables_of(folder: Path) -> set[str]:
    """Return every variable that a folder gives to a host or to all."""
    found: set[str] = set()
    for file in folder.glob("group_vars/**/*.yml"):
        found |= {*(read(file) or {})}
    for own in hosts_of(folder).values():
        found |= own.keys()
    return found


def hosts_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the variables that a folder's own file of hosts gives each."""
    found = read(folder / "hosts.yml") if (folder / "hosts.yml").exists() else document("own", "foreign")
    groups = [found["_meta"]["hostvars"]] if "_meta" in found else [g.get("hosts") for g in found.values()]
    return {name: own for hosts in groups for name, own in (hosts or {}).items() if own}


def lost(netdev: int) -> dict[str, Any]:
    """The answers of three nodes, one of which lost a GPU and a NIC."""
    answers = machines.answers(*(machines.hgx(f"gpu{n}", n) for n in (1, 2, 3)), silent={"gpu4": "DOWN"})
    broken = answers["nodes"]["gpu3"]
    broken["topology"]["gpus"].pop()
    del broken["nics"][netdev]
    return answers


def changed(**nic: Any) -> dict[str, Any]:
    """The answers of three nodes whose NICs are all of another kind."""
    answers = machines.answers(*(machines.hgx(f"gpu{n}", n) for n in (1, 2, 3)))
    for node in answers["nodes"].values():
        for one in node["nics"]:
            one.update(nic)
    return answers


SHIPPED = sorted(folder.name for folder in (CHECKOUT / "inventories").iterdir() if folder.is_dir())
DISCOVERED = {
    "lab_of_lldp": machines.lab(),
    "lab_without": machines.lab(lldp=False),
    "one": machines.answers(machines.hgx("gpu1", 1)),
    "lost": lost(2),
    "bonds": changed(master="bond0", ipv4=[]),
    "infiniband": changed(link_layer="InfiniBand"),
    "bare": machines.answers(machines.answer("n1", [machines.nic("eno1", "192.0.2.1/24")])),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Every folder, by name."""
    made = {folder.name: folder for folder in (CHECKOUT / "inventories").iterdir() if folder.is_dir()}
    for name, answers in DISCOVERED.items():
        made[name] = tmp_path_factory.mktemp("sites") / name
        write_folder(made[name], files(describe(Answers.model_validate(answers)), name))
    return made


def test_every_variable_that_a_role_uses_is_given_in_every_folder(folders):
    """Catches: `'mgmt_subnet' is undefined`: a variable without a default that a folder does not have, and
    one that is there and holds nothing (`omit`), which `is defined` takes for a value."""
    needs, gives = playbooks_and_roles()
    missing = {
        f"{folder}: {name} of {file}"
        for folder, path in folders.items()
        for given in [gives | variables_of(path)]
        for file, names in needs.items()
        for name in names - given
        if not GIVEN.fullmatch(name)
    }
    assert sorted(missing) == []
    for path in folders.values():
        for file in path.rglob("*.yml"):
            assert not re.search(r"\bomit\b", file.read_text()), file


def test_no_role_refuses_what_a_folder_says_of_its_hosts(folders):
    """Catches: NICs without a leaf, as discover writes them where no cable is known, that a role requires."""
    known = [*specifications()]
    wrong = {
        f"{folder}: {host}: {message}"
        for folder, path in folders.items()
        for host, own in hosts_of(path).items()
        for options in known
        for name in options.keys() & own.keys()
        for message in ArgumentSpecValidator({name: options[name]}).validate({name: own[name]}).error_messages
    }
    assert sorted(wrong) == []


@pytest.mark.parametrize("name", DISCOVERED)
def test_every_discovered_folder_can_be_planned_whole_and_in_part(folders, name, shakedown):
    """Catches: a folder that discover wrote and that its very next command, as it is printed, refuses."""
    learn = ["--learn"] if "--learn" in (folders[name] / "group_vars/all/acceptance.yml").read_text() else []
    first = next(iter(DISCOVERED[name]["nodes"]))
    for part in ([], ["--nodes", first]):
        status, _, err = shakedown("plan", folders[name], *learn, *part)
        assert status == 0, err


def checked(folder: Path) -> str:
    """Return what `site.yml --check` says where nothing is managed and no network is in reach."""
    always = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    always |= {"manage": {"hosts": False}}
    book = [Path(sys.executable).with_name("ansible-playbook"), "-i", folder, "playbooks/site.yml"]
    alone = ["unshare", "--map-root-user", "--net", *book, "--check", "-e", json.dumps(always)]
    done = ran(*alone, cwd=CHECKOUT)
    said = " ".join(done.stdout.split())
    assert "is undefined" not in said and "Traceback" not in said, said[-3000:]
    assert "PLAY RECAP" in said, done.stderr[-3000:]
    return said


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not os.environ.get("SHAKEDOWN_EVERY_FOLDER"), reason="minutes for each: make test-folders"
)
@pytest.mark.parametrize("name", [*SHIPPED, *DISCOVERED])
def test_every_folder_goes_through_its_documented_commands(folders, name, shakedown, tmp_path):
    """Catches: a folder that the playbook or a rehearsal of its plan refuses by more than a line of ours."""
    learn = ["--learn"] if "--learn" in (folders[name] / "group_vars/all/acceptance.yml").read_text() else []
    for words in (["plan", folders[name], *learn], ["simulate", tmp_path / "run", "--site", folders[name]]):
        status, _, err = shakedown(*words)
        assert (status, err) == (0, "")
    assert shakedown("verdict", tmp_path / "run")[0] in (0, 3)
    book = [Path(sys.executable).with_name("ansible-playbook"), "-i", folders[name], "playbooks/site.yml"]
    done = ran(*book, "--syntax-check", cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    checked(folders[name])


# What answers where a site's own Slurm would: one partition that takes the plan, no job, every node idle.
SLURM = """
import sys
words, program = " ".join(sys.argv[1:]), Path(sys.argv[0]).name
if (HOME / "silent").exists():
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
if "partition" in words:
    print("PartitionName=all Default=YES MaxTime=UNLIMITED State=UP Nodes=" + (HOME / "nodes").read_text())
elif program == "sinfo":
    print(*(f"{node}|idle|none" for node in (HOME / "nodes").read_text().split(",")), sep="\\n")
elif "show node" in words:
    for node in (HOME / "nodes").read_text().split(","):
        print(f"NodeName={node} State=IDLE CPUTot=256 RealMemory=2000000 Gres=gpu:8 Partitions=all")
elif "config" in words:
    print("SLURM_VERSION = 25.05.0")
"""


@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    not os.environ.get("SHAKEDOWN_EVERY_FOLDER"), reason="minutes for each: make test-folders"
)
@pytest.mark.parametrize(
    ("name", "silent"),
    [*((name, False) for name in (*SHIPPED, "lab_without")), ("lab", True), ("gpu_host", True)],
)
def test_every_folder_is_measured_up_to_its_first_submission(folders, name, silent, tmp_path):
    """Catches: acceptance.yml that breaks off with a template's words, or waits silently for Slurm."""
    host = SubmitHost(tmp_path)
    try:
        for program in ("scontrol", "sinfo", "squeue", "scancel", "sbatch"):
            host.program(host.bin / program, SLURM)
        folder = folders[name]
        nodes = [node for node, own in hosts_of(folder).items() if "fabric_nics" in own or "gpus" in own]
        (host.home / "nodes").write_text(",".join(nodes))
        if silent:
            (host.home / "silent").touch()
        given = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        given |= dict.fromkeys(("shared_stage_path", "reframe_home", "shared_code_path"), str(host.home))
        given |= {"run_root": str(host.runs), "run_id": "first", "software_missing": "not-run"}
        given |= {"ansible_become": False, "acceptance_stages": "config", "stage_limit_s": 5}
        learn = "--learn" in (folder / "group_vars/all/acceptance.yml").read_text()
        given |= {"acceptance_learn": True} if learn else {}
        book = [Path(sys.executable).with_name("ansible-playbook"), "-i", folder, "playbooks/acceptance.yml"]
        alone = ["unshare", "--map-root-user", "--net", *book, "-e", json.dumps(given)]
        done = ran(*alone, cwd=CHECKOUT, env=host.environment)
    finally:
        end_turn()
    said = " ".join(done.stdout.split())
    assert "is undefined" not in said and "Traceback" not in said, said[-3000:]
    assert "PLAY RECAP" in said, done.stderr[-3000:]
    assert host.text("stages") == "config\n", said[-3000:]
    assert ("Slurm does not answer `scontrol show config`: the stages wait for it" in said) is silent


@pytest.mark.timeout(900)
def test_the_check_of_a_discovered_folder_ends_without_an_undefined_variable(folders):
    """Catches: `site.yml --check` of a new folder that breaks off with a template's words where no host tells
    its network: OpenMPI reads it though nothing is managed."""
    said = checked(folders["lab_without"])
    assert "OpenMPI's start-up and the shared folder's is not known on head, n1, n2: say it in" in said
    assert "group_vars/all/site.yml, mgmt_subnet: 192.0.2.0/24 for example" in said
