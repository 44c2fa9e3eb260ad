"""What a plan holds to: the partition's limits, and the variables of one run (configuration B of an A/B)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.benchmarks.perftest.mesh.spec import parse_spec
from shakedown.benchmarks.planning import site_of
from shakedown.commands import cli
from shakedown.intent.slurm_block import minutes, seconds_of, slurm_time
from shakedown.plan.scope import WantedScope, with_variables
from shakedown.plan.time_limits import DEFAULT_S, longest_s
from shakedown.records.reading import BadInput
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, hosts, one_host, one_node, plan_site

CREATED = "2026-01-01T00:00:00Z"


def planned(limit: object = None, nodes: int = 2, wanted: WantedScope | None = None):
    """Return plan and jobs of the lab's kind of site, whose inventory may state a limit."""
    inventory = document(nodes)
    for host in hosts(inventory):
        if limit is not None:
            host["slurm"] = {"max_job_time": limit}
    return plan_site(inventory, created=CREATED, wanted=wanted)


@cases(
    "text, seconds",
    ("30", 1800),
    ("30:00", 1800),
    ("00:30:00", 1800),
    ("4:00:00", 14_400),
    ("1-12", 129_600),
    ("1-00:30", 88_200),
    ("2-01:02:03", 176_523),
    ("UNLIMITED", None),
    ("infinite", None),
)
def test_times_are_read_as_slurm_writes_them(text, seconds):
    """Catches: hours taken for minutes, a day left out, UNLIMITED taken for nothing."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "1h", "1:2:3:4", "-5", "12:00:00; rm", 14_400, 30, None, True])
def test_what_is_no_time_is_refused(text):
    """Catches: 4:00:00 without quotes, which YAML reads as 14400 and Slurm would take for minutes."""
    refused("time", seconds_of, text)


def test_a_limit_is_written_rounded_up():
    """Catches: a partition some seconds too short for the job that its limit was made from."""
    assert (slurm_time(16_529), slurm_time(60), slurm_time(360_000)) == ("04:36:00", "00:01:00", "100:00:00")
    assert minutes(1860) == 31


def test_a_job_that_is_too_long_is_refused_with_both_numbers():
    """Catches: a plan whose jobs Slurm refuses one by one, hours into the run."""
    _, jobs = planned()
    longest = max(job.time_limit_s for job in jobs.jobs)
    assert planned(slurm_time(longest)) and planned("UNLIMITED")
    with pytest.raises(BadInput, match=rf"may take {longest} s, but slurm.max_job_time allows 60 s") as told:
        planned("1")
    assert "raise slurm.max_job_time" in str(told.value)


def test_a_limit_that_is_no_time_is_refused_by_its_key():
    """Catches: a misspelt limit that reads as none."""
    refused(r"slurm.max_job_time 14400: 14400 is no time in quotes", planned, 14_400)


def test_a_part_is_held_to_the_limit_without_what_it_leaves_out():
    """Catches: one node refused because of a job of all nodes; and a part that no limit holds."""
    longest = max(job.time_limit_s for job in planned(nodes=6)[1].jobs)
    part = WantedScope(nodes=("n1",), partners=1)
    needs = max(job.time_limit_s for job in planned(nodes=6, wanted=part)[1].jobs)
    assert minutes(needs) < minutes(longest) and planned(slurm_time(needs), nodes=6, wanted=part)
    refused(r"slurm\.max_job_time allows", planned, "1", nodes=6, wanted=part)


def test_what_a_partition_must_allow():
    """Catches: a partition whose limit is below what a job without a limit of its own gets."""
    _, jobs = planned(nodes=9)
    assert longest_s(jobs.jobs) == max(job.time_limit_s for job in jobs.jobs) > DEFAULT_S
    assert longest_s(()) == DEFAULT_S


def trained(profiles: tuple[str, ...], gpu: str = "H100-SXM", **changes: object):
    """Return the time limit of one host's training."""
    spec = TrainingSpec(**{"model": "llama2-7b", **changes})
    site = one_node(profiles[0], 8, {"pytorch": "/usr/bin/python3"}, scope={"gpu": gpu}, lora=(spec,))
    _, jobs = plan_site(site, profiles, run="r", created=CREATED)
    return jobs.jobs[0].time_limit_s


def test_a_training_gets_time_by_its_steps():
    """Catches: one hour for every training, however many steps it has, and a site's own word unheard."""
    measured = {"gpu": "H200-SXM", "metrics": ("samples_per_s",), "global_batch": 8, "warmup_steps": 1}
    short, long = (trained(("h200_lora",), steps=steps, **measured) for steps in (10, 1000))
    # Twice what 9.56 samples/s less 3.9 % take.
    assert long - short == pytest.approx(2 * 990 * 8 / (9.56 * 0.961), abs=2)
    assert trained(("h200_lora",), steps=1000, time_limit_s=77, **measured) == 77
    unknown = {"metrics": ("nonfinite_steps",), "warmup_steps": 1}
    by_peak = [trained(("lora_generated",), steps=steps, **unknown) for steps in (100, 200)]
    assert by_peak[1] - by_peak[0] == pytest.approx(by_peak[0] - 940, abs=2)


@pytest.mark.parametrize("changes", [{"iterations": 10**6}, {"duration_s": 300, "iterations": None}])
def test_perftest_gets_time_by_its_iterations(changes):
    """Catches: a million iterations in the time of a hundred, killed as hung."""
    inventory = document()
    for host in hosts(inventory):
        host["acceptance"]["perftest"][0].update(changes)
    _, jobs = plan_site(inventory, created=CREATED)
    mesh = jobs.jobs[0]
    assert mesh.time_limit_s > planned()[1].jobs[0].time_limit_s + 6 * 290
    assert mesh.settings["timeout_s"] >= 60 + 300


def test_the_mesh_is_told_the_gates_of_its_plan():
    """Catches a mesh that measures again by other limits than the verdict's, or without time for it."""
    plan, jobs = planned()
    mesh = parse_spec(json.loads(json.dumps(jobs.jobs[0].settings)))
    assert plan.remeasure is not None and mesh.remeasure is not None
    assert plan.remeasure.tests == ("ib_write_bw",)
    assert mesh.remeasure.within_s > 0
    items = [item for item in plan.items if item.test == "ib_write_bw" and item.metric == "bandwidth"]
    assert items
    for item in items:
        for rail in item.rails:
            key = ("ib_write_bw", item.params["size_bytes"], 1)
            limits = mesh.remeasure.limits_of(key, str(item.params["rails_at_once"]), rail, ("n1", "n2"))
            assert limits == {"bandwidth": plan.references[item.reference].gate}
    assert plan.power and "a floor as reference" in plan.power[0]


ROOT = Path(__file__).parents[3]
NCCL = {
    "launchers": ["one-process"],
    "sweeps": [{"operations": ["all_reduce"], "min_bytes": 8, "max_bytes": 1 << 20}],
    "expect": {"nvls": False},
    "variables": {"NCCL_NVLS_ENABLE": "0", "NCCL_IB_HCA": "mlx5_0"},
}
TORCH = {"min_bytes": 1 << 20, "max_bytes": 1 << 22}


def site(**acceptance: object):
    """A host with four GPUs that measures what is asked."""
    inventory = one_host()
    host = inventory["_meta"]["hostvars"]["n1"]
    host["gpus"] = [{"index": i, "model": "H200-SXM"} for i in range(4)]
    host["acceptance"] = {"counter_tests": False, **acceptance}
    return site_of(inventory, WHERE)


def test_they_go_over_the_sites_own():
    """Catches: the site's other variables lost, PyTorch left with another network than nccl-tests."""
    found = with_variables(
        site(nccl=NCCL, torch=TORCH), {"NCCL_IB_HCA": "=mlx5_2,mlx5_3", "NCCL_ALGO": "Ring"}
    )
    assert found.acceptance.nccl.variables == {
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_IB_HCA": "=mlx5_2,mlx5_3",
        "NCCL_ALGO": "Ring",
    }
    assert found.acceptance.torch.variables == {"NCCL_IB_HCA": "=mlx5_2,mlx5_3", "NCCL_ALGO": "Ring"}


def test_the_report_says_so():
    """Catches: a run on the slow network that could be signed as the site's acceptance."""
    changed = with_variables(site(nccl=NCCL, caveats=["Emulated."]), {"NCCL_IB_DISABLE": "1"})
    first, last = changed.acceptance.caveats
    assert first == "Emulated."
    assert "NCCL_IB_DISABLE=1" in last and "nothing about the site as it is configured" in last
    assert with_variables(site(nccl=NCCL), {}).acceptance.caveats == ()


@cases(
    "variables, says",
    ({"LD_PRELOAD": "/tmp/x.so"}, "'LD_PRELOAD' is no variable of a communication library"),
    ({"NCCL_ALGO": "Ring\nLD_PRELOAD=x"}, "no printable text"),
)
def test_nothing_else_gets_into_a_job(variables, says):
    """Catches: a variable that loads code into every rank, or a second one behind a line feed."""
    refused(says, with_variables, site(nccl=NCCL), variables)


def test_a_site_without_collectives_is_refused():
    """Catches: variables that nothing uses, and a run that is taken for configuration B."""
    refused("which alone take variables", with_variables, site_of(document(), WHERE), {"NCCL_ALGO": "Ring"})


@cases(
    "arguments, says",
    (["NCCL_ALGO"], "is not NAME=VALUE"),
    (["=1"], "is not NAME=VALUE"),
    (["NCCL_ALGO=Ring", "NCCL_ALGO=Tree"], "is given twice"),
)
def test_wrong_arguments_are_one_line(arguments, says, capsys, monkeypatch, tmp_path):
    """Catches: a half-written run folder, the second of two values taken in silence."""
    options = [word for argument in arguments for word in ("--variable", argument)]
    inventory = str(ROOT / "inventories/gpu_host")
    monkeypatch.setattr(sys, "argv", ["shakedown", "plan", inventory, "-o", str(tmp_path / "b"), *options])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    error = capsys.readouterr().err
    assert (ended.value.code, error.count("\n"), (tmp_path / "b").exists()) == (2, 1, False) and says in error


@pytest.mark.slow
def test_the_playbook_hands_them_on(tmp_path):
    """Catches: a value with commas and equals signs that is cut on its way from -e into the jobs."""
    variables = {"NCCL_IB_HCA": "=mlx5_2:1,mlx5_3:1", "NCCL_IB_DISABLE": 1}
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        "inventories/gpu_host",
        "playbooks/acceptance.yml",
        "--tags",
        "plan",
        "-e",
        "run_id=b",
        "-e",
        f"run_root={tmp_path}",
        "-e",
        json.dumps({"acceptance_variables": variables}),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = json.loads((tmp_path / "b/jobs.json").read_text())["jobs"]
    given = {job["kind"]: job["settings"].get("variables") for job in jobs}
    for kind in ("nccl", "torch_collectives"):
        assert given[kind] == {
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_IB_HCA": "=mlx5_2:1,mlx5_3:1",
            "NCCL_IB_DISABLE": "1",
        }
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode != 0 and "is planned already" in again.stdout
