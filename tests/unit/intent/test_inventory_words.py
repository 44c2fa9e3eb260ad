"""What a person reads of a bad inventory: whose it is, file, line, key and the nearest right one."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from shakedown.benchmarks.planning import read_site
from shakedown.commands.cli import main
from shakedown.intent.places import span
from shakedown.intent.variables import check_names
from shakedown.records.errors import BadInput

INVENTORIES = Path(__file__).parents[3] / "inventories"


@pytest.fixture
def spoilt(tmp_path):
    """Return a copy of an inventory with one text replaced in one file, and what refuses it."""

    def refusal(name: str, file: str, old: str, new: str, count: int = 0) -> str:
        folder = tmp_path / name
        shutil.copytree(INVENTORIES / name, folder)
        text = (folder / file).read_text()
        assert re.search(old, text, flags=re.MULTILINE)
        (folder / file).write_text(re.sub(old, new, text, count=count, flags=re.MULTILINE))
        with pytest.raises(BadInput) as refused:
            read_site(folder)
        return str(refused.value).removeprefix(f"{folder}/")

    return refusal


FABRIC, ACCEPTANCE = "group_vars/all/fabric.yml", "group_vars/all/acceptance.yml"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (FABRIC, r"^(    )dscp:", r"\1dcsp:", r"fabric.yml:10: fabric.roce: unknown key 'dcsp' -- use dscp$"),
        (FABRIC, r"(cnp:.*priority:) 6", r"\1 3", r"fabric.yml:15: fabric.roce.cnp.priority is 3 like"),
        (FABRIC, r"^(    )queue: 3\n", "", r"fabric.yml:\d+: fabric.roce.queue is missing -- add it"),
        (ACCEPTANCE, r"dtype: half", r"dtyp: half", r"acceptance.yml:15: .*unknown key 'dtyp' -- use dtype"),
        (
            ACCEPTANCE,
            r"\A",
            "slurm_mange: true\n",
            r"acceptance.yml:1: variable 'slurm_mange' .* write manage: \{slurm: \.\.\.\}",
        ),
    ],
)
def test_a_bad_key_is_named_with_its_line_and_the_nearest_right_one(spoilt, file, old, new, says):
    """Catches `dcsp` reported as "dscp required", a default in force behind a misspelt name, and no line."""
    assert re.search(says, spoilt("pt_r7615_bcm57508", file, old, new, count=1)), says


def test_what_all_hosts_have_wrong_is_said_once_with_their_names(spoilt):
    """Catches one fault printed for each of eight hosts, or without saying which host it is of."""
    said = spoilt("tolly_xe9680_z9664f", "hosts.yml", r"ipv4: (\S+), leaf: leaf1", r"ipvv4: \1, leaf: leaf1")
    assert "hosts.yml:" in said
    assert said.count("has no ipv4") == 1
    assert "xe9680-1..xe9680-8: fabric_nics: " in said and "rename ipvv4 to ipv4" in said


def test_a_fault_of_one_host_names_its_line(spoilt):
    """Catches the first host's line given for another's fault."""
    old = r"(  xe9680-3:(?:.*\n)*?.*)rail: rail1,"
    said = spoilt("tolly_xe9680_z9664f", "hosts.yml", old, r"\1rail: rail7,", count=1)
    line = int(re.match(r"hosts.yml:(\d+): xe9680-3: ", said)[1])
    text = (INVENTORIES / "tolly_xe9680_z9664f/hosts.yml").read_text().splitlines()
    assert line > next(number for number, one in enumerate(text, 1) if "xe9680-3:" in one)


def test_the_table_of_a_plan_says_whose_its_cells_are(capsys, monkeypatch):
    """Catches a row printed once for each of eight nodes, with nothing that tells them apart."""
    monkeypatch.setattr(sys, "argv", ["shakedown", "plan", str(INVENTORIES / "primergy_cdi")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (None, 0)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("node  ")]
    assert sum("pcie_path" in line and "gpu=0 what=speed" in line for line in lines) == 1
    assert re.search(r"gpu=4 what=speed on cdi-h100nvl-path3,\s", "\n".join(lines))


def test_a_site_keeps_variables_of_its_own(tmp_path):
    """Catches a site's own variable refused: another word, one in a template, Ansible's, a private one."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("all: {vars: {ntp: '{{ slurm_manager }}'}}\n")
    (tmp_path / "group_vars/all.yml").write_text(
        "site_rack: 4\nslurm_manager: x\nansible_hosts: y\n_slurm_mange: z\nslurm_nodes: []\n"
    )
    check_names(tmp_path)
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    with pytest.raises(BadInput, match=r"all.yml:2: variable 'slurm_manager' is not known -- write manage"):
        check_names(tmp_path)


def test_encrypted_and_tagged_files_are_left_to_ansible(tmp_path):
    """Catches a vault, an anchor or a tag of Ansible's that ends the search for names."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    (tmp_path / "group_vars/vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6236\n")
    (tmp_path / "group_vars/all.yml").write_text("a: &x {b: 1}\nc: *x\nd: !vault |\n  6236\nslurm_mange: 1\n")
    with pytest.raises(BadInput, match=r"all.yml:5: variable 'slurm_mange'"):
        check_names(tmp_path)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1"], "n1"),
        (["n1", "n2"], "n1, n2"),
        (["n8", "n9", "n10"], "n8..n10"),
        (["n1", "n3", "login"], "n1, n3, login"),
    ],
)
def test_names_are_drawn_together_only_where_they_run_on(names, text):
    """Catches a span that holds a host which has no fault."""
    assert span(names) == text
