"""`make acceptance`: from this machine to a verdict. Boot the lab, converge it, measure, judge, report."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from lab import cluster
from lab.errors import LabError
from lab.paths import CHECKOUT, cache_root, default_name
from lab.progress import JobsNow, Steps, busy_host
from lab.topology import DEFAULT_NODES

BIN = Path(sys.executable).parent
INVENTORY = CHECKOUT / "inventories" / "lab"
# The sites that the playbooks set up, each with its inventory.
INVENTORIES = {"own": INVENTORY, "fabric": CHECKOUT / "inventories" / "lab_fabric"}
REQUIREMENTS = CHECKOUT / "requirements" / "head.txt"
# The guests' Python; their glibc is newer than every manylinux level listed.
GUEST_PYTHON = "3.13"
_PLATFORMS = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
PLAN = "plan.json"
CONVERGED = "converged"
SHARED = "/shared/shakedown"  # shared_stage_path of both inventories
MEASURING = "run the tests and judge"
# What a verdict's exit status means where it is not PASS.
MEANING = {1: "the verdict is FAIL", 3: "the verdict is INCONCLUSIVE or NOT-RUN"}
_HEADING = re.compile(r"(PLAY|TASK) \[(.*)\]")


def run(
    *,
    nodes: int = DEFAULT_NODES,
    name: str | None = None,
    site: str = "own",
    keep: bool = False,
    run_id: str | None = None,
) -> int:
    """Do it all; return the verdict's exit status (0 PASS, 1 FAIL, 3 INCONCLUSIVE or NOT-RUN).

    Raises:
        LabError: something on this machine is missing or broken; nothing is left running.
    """
    if site not in INVENTORIES:
        raise LabError(f"site {site!r} is not for the playbooks", fix=f"use one of {', '.join(INVENTORIES)}")
    inventory = INVENTORIES[site]
    name = name or default_name()
    run_id = run_id or datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    runs = CHECKOUT / "reports" / "runs"
    folder = runs / run_id
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{runs} cannot be written: {error.strerror}", fix="mend its owner or mode") from None
    if not os.access(runs, os.W_OK):
        raise LabError(f"{runs} cannot be written", fix="mend its owner or mode")
    if folder.exists():
        raise LabError(f"there is a run {run_id} already", fix="choose another --run-id")
    # SIGTERM as Ctrl-C: whatever ends us, the lab is taken down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    steps, log = Steps(), runs / f"{run_id}.log"
    try:
        with steps.step("python packages for the head"):
            wheels = wheelhouse(steps)
        with steps.step("boot the lab"):
            cluster.Lab.up(nodes, name, site=site, progress=steps.doing)
        with steps.step("configure hosts, switch and Slurm"):
            converged = playbook("site.yml", steps, name=name, wheels=wheels, log=log, inventory=inventory)
        if not converged:
            steps.say(f"some hosts could not be configured, see {log}; what works is measured all the same")
        with steps.step(MEASURING):
            playbook(
                "acceptance.yml",
                steps,
                name=name,
                wheels=wheels,
                log=log,
                run_id=run_id,
                inventory=inventory,
                jobs=JobsNow(folder, lambda script: _on_head(name, script), f"{SHARED}/runs/{run_id}"),
            )
    finally:
        if keep:
            steps.say(
                f"the lab stays up: python -m lab status --name {name}; python -m lab down --name {name}"
            )
        else:
            cluster.stop(name, steps.doing)
    steps.summary()
    if not (folder / PLAN).exists():
        raise LabError(f"no run was made, see {log}", fix="the log's last error says why")
    print()
    slow = _slow(folder, steps)
    if slow:
        print(slow, flush=True)
    status = subprocess.run([BIN / "shakedown", "report", folder], check=False, cwd=CHECKOUT).returncode
    if meaning := MEANING.get(status):
        print(f"\nNothing crashed: {meaning}, so this ends with status {status}. make calls that an error.")
    return status


def converge(lab: cluster.Lab) -> None:
    """Play site.yml on a lab and save it.

    Raises:
        LabError: the lab is not for the playbooks, or a host could not be configured.
    """
    inventory = INVENTORIES.get(lab.site)
    if inventory is None:
        raise LabError(f"lab {lab.name} is set up already, by lab/{lab.site}", fix="converge one of your own")
    steps, log = Steps(), lab.paths.disks / "site.yml.log"
    log.unlink(missing_ok=True)
    with steps.step("python packages for the head"):
        wheels = wheelhouse(steps)
    with steps.step("configure hosts, switch and Slurm"):
        well = playbook("site.yml", steps, name=lab.name, wheels=wheels, log=log, inventory=inventory)
    if not well:
        said = log.read_text(encoding="utf-8")[-4000:]
        raise LabError(f"site.yml failed in {CHECKOUT}", detail=said, fix=f"{log} has the whole of it")
    lab.save(CONVERGED)


def _slow(folder: Path, steps: Steps) -> str:
    """Return that the host was too slow, where the stages took far longer than the plan expects."""
    try:
        stages = json.loads((folder / PLAN).read_bytes())["expectation"]["stages"]
        expected = sum(stage["expected_s"] for stage in stages)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return busy_host(expected, dict(steps.timings).get(MEASURING, 0))


def _on_head(name: str, script: str) -> str:
    """Return what a script prints on the lab's head; nothing where it does not answer soon."""
    return cluster.Lab.open(name).ssh("head", ["sh", "-c", script], timeout_s=10).stdout


def environment(name: str, wheels: Path, *, plain_ssh: bool = False) -> dict[str, str]:
    """What the playbooks need to drive an emulated lab: Mitogen, five times faster there than plain SSH."""
    wanted = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        "SHAKEDOWN_LAB": name,
        "SHAKEDOWN_WHEELS": str(wheels),
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_TIMEOUT": "120",
        "ANSIBLE_FORCE_COLOR": "0",
        # A task is shown when it begins, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        # Facts of an earlier lab of the same name are another machine's.
        "ANSIBLE_CACHE_PLUGIN": "memory",
    }
    return wanted if plain_ssh else wanted | mitogen()


def mitogen() -> dict[str, str]:
    """What lets Ansible keep one Python for each host instead of one for each task, where it is installed."""
    plugins = next(BIN.parent.glob("lib/python*/site-packages/ansible_mitogen/plugins/strategy"), None)
    if plugins is None:
        return {}
    return {"ANSIBLE_STRATEGY_PLUGINS": str(plugins), "ANSIBLE_STRATEGY": "mitogen_linear"}


def playbook(
    book: str,
    steps: Steps,
    *,
    name: str,
    wheels: Path,
    log: Path,
    run_id: str | None = None,
    options: tuple[str, ...] = (),
    plain_ssh: bool = False,
    inventory: Path = INVENTORY,
    jobs: Callable[[], str] | None = None,
) -> bool:
    """Run one playbook, show its tasks as they go, log its output; return whether all hosts were well.

    `jobs` says which job runs, while ReFrame does.
    """
    argv = [str(BIN / "ansible-playbook"), "-i", str(inventory), f"playbooks/{book}", *options]
    if run_id:
        argv += ["-e", f"run_id={run_id}"]
    child = subprocess.Popen(
        argv,
        cwd=CHECKOUT,
        env=environment(name, wheels, plain_ssh=plain_ssh),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert child.stdout is not None
    play = ""
    try:
        with log.open("a", encoding="utf-8") as kept:
            for line in child.stdout:
                kept.write(line)
                heading = _HEADING.match(line)
                if heading and heading[1] == "PLAY":
                    play = heading[2]
                elif heading:
                    steps.doing(f"{play}: {heading[2]}")
                    steps.more = jobs if heading[2] == "Run ReFrame" else None
                elif line.startswith(("fatal:", "[ERROR]")):
                    steps.say(line.strip()[:300])
        return child.wait() == 0
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def wheelhouse(steps: Steps, requirements: Path = REQUIREMENTS, python: str = GUEST_PYTHON) -> Path:
    """Return the folder with all wheels of a lock for a head of this Python, downloaded once.

    Raises:
        LabError: the package index cannot be reached.
    """
    digest = hashlib.sha256(requirements.read_bytes() + python.encode()).hexdigest()[:16]
    folder = cache_root() / "wheels" / digest
    if folder.is_dir():
        return folder
    steps.doing("downloading")
    aside = folder.with_name(f".{digest}.{os.getpid()}")
    aside.mkdir(parents=True)
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--require-hashes",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={python}",
        *(f"--platform={platform}" for platform in _PLATFORMS),
        f"--dest={aside}",
        f"--requirement={requirements}",
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            reason = next(
                (x for x in done.stderr.splitlines() if x.startswith("ERROR")), "pip download failed"
            )
            raise LabError(f"wheels for the head: {reason}", fix="is a package index reachable?")
        try:
            aside.rename(folder)
        except OSError:  # another process was faster; its wheels are the same
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder
