"""The `slurm:` block: what it may say, what every job gets of it, and where the old keys went."""

import re
import shlex
import shutil

import pytest
from pydantic import ValidationError

from shakedown.benchmarks.planning import read_site, site_of
from shakedown.daytwo.nightly.playbook import NightlyConfig
from shakedown.intent.moved import MOVED
from shakedown.intent.moved import main as moved
from shakedown.intent.slurm_block import SlurmBlock, option
from shakedown.intent.variables import check_names
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, plan_site
from tests.unit.intent.test_inventory import INVENTORIES


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
