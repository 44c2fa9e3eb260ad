"""The night's configuration (nightly.json), and the playbook that is started on the plan."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from shakedown.intent.slurm_block import AccessOption
from shakedown.records.base import Document, Name, Record, shape
from shakedown.records.plan import Plan
from shakedown.records.program import ansible_environment
from shakedown.records.writing import write_aside
from shakedown.run.folder import JOBS, REFUSED


class Mail(Record):
    """Mail through a server that takes it without a password, as a site's own does."""

    to: tuple[str, ...] = Field(min_length=1)
    sender: str
    server: str = "localhost"
    port: int = Field(default=25, gt=0, lt=65536)
    only_if_needed: bool = False


class Webhook(Record):
    """A signed POST of the night as JSON."""

    url: Annotated[str, shape(r"^https?://", "an address of http or https", "https://ops.example.com/hook")]
    key_file: str
    only_if_needed: bool = False


class Delivery(Record):
    """Where reports go."""

    file: str | None = None
    textfile: str | None = None  # a .prom file in node_exporter's folder
    mail: Mail | None = None
    webhook: Webhook | None = None


class Draining(Record):
    """What may be done to nodes."""

    act: bool = False
    max_nodes: int = Field(default=2, ge=0)
    max_fraction: float = Field(default=0.1, ge=0, le=1)


class NightlyConfig(Document):
    """The nightly's configuration."""

    checkout: str  # this project: playbooks/ and .venv/
    inventory: str
    state: str  # folder of rotation, lock, history, runs and drain log
    budget_s: float = Field(default=300, gt=0)  # that a node may be used a night
    group: int = Field(default=4, ge=3, le=64)
    node_tests_s: float = Field(default=120, gt=0)  # that the tests of a node by itself take, each section
    over: tuple[str, ...] = ()  # in front of Slurm's commands where they are elsewhere: ("ssh", "head")
    # sbatch options that make jobs lowest in priority, preemptable, and gone if they cannot start.
    access: tuple[AccessOption, ...] = ()
    wait_s: int = Field(default=1800, gt=0)  # that a job may wait for its nodes
    limit_s: int = Field(default=14400, gt=0)  # that the night may take
    max_jobs: int = Field(default=8, ge=1)
    exclude: tuple[Name, ...] = ()
    playbook_options: tuple[str, ...] = ()
    keep_runs_days: int = Field(default=90, ge=1)
    keep_history_days: int | None = Field(default=None, ge=31)
    drain: Draining = Draining()
    deliver: Delivery = Delivery()


PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
_STOP_S = 90  # for the playbook to end after it was told to


def measure(config: NightlyConfig, folder: Path, plan: Plan) -> list[str]:
    """Run the acceptance playbook on the plan; return what went wrong apart from the verdict."""
    checkout = Path(config.checkout)
    longest = max(job["time_limit_s"] for job in json.loads((folder / JOBS).read_bytes())["jobs"])
    # Slurm removes a job that cannot end by its deadline, so that nothing waits for a node that got busy.
    deadline = f"--deadline=now+{config.wait_s + longest}seconds"
    extra = {
        "run_id": plan.run,
        "run_root": str(folder.parent),
        "stage_limit_s": config.limit_s,
        "stage_access": [*config.access, deadline],
        "stage_max_jobs": config.max_jobs,
    }
    write_aside(folder / "raw" / "nightly.json", (json.dumps(extra, indent=1) + "\n").encode())
    limit = ",".join(("localhost", "submit", "switches", *plan.nodes))
    argv = [
        str(PLAYBOOK),
        "-i",
        config.inventory,
        "playbooks/acceptance.yml",
        "--limit",
        limit,
        "-e",
        f"@{folder / 'raw' / 'nightly.json'}",
        *config.playbook_options,
    ]
    with (folder / "raw" / "playbook.txt").open("wb") as log:
        child = subprocess.Popen(
            argv,
            cwd=checkout,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=ansible_environment(os.environ),
        )
        try:
            child.wait(config.limit_s)
        except subprocess.TimeoutExpired:
            return [f"the night took longer than {config.limit_s} s and was ended"]
        finally:
            _end(child)
    refused = folder / REFUSED
    if refused.is_file() and not refused.is_symlink():
        return [
            f"nothing was measured: {refused.read_text(encoding='utf-8', errors='replace').strip()[:2000]}"
        ]
    return []  # its exit status is the verdict's, which is made from the files


def _end(child: subprocess.Popen[Any]) -> None:
    """End the playbook and what it started; it leads a process group of its own."""
    if child.poll() is not None:
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(child.pid, sign)
        try:
            child.wait(_STOP_S)
            return
        except subprocess.TimeoutExpired:
            continue
