"""Variables for one run: configuration B of an A/B comparison, without touching the site's file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shakedown.benchmarks.planning import site_of
from shakedown.commands import cli
from shakedown.plan.scope import with_variables
from tests.kit.cases import cases
from tests.kit.refusal import refused
from tests.kit.site import WHERE, document, one_host

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
    assert (ended.value.code, error.count("\n"), (tmp_path / "b").exists()) == (2, 1, False)
    assert says in error


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
