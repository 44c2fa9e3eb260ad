"""Training jobs of the tiny shape on gloo, through the job's own program, collection and verdict."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.benchmarks.lora.settings import TrainingSpec
from shakedown.collect.run import collect
from shakedown.records.verdict import Verdict
from shakedown.references.files import load_catalogue
from tests.kit.job import leave_the_rest, write_job
from tests.kit.run import python, write_run
from tests.kit.site import inventory as inventory_of
from tests.kit.site import lab_fabric, plan_site

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = Path(os.environ.get("TRAINING_ENV", Path.home() / ".cache/shakedown/training-venv"))
PYTHON = ENVIRONMENT / "bin/python"
NODES = ("n1", "n2")
TINY: dict[str, Any] = {"model": "tiny", "layout": "ddp", "gpus_per_node": 1, "device": "cpu"}
TINY |= {"dtype": "fp32", "steps": 40, "warmup_steps": 3, "sequence_tokens": 64, "micro_batch": 2}
TINY |= {"global_batch": 8, "learning_rate": 0.01, "clip": 10.0, "compile": False, "hang_s": 40.0}
TINY |= {"start_s": 420.0, "python": str(PYTHON)}


@pytest.fixture(autouse=True)
def training_environment() -> None:
    """Skip with the command that installs what is missing."""
    if not PYTHON.exists():
        pytest.skip(f"no training environment at {ENVIRONMENT}: make training-env")


def inventory(settings: dict[str, Any]) -> dict[str, Any]:
    """What Ansible says of two nodes without a fabric to measure, that train."""
    intent = lab_fabric(1, system="training", profile="lora_tests")
    asked = {key: value for key, value in settings.items() if key != "python"}
    found = inventory_of(NODES, {"lora": [asked], "counter_tests": False, "software_check": False}, intent)
    for host in found["_meta"]["hostvars"].values():
        host["software"] = {"pytorch": {"from": {"path": settings["python"]}}}
    return found


class Training:
    """One run with one training job."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.run = folder
        settings = {**TINY, **changes}
        self.python = settings["python"]
        catalogue = load_catalogue([ROOT / "tests/training/lora_tests.yml", "lora_generated"])
        plan, jobs = plan_site(inventory(settings), catalogue)
        write_run(folder, plan, jobs)
        self.job = jobs.jobs[0]
        self.spec = TrainingSpec.from_json(self.job.settings)
        self.out = folder
        self.child: subprocess.Popen[bytes] | None = None

    def start(self, attempt: int = 1) -> None:
        """Start the job as its batch script would."""
        self.attempt = attempt
        self.out = self.run / "raw" / f"{self.job.name}.a{attempt}"
        self.out.mkdir(parents=True)
        (self.out / "spec.json").write_text(json.dumps(self.job.settings))
        command = [sys.executable, "-m", "shakedown.benchmarks.lora.job", self.out, ",".join(NODES), "--"]
        command += [self.python, ROOT / "tests/training/two_nodes.py", ",".join(NODES)]
        command += [self.spec.gpus_per_node]
        command += [ROOT / "workloads/lora_trainer/launch.py", self.out / "spec.json", self.out]
        self.child = subprocess.Popen([*map(str, command)], cwd=ROOT)

    def wait(self, timeout_s: float = 480) -> int:
        """Wait for the job's end, note what Slurm would have said of it, and return the exit status."""
        assert self.child is not None
        code = self.child.wait(timeout=timeout_s)
        state = "COMPLETED" if code == 0 else "FAILED"
        problem = None if state == "COMPLETED" else {"kind": "other", "message": f"Slurm says {state}"}
        about = {"state": state, "exit_code": f"{code}:0", "problem": problem, "attempt": self.attempt}
        write_job(self.out, job=str(self.attempt), nodes=list(NODES), **about)
        leave_the_rest(self.run)
        return code

    def rank(self, rank: int, *, past_step: int, timeout_s: float = 400) -> int:
        """Return a rank's process id once it has finished a step."""
        log, deadline = self.out / f"rank.{rank:05d}.jsonl", time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            lines = [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []
            if any(x["type"] == "step" and x["step"] > past_step for x in lines):
                return int(next(x["pid"] for x in lines if x["type"] == "place"))
            time.sleep(0.1)
        raise AssertionError(f"rank {rank} did not get past step {past_step}")

    def verdict(self) -> Verdict:
        """Collect and judge, as the commands do."""
        collect(self.run)
        done = python("-m", "shakedown", "verdict", self.run, "--json", cwd=ROOT)
        return Verdict.model_validate_json(done.stdout)

    def cells(self) -> dict[str, tuple[str, str]]:
        """Return outcome and reason of every metric; passed ones have no reason."""
        verdict = self.verdict()
        bad = {cell.cell.split("/")[2]: (cell.outcome.value, cell.reason) for cell in verdict.cells}
        return {g.metric: bad.get(g.metric, ("PASS", "")) for g in verdict.groups}

    def losses(self) -> dict[int, float]:
        """Return rank 0's loss by step."""
        lines = [json.loads(x) for x in (self.out / "lora.jsonl").read_text().splitlines()]
        return {x["step"]: x["loss"] for x in lines if x["type"] == "step" and x["rank"] == 0}


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Make training runs, and end what is left of them."""
    made: list[Training] = []

    def make(name: str = "run", **changes: Any) -> Training:
        made.append(Training(tmp_path / name, **changes))
        return made[-1]

    yield make
    for each in made:
        if each.child is not None and each.child.poll() is None:
            each.child.send_signal(signal.SIGTERM)
            each.child.wait(timeout=60)
