"""The night's playbook: started on the plan, and ended with all that it started when its time is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from shakedown.daytwo.nightly.config import NightlyConfig
from shakedown.records.plan import Plan
from shakedown.run.folder import JOBS, write_aside

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
REFUSED = "refused.txt"  # why another run kept this one from being made, in one sentence
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
