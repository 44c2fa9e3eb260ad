"""A submit host in a folder: its Slurm is a file, its ReFrame a script; Ansible needs no SSH to it."""

import fcntl
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from lab.acceptance import mitogen

CHECKOUT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent

# Each program is given the folder as HOME_OF_TEST by the line above it.
_SLURM = """
import sys
queue = HOME / "queue"
lines = [line for line in queue.read_text().splitlines() if line]
if (HOME / "silent").exists():
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
if sys.argv[0].endswith("scancel"):
    queue.write_text("".join(f"{x}\\n" for x in lines if x.split("|")[0] not in sys.argv[1:]))
    with (HOME / "cancelled").open("a") as log:
        print(*sys.argv[1:], file=log)
elif any(word.endswith("%Z") for word in sys.argv):
    for line in lines:
        print(line.split("|")[0], line.split("|")[2], sep="|")
else:
    for line in lines:
        print(line.split("|")[0], line.split("|")[1], sep="|")
"""
_REFRAME = """
import json, os, sys, time
run = Path(os.environ["SHAKEDOWN_RUN"])
stage = next(w.split("^")[1][:-1] for w in sys.argv if w.startswith("--tag"))
with (HOME / "stages").open("a") as log:
    print(stage, file=log)
print("ReFrame prints", stage, flush=True)
jobs = json.loads((run / "jobs.json").read_text())
for number, job in enumerate(j for j in jobs["jobs"] if j["stage"] == stage):
    out = run / "raw" / f"{job['name']}.a1"
    out.mkdir(parents=True)
    record = {"schema": 1, "run": jobs["run"], "stage": stage, "test": job["name"], "job": None}
    (out / "job.json").write_text(json.dumps({**record, "state": "NOT-SUBMITTED"}))
    if (HOME / "hangs").exists() and (HOME / "hangs").read_text() == stage:
        work = run / "reframe" / "stage" / "x"
        work.mkdir(parents=True, exist_ok=True)
        with (HOME / "queue").open("a") as queue:
            print(70 + number, job["name"], work, sep="|", file=queue)
        time.sleep(1000)
    done = {"state": "COMPLETED", "exit_code": "0:0", "nodes": job["nodes"]}
    (out / "job.json").write_text(json.dumps({**record, **done, "job": str(number + 1)}))
"""


# All submit hosts are this machine and measure n1 and n2: a run that one of them starts is another site's run
# to the next, which `shakedown.slurm.under_way` rightly refuses. So there is one at a time, of all workers.
_TURN = Path(tempfile.gettempdir()) / "shakedown-tests-submit-host.lock"
_held: list[IO[str]] = []


def take_turn() -> None:
    """Wait until no other worker has a submit host."""
    if not _held:
        held = _TURN.open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
        _held.append(held)


def end_turn() -> None:
    """Let another worker have one."""
    while _held:
        _held.pop().close()


@functools.cache
def planned(run: str) -> dict[str, bytes]:
    """What the command writes for a run of the lab, made once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / run
        argv = [BIN / "shakedown", "plan", CHECKOUT / "inventories/lab", "--output", made]
        subprocess.run(argv, check=True, capture_output=True)
        assert sorted(path.name for path in made.iterdir()) == ["jobs.json", "plan.json", "raw"]
        return {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()}


class SubmitHost:
    """The folder: `home` is the stage's, `runs` the controller's."""

    def __init__(self, folder: Path) -> None:
        take_turn()
        self.folder, self.home, self.runs = folder, folder / "home", folder / "runs"
        self.bin = folder / "bin"
        for made in (self.home / "venv/bin", self.home / "runs", self.runs, self.bin):
            made.mkdir(parents=True)
        (self.home / "queue").touch()
        for name in ("squeue", "scancel"):
            self.program(self.bin / name, _SLURM)
        self.program(self.home / "venv/bin/reframe", _REFRAME)
        python = self.home / "venv/bin/python"
        # It finds this package by itself, as the venv's does, where it runs isolated.
        python.write_text(
            f'#!/bin/sh\n[ "$1" != -I ] || {{ shift; export PYTHONPATH={CHECKOUT}; }}\n'
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        (self.home / "site.json").write_text("{}\n")
        self.inventory = folder / "hosts.yml"
        here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = {"compute": ("n1", "n2"), "submit": ("head",)}
        groups = {group: {"hosts": dict.fromkeys(names, here)} for group, names in hosts.items()}
        variables = {"shared_stage_path": str(self.home), "run_root": str(self.runs)}
        self.inventory.write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
        self.environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_CACHE_PLUGIN": "memory",
        }

    def program(self, path: Path, text: str) -> None:
        """Write a program of this host, which is given the folder as HOME."""
        path.write_text(
            f"#!{sys.executable} -SE\nfrom pathlib import Path\nHOME = Path({str(self.home)!r})\n{text}"
        )
        path.chmod(0o755)

    def plan(self, run: str) -> None:
        """Plan a run of the lab, as a person may before the playbook is called."""
        (self.runs / run / "raw").mkdir(parents=True)
        for name, content in planned(run).items():
            (self.runs / run / name).write_bytes(content)

    def start(self, run: str, *options: str, **environment: str) -> subprocess.Popen[str]:
        """Call the acceptance playbook."""
        argv = [BIN / "ansible-playbook", "-i", self.inventory, "playbooks/acceptance.yml", "-e"]
        return subprocess.Popen(
            [*map(str, argv), f"run_id={run}", *options],
            cwd=CHECKOUT,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def play(self, run: str, *options: str, limit_s: float = 250, quick: bool = True) -> tuple[int, str]:
        """Call it and wait; return its status and what it printed, on one line.

        `quick`: with Mitogen, at half the processor time. It has a sudo of its own, and outlives a playbook
        that is killed.
        """
        child = self.start(run, *options, **(mitogen() if quick else {}))
        printed, _ = child.communicate(timeout=limit_s)
        return child.returncode, " ".join(printed.split())

    def hang(self, stage: str) -> None:
        """Let the first job of a stage take for ever."""
        (self.home / "hangs").write_text(stage)

    def until(self, condition, complaint: str, seconds: float = 120) -> None:
        """Wait for something."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, complaint
            time.sleep(0.1)

    def text(self, name: str) -> str:
        """Return a file of the stage's folder."""
        path = self.home / name
        return path.read_text() if path.exists() else ""
