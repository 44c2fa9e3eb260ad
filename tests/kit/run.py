"""Programs as tests call them, and run folders."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.acceptance import mitogen
from shakedown.collect import run as of_raw
from shakedown.judge.judged import judge_folder
from shakedown.plan.jobs import Jobs, JobSpec
from shakedown.records.base import to_json
from shakedown.records.plan import Plan
from shakedown.records.results import CounterReading, Measurement
from shakedown.records.verdict import Verdict
from shakedown.records.writing import write_aside
from shakedown.run.folder import Run, write_plan
from tests.kit.job import leave_the_rest, write_job
from tests.kit.site import CHECKOUT

BIN = Path(sys.executable).parent


def ran(*words: object, check: bool = False, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; what it prints is kept as text, and its exit status is the caller's to judge."""
    return subprocess.run([*map(str, words)], check=check, **{"capture_output": True, "text": True, **more})


def python(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run this interpreter."""
    return ran(sys.executable, *words, **more)


def run_playbook(
    *words: object, cwd: Path = CHECKOUT, timeout: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook without colour, asking nobody, with these variables beside the test's own.

    With Mitogen, at half the processor time.
    """
    known = {**os.environ, **mitogen(), "ANSIBLE_FORCE_COLOR": "0", **environment}
    argv = [BIN / "ansible-playbook", *words]
    return ran(*argv, cwd=cwd, stdin=subprocess.DEVNULL, env=known, timeout=timeout)


def write_run(folder: Path, plan: Plan, jobs: Jobs) -> Path:
    """Write a run's plan and jobs; return its folder."""
    write_plan(folder, plan)
    write_aside(folder / "jobs.json", to_json(jobs))
    return folder


def raw_of(folder: Path, spec: JobSpec, attempt: int = 1, **changes: object) -> Path:
    """Write the folder of a job that ended well; return it."""
    about = {"stage": spec.stage, "test": spec.name, "nodes": list(spec.nodes), **changes}
    return write_job(folder / "raw" / f"{spec.name}.a{attempt}", **about)


def ordered_in(raw: Path, spec: JobSpec) -> None:
    """Write what a job reads of its order."""
    (raw / "spec.json").write_text(json.dumps(spec.settings))
    if not spec.software:
        return
    sources = {name: source.model_dump(by_alias=True) for name, source in spec.software.items()}
    (raw / "software.json").write_text(json.dumps(sources))


def gather(folder: Path) -> tuple[list[Measurement], list[CounterReading]]:
    """Return what a run folder's raw files say."""
    return of_raw.gather(Run(folder))


def collected(folder: Path) -> Verdict:
    """Leave what every job leaves, collect and judge."""
    leave_the_rest(folder)
    of_raw.collect(folder)
    return judge_folder(folder)
