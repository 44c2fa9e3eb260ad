"""What a user has set for himself, all at once, changes neither plan nor run nor verdict, and is told."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from submit_host import CHECKOUT, SubmitHost

from shakedown.records.program import users_wishes
from shakedown.run.lock import Holder, RunLock
from tests.kit.archive import unpack
from tests.kit.run import ran

# Every one of these has cost somebody a run, or could.
HOSTILE = {
    **{"SLURM_TIME_FORMAT": "relative", "SQUEUE_FORMAT": "%i", "SINFO_FORMAT": "%N", "SACCT_FORMAT": "jobid"},
    **{"SBATCH_TIMELIMIT": "1", "SBATCH_EXPORT": "NONE", "SLURM_CPU_BIND": "rank", "SRUN_DEBUG": "3"},
    **{
        "LC_ALL": "tr_TR.UTF-8",
        "LANG": "tr_TR.UTF-8",
        "TZ": "Europe/Berlin",
        "GREP_OPTIONS": "--color=always",
    },
    **{"UCX_TLS": "tcp", "OMPI_MCA_btl": "tcp,self", "PMIX_MCA_gds": "hash", "NCCL_IB_DISABLE": "1"},
    **{"RFM_STAGE_DIR": "/nowhere", "RFM_SYSTEM": "daint", "RFM_CONFIG_FILES": "/nowhere.py"},
    **{"ANSIBLE_HASH_BEHAVIOUR": "merge", "ANSIBLE_JINJA2_NATIVE": "1", "ANSIBLE_VERBOSITY": "2"},
    **{
        "PYTHONOPTIMIZE": "2",
        "PYTHONIOENCODING": "latin-1",
        "PYTHONWARNINGS": "error",
        "PYTHONHASHSEED": "7",
    },
    **{"LD_PRELOAD": "/nowhere/libx.so", "BASH_ENV": "/nowhere", "OMP_NUM_THREADS": "1", "COLUMNS": "20"},
}
# Slurm as preflight and stage ask it; its times are in the zone and the format that it is asked for.
_SLURM = "#!/bin/sh\ncase $0 in *sacctmgr) ;; *scontrol) echo PartitionName=all State=UP ;; esac\n"
# Stands for ReFrame: the outputs of a run that was made, and what it was started with.
_REFRAME = """
import json, os, shutil, sys
stage = next(w.split("^")[1][:-1] for w in sys.argv if w.startswith("--tag"))
(HOME / "environment").write_text(json.dumps(dict(os.environ)))
raw = Path(os.environ["SHAKEDOWN_RUN"]) / "raw"
for made in (HOME / "made" / "raw").glob(f"*{stage}*"):
    shutil.copytree(made, raw / made.name, dirs_exist_ok=True)
"""


def clone(folder: Path) -> str:
    """Another clone of this project, of which nothing may run."""
    for name in ("shakedown", "reframe_tests", "yaml"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('another clone ran')\n")
    return str(folder)


def run_of(folder: Path, hostile: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Make the lab's recorded run again; return its verdict, the plan made anew, and what was told."""
    site = SubmitHost(folder)
    site.program(site.home / "venv/bin/reframe", _REFRAME)
    for name in ("scontrol", "sinfo", "sacctmgr"):
        (site.bin / name).write_text(_SLURM)
        (site.bin / name).chmod(0o755)
    made = site.home / "made"
    made.mkdir()
    unpack(CHECKOUT / "tests/runs/lab_healthy/run.tar.xz", made)
    run = site.home / "runs" / json.loads((made / "plan.json").read_text())["run"]
    (run / "raw").mkdir(parents=True)
    for name in ("plan.json", "jobs.json", "inventory.json"):
        shutil.copy(made / name, run)
    kept = {name: value for name, value in site.environment.items() if not users_wishes([name])}
    environment = {**kept, **hostile}
    # As playbooks/acceptance.yml starts them: on the controller by its own PYTHONPATH, elsewhere isolated.
    here = {**environment, "PYTHONPATH": str(CHECKOUT)}
    ours = (sys.executable, "-m", "shakedown")
    planned = ran(*ours, "plan", CHECKOUT / "inventories/lab", "--output", folder / "anew", env=here)
    assert planned.returncode == 0, planned.stderr
    there = (site.home / "venv/bin/python", "-I", "-m")
    with (run / "jobs.json").open() as jobs:
        asked = ran(*there, "shakedown.slurm.preflight", env=environment, stdin=jobs)
    assert asked.returncode == 0, asked.stderr
    about = {"run": run.name, "host": "h", "boot": "b", "pid": 1, "start_ticks": 1, "user": "u", "since": "s"}
    RunLock(site.home).take(Holder(**about, ticket="t1"), over=None)
    for stage in ("config", "fabric", "collective"):
        reframe = (site.home / "venv/bin/reframe", f"--tag=^{stage}$")
        argv = ("shakedown.slurm.stage", site.home, run, stage, "--ticket=t1", "--", *reframe)
        done = ran(*there, *argv, env={**environment, "SHAKEDOWN_RUN": str(run)})
        assert (done.returncode, done.stdout) == (0, ""), done
        seen = json.loads(site.text("environment"))
        assert not {*hostile} & {*seen} - {"LC_ALL", "TZ", "SLURM_TIME_FORMAT", "COLUMNS"}
        assert (seen["TZ"], seen["LC_ALL"]) == ("UTC", "C")
    for words in (("collect", run), ("verdict", run, "--write")):
        done = ran(*ours, *words, env=here)
        assert done.returncode == 0, done.stdout + done.stderr
    told = asked.stdout + (run / "raw/reframe.fabric.txt").read_text()
    plan = json.loads((folder / "anew/plan.json").read_text())
    return json.loads((run / "verdict.json").read_text()), {**plan, "created": ""}, told


@pytest.mark.slow
def test_a_hostile_environment_changes_no_verdict(tmp_path):
    """Catches: a locale, a clone, a format, a transport or a place of a user's that steers a run unseen."""
    verdict, plan, told = run_of(tmp_path / "plain", {})
    assert verdict["outcome"] == "PASS" and not [name for name in HOSTILE if name in told]
    foreign = HOSTILE | {"PYTHONPATH": clone(tmp_path / "clone")}
    hostile, same_plan, told = run_of(tmp_path / "hostile", foreign)
    assert (hostile, same_plan) == (verdict, plan)
    for name in {*foreign} - {"LC_ALL", "LANG", "TZ", "SLURM_TIME_FORMAT", "COLUMNS"}:
        assert told.count(name) == 2, (name, told)  # at the start, and in what the run keeps


def test_programs_of_nodes_are_isolated_unless_their_path_is_ours(monkeypatch):
    """Catches: a PYTHONPATH of a prolog's or a user's between a job's program and this package."""
    from shakedown.records.program import SOURCE, own_python

    monkeypatch.setitem(os.environ, "PYTHONPATH", "/ours")
    assert own_python() == [sys.executable, "-m"]
    monkeypatch.delitem(os.environ, "PYTHONPATH")
    assert own_python() == [sys.executable, "-I", "-m"]
    monkeypatch.setattr("site.getusersitepackages", lambda: str(SOURCE))
    assert own_python() == [sys.executable, "-m"], "pip install --user"
