"""Inventories as sites write them, with templates and a `slurm:` block: planning sees what Ansible sees."""

import os
import re
import shlex
import shutil
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from shakedown.benchmarks.planning import read_site, site_of
from shakedown.commands.cli import main
from shakedown.daytwo.nightly.playbook import NightlyConfig
from shakedown.intent.places import refuse_impossible_date, refuse_odd_files, span
from shakedown.intent.slurm_block import SlurmBlock, option
from shakedown.intent.variables import MOVED, check_names
from shakedown.intent.variables import main as moved
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, lab_fabric, plan_site

HOSTS = """\
compute:
  hosts:
    n[1:2]:
  vars:
    number: "{{ inventory_hostname | regex_search('[0-9]+') }}"
    ansible_host: 10.20.0.{{ number }}
    mgmt_ip: "{{ ansible_host }}"
    gpus: "{{ [{'index': 0}] * gpus_per_node }}"
    gpus_per_node: 0
    never_read: "{{ lookup('ansible.builtin.pipe', 'touch ' ~ inventory_dir ~ '/ran') }}"
    fabric_nics:
      - {rail: rail0, netdev: fab0, rdma_device: rxe0, ipv4: "10.10.0.{{ number }}/24", leaf: leaf0, leaf_port: "swp{{ number }}"}
switches:
  hosts:
    leaf0:
"""  # noqa: E501
CABLES = """\
roce_switch_nos: "{{ 'li' ~ 'nux' }}"
leaf_ports: >-
  {%- set ports = [] -%}
  {%- for host in groups['compute'] -%}
  {%- for nic in hostvars[host].fabric_nics if nic.leaf == inventory_hostname -%}
  {%- set _ = ports.append({'port': nic.leaf_port, 'host': host, 'netdev': nic.netdev, 'rail': nic.rail}) -%}
  {%- endfor -%}
  {%- endfor -%}
  {{ ports }}
"""
FABRIC = lab_fabric(
    1, link_speed_gbps="{{ 20 + 5 }}", mtu_bytes={"link": 9000, "host": "{{ fabric_mtu }}", "rdma": 4096}
)


@pytest.fixture
def inventory(tmp_path):
    """Write an inventory; `more` goes over the variables of all hosts."""

    def write(**more: object):
        (tmp_path / "group_vars").mkdir()
        (tmp_path / "hosts.yml").write_text(HOSTS)
        (tmp_path / "group_vars" / "switches.yml").write_text(CABLES)
        common = {"fabric": FABRIC, "fabric_mtu": 9000, "acceptance": {"scope": {"gpu": "{{ 'A' ~ 100 }}"}}}
        (tmp_path / "group_vars" / "all.yml").write_text(yaml.safe_dump({**common, **more}))
        return tmp_path

    return write


def test_templates_are_read_as_ansible_reads_them(inventory):
    """Catches: text in braces taken for a value, another host's variables, and lookups that nobody needs."""
    folder = inventory()
    site = read_site(folder)
    assert site.network().link_speed_gbps == 25 and site.network().mtu_bytes.host == 9000
    assert site.addresses == {"n1": "10.20.0.1", "n2": "10.20.0.2"}
    assert [site.nics[node][0].ipv4 for node in ("n1", "n2")] == ["10.10.0.1", "10.10.0.2"]
    assert site.switches[0].nos == "linux"
    assert site.switches[0].ports == (("swp1", "n1", "fab0", "rail0"), ("swp2", "n2", "fab0", "rail0"))
    assert site.acceptance.scope == {"gpu": "A100"}
    assert not (folder / "ran").exists()


@cases(
    "more, says",
    ({"fabric_mtu": "{{ ansible_mtu }}"}, r"fabric of n1 has no value: .*ansible_mtu.* is undefined"),
    ({"acceptance": "{{ 5 // 0 }}"}, "acceptance of n1 has no value: .*zero"),
    ({"acceptance": {"scope": {"gpu": "{% raw %}{{ x }}{% endraw %}"}}}, "acceptance of n1 .*leaves as"),
)
def test_a_value_that_cannot_be_had_is_named(inventory, more, says):
    """Catches: a traceback, or a plan from half a template."""
    with pytest.raises(BadInput, match=says) as told:
        read_site(inventory(**more))
    assert "\n" not in str(told.value)


def test_an_inventory_that_ansible_refuses_is_named(inventory):
    """Catches: a traceback, or the last line of Ansible's drawing of the place instead of what is wrong."""
    folder = inventory()
    (folder / "group_vars" / "switches.yml").write_text("---\nroce_switch_nos: [\n")
    with pytest.raises(BadInput, match=r"switches\.yml:3: is no YAML: expected") as told:
        read_site(folder)
    assert "\n" not in str(told.value)


def test_a_waivers_last_day_is_written_as_the_page_has_it(inventory):
    """Catches: a day without quotes, as YAML and the how-to have it, refused in Ansible's words."""
    folder = inventory()
    page = (Path(__file__).parents[3] / "docs/how-to/part-of-a-site.md").read_text()
    block = next(b for b in page.split("```") if "expires: " in b)
    assert re.search(r"expires: \d{4}-\d\d-\d\d", block)
    (folder / "group_vars/compute.yml").write_text(block.removeprefix("yaml"))
    assert str(read_site(folder).waivers[0].expires) == "2026-03-01"


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
        with pytest.raises(BadInput) as told:
            read_site(folder)
        return str(told.value).removeprefix(f"{folder}/")

    return refusal


FABRIC_YML, ACCEPTANCE = "group_vars/all/fabric.yml", "group_vars/all/acceptance.yml"


@cases(
    "file, old, new, says",
    (FABRIC_YML, r"^(    )dscp:", r"\1dcsp:", r"fabric.yml:10: fabric.roce: unknown key 'dcsp' -- use dscp$"),
    (FABRIC_YML, r"(cnp:.*priority:) 6", r"\1 3", r"fabric.yml:15: fabric.roce.cnp.priority is 3 like"),
    (FABRIC_YML, r"^(    )queue: 3\n", "", r"fabric.yml:\d+: fabric.roce.queue is missing -- add it"),
    (ACCEPTANCE, r"dtype: half", r"dtyp: half", r"acceptance.yml:15: .*unknown key 'dtyp' -- use dtype"),
    (
        ACCEPTANCE,
        r"\A",
        "slurm_mange: true\n",
        r"acceptance.yml:1: variable 'slurm_mange' .* write manage: \{slurm: \.\.\.\}",
    ),
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
    refused(r"all.yml:2: variable 'slurm_manager' is not known -- write manage", check_names, tmp_path)


@pytest.mark.parametrize("level", ["{{<<: [{}]}}", "[{}]"], ids=["merges", "aliases alone"])
def test_files_that_only_exhaust_memory_are_refused(tmp_path, level):
    """Catches: `plan` that hangs over merges or aliases of aliases, or reads a sparse file of 1 TB."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    file = tmp_path / "group_vars/all.yml"
    file.write_text("a: &a {k: 1}\nb: {<<: [*a, *a], c: *a}\n" * 3)
    check_names(tmp_path)
    levels = (f"m{i}: &m{i} {level.format(', '.join([f'*m{i - 1}'] * 9))}\n" for i in range(1, 9))
    file.write_text("m0: &m0 {k: v}\n" + "".join(levels))
    refused(r"all.yml:[67]: its merges and aliases are more than", check_names, tmp_path)
    os.truncate(file, 1 << 40)
    refused(r"all.yml: is larger than", check_names, tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "inventory itself"])
def test_what_is_no_plain_file_is_refused_wherever_it_lies(tmp_path, kind):
    """Catches: a plan that waits for ever for a pipe, ours or Ansible's, or reads a device without end."""
    where = ("hosts.yml", "notes.txt", "group_vars/all/fabric.yml", "host_vars/n1", "linked/all/a.yml")
    for place in where[: 1 if kind == "inventory itself" else None]:
        site = tmp_path / place.replace("/", "-") / "site"
        odd = site / place
        shutil.copytree(WHERE.parent / "tolly_xe9680_z9664f", site)
        odd.unlink(missing_ok=True)
        (site / "group_vars/.git.sock").mkdir()  # hidden: nobody reads it
        odd.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(odd)
        elif kind == "folder":
            odd = odd.with_suffix(".yml")
            odd.unlink(missing_ok=True)
            odd.mkdir()
        elif kind == "device":
            odd.symlink_to("/dev/zero")
        else:
            site = odd = Path("/dev/zero")
        with pytest.raises(BadInput, match="is no plain file -- take it out") as said:
            read_site(site)
        assert said.value.file == odd


def test_a_link_to_a_plain_file_or_a_folder_is_as_good_as_one(tmp_path):
    """Catches: a site refused that keeps its variables elsewhere, and one searched in a circle."""
    shutil.copytree(WHERE.parent / "lab_gpus", tmp_path / "site")
    shutil.move(tmp_path / "site/group_vars", tmp_path / "elsewhere")
    (tmp_path / "site/group_vars").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/circle").symlink_to(tmp_path / "elsewhere")
    refuse_odd_files(tmp_path / "site")


def test_encrypted_and_tagged_files_are_left_to_ansible(tmp_path):
    """Catches a vault, an anchor or a tag of Ansible's that ends the search for names."""
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    (tmp_path / "group_vars/vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6236\n")
    (tmp_path / "group_vars/all.yml").write_text("a: &x {b: 1}\nc: *x\nd: !vault |\n  6236\nslurm_mange: 1\n")
    refused(r"all.yml:5: variable 'slurm_mange'", check_names, tmp_path)


@cases(
    "names, text",
    (["n1"], "n1"),
    (["n1", "n2"], "n1, n2"),
    (["n8", "n9", "n10"], "n8..n10"),
    (["n1", "n3", "login"], "n1, n3, login"),
)
def test_names_are_drawn_together_only_where_they_run_on(names, text):
    """Catches a span that holds a host which has no fault."""
    assert span(names) == text


def refusal(**variables: Any) -> str:
    """Return what is said of a site with these variables."""
    inventory = document()
    for host in hosts(inventory):
        host.update(variables)
    with pytest.raises(BadInput) as told:
        site_of(inventory, WHERE)
    return str(told.value)


@cases(
    "variables, says",
    ({"manage": True}, "manage True: must be keys with values (KEY: VALUE)"),
    ({"manage": {"slurms": True}}, "manage: unknown key 'slurms' -- use slurm"),
    ({"manage": {"slurm": "no"}}, "manage.slurm 'no': must be true or false"),
    ({"shared_stage_path": "stage"}, "shared_stage_path 'stage': must be an absolute path of letters, "),
    ({"shared_stage_path": "/scratch/a b"}, "shared_stage_path '/scratch/a b': must be an absolute path"),
    ({"slurm": {"partition": "a b"}}, "slurm.partition 'a b': must be one name as Slurm has it"),
    (
        {"software": {"perftest": {"from": {"module": "ompi"}}}},
        "'ompi': must be NAME/VERSION, such as openmpi/4.1.6",
    ),
    (
        {"software": {"perftest": {"from": {"spack": "openmpi @4"}}}},
        "must be the spec of an installed Spack package, without blanks or quotes, such as openmpi@4",
    ),
    ({"waivers": {"name": "x"}}, "waivers: must be a list"),
    ({"slurm": {"partition": ["a", "b"]}}, "slurm.partition: must be one text"),
    (
        {"software": {"perftest": {"from": {"module": []}}}},
        "software.perftest.from.module: must not be empty",
    ),
    ({"software": {"perftest": {"from": "packages"}}}, "software.perftest.from 'packages': "),
)
def test_words_that_mean_something_else_are_refused(variables, says):
    """Catches: a slip that leaves the default in force, is found by a role halfway, or is told in Python."""
    said = refusal(**variables)
    assert says in said, said
    assert "tuple" not in said and "function-" not in said and "literal[" not in said


def test_what_the_playbooks_take_is_taken():
    """Catches: a block of the shipped sites that is refused."""
    inventory = document()
    for host in hosts(inventory):
        host.update({"manage": {"slurm": True, "hosts": False}, "shared_stage_path": "/shared/shakedown"})
    assert site_of(inventory, WHERE).nics


@cases(
    "text, line",
    ("waivers:\n  - {name: a, expires: 2026-02-30}\n", 2),
    ("waivers:\n  - name: a\n    expires: 2026-13-01  # 2026-99-99\n", 3),
    ('a: "2026-02-30"\nb: x-2026-02-30\nc: 2026-02-28\n', None),
)
def test_a_day_that_there_is_not_is_named_with_its_line(tmp_path, text, line):
    """Catches: a waiver until 30 February, refused without saying where it stands."""
    file = tmp_path / "group_vars/all/waivers.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    if line is None:
        refuse_impossible_date(tmp_path)
        assert date(2026, 2, 28)
        return
    with pytest.raises(BadInput) as told:
        refuse_impossible_date(tmp_path)
    assert str(told.value).startswith(f"{file}:{line}: 2026-") and "is no day" in str(told.value)


def planned(block: object, nodes: int = 2):
    """Return the jobs of the lab's kind of site with such a block."""
    inventory = document(nodes)
    for host in inventory["_meta"]["hostvars"].values():
        host["slurm"] = block
    return plan_site(inventory)[1]


def test_every_job_gets_what_the_block_says():
    """Catches: a key that never reaches a job, or one that a blank cuts in two."""
    jobs = planned(
        {
            "partition": "gpu",
            "account": "bench",
            "qos": "high",
            "reservation": "maint_2026",
            "constraint": "[rack1|rack2]&hca",
            "comment": "acceptance of pod 3",
            "options": ["--mem=0", "--switches=1@10:00", "--contiguous"],
        }
    )
    assert jobs.submit == (
        "--partition=gpu",
        "--account=bench",
        "--qos=high",
        "--reservation=maint_2026",
        "--constraint='[rack1|rack2]&hca'",
        "--comment='acceptance of pod 3'",
        "--mem=0",
        "--switches=1@10:00",
        "--contiguous",
    )
    assert all(len(shlex.split(word)) == 1 for word in jobs.submit)
    assert planned({}).submit == ()


def test_the_prolog_is_on_top_of_every_jobs_time():
    """Catches: a prolog of ten minutes that eats the job's own time; one that is counted twice."""
    without, with_it = planned({}), planned({"prolog_s": 600})
    assert [job.time_limit_s + 600 for job in without.jobs] == [job.time_limit_s for job in with_it.jobs]
    assert with_it.prolog_s == 600


@cases(
    "block",
    {"partition": "a b"},
    {"partition": "gpu\n#SBATCH --uid=0"},
    {"partition": "-x"},
    {"account": "$(id)"},
    {"qos": "a;b"},
    {"reservation": "a'b"},
    {"constraint": 'a"b'},
    {"constraint": "a b"},
    {"comment": "it's"},
    {"comment": "x # y"},
    {"comment": "x\\"},
    {"comment": "x\ny"},
    {"run_as": "Alice; id"},
    {"run_as": "-u"},
    {"prolog_s": -1},
    {"max_job_time": 14_400},
    {"max_job_time": "soon"},
    {"options": ["--wrap=id"]},
    {"options": ["--export=ALL"]},
    {"options": ["--output=/etc/x"]},
    {"options": ["--nodes=1"]},
    {"options": ["--mem"]},
    {"options": ["--mem=0 --uid=0"]},
    {"options": ["--contiguous=1"]},
    {"options": ["--partition=gpu"]},
    {"options": ["mem=0"]},
    {"options": "--mem=0"},
    {"jobuser": "a"},
    {"partition": ["gpu"]},
    [],
    "gpu",
)
def test_what_is_no_word_of_slurm_is_refused_by_its_key(block):
    """Catches: a line break, quote or option that changes what a job is; a misspelt key passed over."""
    with pytest.raises(BadInput, match="slurm") as told:
        planned(block)
    assert "\n" not in str(told.value)


def test_an_option_with_a_key_of_its_own_is_sent_there():
    """Catches: two places for one thing, the second of which wins in silence."""
    with pytest.raises(ValueError, match=r"--qos has a key of its own: slurm\.qos"):
        option("--qos=high")
    assert option("--qos=high", keys_too=True) == "--qos=high"


def test_nodes_cannot_differ_in_it():
    """Catches: the first node's block taken for all."""
    inventory = document(2)
    inventory["_meta"]["hostvars"]["n2"]["slurm"] = {"partition": "b"}
    refused("n2: slurm is not that of n1 -- one block for all", site_of, inventory, WHERE)


def test_a_nights_options_are_held_to_the_same_list():
    """Catches: an option of the night that runs something else."""
    good = {"checkout": "/x", "inventory": "/y", "state": "/z"}
    night = NightlyConfig.model_validate({**good, "access": ["--partition=preempt", "--nice=10000"]})
    assert night.access == ("--partition=preempt", "--nice=10000")
    with pytest.raises(ValidationError, match="not an option that a site may set"):
        NightlyConfig.model_validate({**good, "access": ["--wrap=id"]})


@pytest.mark.parametrize("name", sorted(MOVED))
@pytest.mark.parametrize("where", ["group_vars/all/acceptance.yml", "host_vars/n1.yml", "hosts.yml"])
def test_a_key_that_has_moved_names_the_new_one(tmp_path, name, where):
    """Catches: an old key passed over, so that jobs go to another partition than the site's."""
    file = tmp_path / where
    file.parent.mkdir(parents=True, exist_ok=True)
    under = "compute:\n  hosts:\n    n1:\n      " if where == "hosts.yml" else "x: 1\n"
    file.write_text(f"{under}{name}: gpu\n")
    line = 4 if where == "hosts.yml" else 2
    refused(rf"{where}:{line}: {name} has moved -- write {re.escape(MOVED[name])}", check_names, tmp_path)


def test_an_old_key_of_the_command_line_is_refused_too(capsys):
    """Catches: -e slurm_partition=x, which no file holds, without effect and without a word."""
    assert moved(["fabric", "slurm_partition", "slurm_max_time"]) == 2
    said = capsys.readouterr().err
    assert (
        said == "slurm_partition has moved: write slurm: {partition: ...}; slurm_max_time has moved: "
        "write slurm: {max_job_time: ...}\n"
    )
    assert moved(["slurm", "manage", "slurm_nodes"]) == 0


def test_a_key_of_a_sites_own_mapping_is_its_own(tmp_path):
    """Catches: a word of somebody else's variables refused."""
    file = tmp_path / "group_vars" / "all.yml"
    file.parent.mkdir()
    file.write_text("site_tools:\n  run_as: x\n  hosts:\n    run_as: y\n")
    check_names(tmp_path)


def test_the_block_is_read_through_ansible(tmp_path):
    """Catches: a key that the reader of inventories leaves out, so that it is never in force."""
    shutil.copytree(INVENTORIES / "gpu_host", tmp_path / "site")
    file = tmp_path / "site" / "group_vars" / "all" / "host.yml"
    text = re.sub(r"^slurm:.*\n", "", file.read_text(), flags=re.MULTILINE)
    file.write_text(text + 'slurm: {partition: gpu, account: bench, max_job_time: "72:00:00"}\n')
    site = read_site(tmp_path / "site")
    assert site.slurm == SlurmBlock(partition="gpu", account="bench", max_job_time="72:00:00")
    assert site.job_time.seconds == 72 * 3600
    file.write_text(text + "slurm: {partiton: gpu}\n")
    refused(r"host.yml:\d+: slurm: unknown key 'partiton' -- use partition", read_site, tmp_path / "site")
