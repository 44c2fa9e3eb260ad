"""Run nccl-tests inside a Slurm job: every operation, repeated, with NCCL's log of where the data went.

    python -m shakedown.benchmarks.nccl.job FOLDER        (in the batch script, on the first node of the job)

FOLDER/spec.json says what to run, FOLDER/software.json where the programs are. Every run is one step of this
job under a watchdog; a run that hangs is ended alone and the next one begins.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shakedown.onnode import gpus, standing, tcp_paths
from shakedown.onnode.journal import Clock, Journal, job, ran, watched
from shakedown.onnode.software import Ready, enter
from shakedown.onnode.standing import once_a_node, wait_for_slurm
from shakedown.records.program import SOURCE
from shakedown.records.reading import ExitStatus

# Where builds of nccl-tests lie that no PATH names.
_PLACES = ("/usr/local/bin", "/opt/nccl-tests/build", "/opt/nccl_tests/build", "/usr/local/nccl-tests/build")
SPLIT = {"mod": "MOD", "div": "DIV"}  # every rail at once, every node at once


def arguments(spec: dict[str, Any], operation: str, gpus_each: int, **changes: int) -> list[str]:
    """Return the options of one nccl-tests program."""
    s = {**spec, **changes}
    asked = {"-b": "min_bytes", "-e": "max_bytes", "-f": "factor", "-d": "dtype", "-n": "iterations"}
    words = [word for option, key in (*asked.items(), ("-w", "warmup")) for word in (option, str(s[key]))]
    return [*words, "-c", str(s.get("check", 1)), "-g", str(gpus_each)]


def launch(
    spec: dict[str, Any],
    program: list[str],
    variables: dict[str, str],
    folder: Path,
    container: tuple[str, ...] = (),
) -> tuple[list[str], int]:
    """Return the command that starts the program on all ranks, and how many GPUs each process drives.

    `container`: options with which srun starts its tasks in one.
    """
    nodes, per_node = len(spec["gpus"]), next(iter(spec["gpus"].values()))
    step = [
        "srun",
        f"--nodes={nodes}",
        "--overlap",
        f"--gres=gpu:{per_node}",
        "--cpu-bind=none",
        "--input=none",
        *container,
    ]
    if spec["launcher"] == "one-process":
        mpi = "pmix" if container or built_with_openmpi(program) else "none"
        return [*step, "--ntasks=1", f"--mpi={mpi}", *program], per_node
    # A container that srun enters has a Python of its own; PYTHONPATH and this package reach it.
    python = "python3" if container else sys.executable
    pinned = [python, "-m", "shakedown.onnode.pin", "--note", str(folder), *program]
    if spec["launcher"] == "srun":
        ranks = [f"--ntasks={nodes * per_node}", f"--ntasks-per-node={per_node}", "--kill-on-bad-exit=1"]
        return [*step, *ranks, "--mpi=pmix", *pinned], 1
    exported = [word for name in sorted(variables) for word in ("-x", name)]
    # mpirun is to start its daemons by srun: by itself it looks for ssh too, and ends where there is none.
    # As root it wants an option that says this is intended.
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # Debian's packages that were unpacked and not installed have no link of the short name.
    mpirun = next(filter(shutil.which, ("mpirun", "mpirun.openmpi")), "mpirun")
    ranks = ["-np", str(nodes * per_node), "--map-by", f"ppr:{per_node}:node", "--bind-to", "none"]
    return [mpirun, *root, "--mca", "plm", "slurm", *ranks, *exported, *pinned], 1


def built_with_openmpi(program: list[str]) -> bool:
    """Whether a program needs OpenMPI: then one process alone asks for PMIx too, and ends without it."""
    linked = ran([*program[:-1], "ldd", program[-1]], 60)
    return linked is not None and "libopen-pal" in linked.stdout


def program(operation: str, node: str, ready: Ready) -> tuple[list[str], dict[str, str] | None]:
    """Return the program of an operation, or why there is none."""
    name = f"{operation}_perf"
    if ready.problem:
        return [], ready.problem
    if ready.step:  # srun itself enters the container
        return [name], None
    if ready.contained:
        return [*ready.prefix, name], None
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(_PLACES))
    if found:
        return [found], None
    fix = "install nccl-tests, or say where it is in software.nccl_tests (group_vars/all/software.yml)"
    return [], {"kind": "missing-tool", "message": f"{node} has no {name}: {fix}"}


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Run everything that the spec asks for."""
    nodes = list(spec["gpus"])
    # OpenMPI first: nccl-tests' own libraries come before it. mpirun itself is never in a container.
    mpi, ready = enter(folder, "openmpi"), enter(folder, "nccl_tests", gpus=True)
    command, _ = program(spec["operations"][0], nodes[0], ready)
    # A container brings its own NCCL, the same one everywhere.
    asked = "" if ready.step or ready.contained else "".join(command)
    problem = mpi.problem or ready.problem or before(folder, spec, spec, asked)
    sampler = every_node(spec, "sample", str(folder)) if problem is None else None
    journal, good = Journal(folder), problem is None
    for operation in spec["operations"]:
        good &= measure(folder, journal, spec, operation, nodes, problem, ready)
    (folder / "stop").touch()
    on_every_node(folder, "after", spec)
    if sampler:  # it has ended meanwhile
        end(sampler)
    (folder / "stop").unlink()
    return 0 if good else ExitStatus.INCOMPLETE


def every_node(spec: dict[str, Any], *what: str) -> subprocess.Popen[bytes]:
    """Start `shakedown.onnode.gpus` on every node of the job."""
    per_node = next(iter(spec["gpus"].values()))
    gres = [f"--gres=gpu:{per_node}"]
    step = once_a_node(len(spec["gpus"]), "shakedown.onnode.gpus", *what, options=gres)
    return subprocess.Popen(step, stdin=subprocess.DEVNULL)


def end(sampler: subprocess.Popen[bytes]) -> None:
    """Let the samplers end by themselves, or end their step: a stuck nvidia-smi must not cost the results."""
    asks: tuple[Callable[[], object], ...] = (sampler.poll, sampler.terminate, sampler.kill)
    for ask in asks:
        ask()
        try:
            sampler.wait(5)
        except subprocess.TimeoutExpired:
            continue
        return


def before(
    folder: Path, gpu_spec: dict[str, Any], spec: dict[str, Any], program: str
) -> dict[str, str] | None:
    """Look at all GPUs and, at the same time, at the ways of TCP; return the reason to measure nothing."""
    with ThreadPoolExecutor(1) as beside:
        ways = beside.submit(tcp_paths.look, folder, spec)
        return on_every_node(folder, "before", gpu_spec, program) or ways.result()


def on_every_node(folder: Path, when: str, spec: dict[str, Any], program: str = "") -> dict[str, str] | None:
    """Look at all GPUs, and at the NCCL that a program would load; return the reason to measure nothing."""
    try:
        every_node(spec, "look", when, str(folder), *filter(None, [program])).wait(120)
    except subprocess.TimeoutExpired:
        return {"kind": "environment", "message": "nvidia-smi did not answer within 120 s on some node"}
    looks = []
    for node, wanted in spec["gpus"].items():
        try:
            seen = json.loads((folder / f"gpus.{node}.{when}.json").read_bytes())
        except (OSError, ValueError):
            return {"kind": "environment", "message": f"{node} did not say what GPUs it has"}
        if problem := gpus.obstacle(seen, wanted):
            return problem
        looks.append(seen)
    return gpus.one_for_two(looks, spec.get("shared_gpus", [])) or gpus.differ(looks)


def measure(
    folder: Path,
    journal: Journal,
    spec: dict[str, Any],
    operation: str,
    nodes: list[str],
    problem: dict[str, str] | None,
    ready: Ready = Ready(),  # noqa: B008  (frozen)
) -> bool:
    """Run one operation as often as asked; one record for its numbers, one for its logs."""
    command, missing = program(operation, nodes[0], ready)
    problem, clock, code = problem or missing, Clock(), None
    names = [f"nccl_{operation}.r{i}.txt" for i in range(1, spec["repeats"] + 1)]
    for name in names if problem is None else ():
        code, problem = once(folder, spec, operation, command, folder / name, container=ready.step)
        if problem:
            break
    if problem and problem["kind"] == "killed" and ": hung, " in problem["message"]:
        rest = spec["operations"][spec["operations"].index(operation) + 1 :]
        needed_s = 60 + len(rest) * (spec["repeats"] + spec["tuning"]) * spec["timeout_s"]
        found = searched(folder, spec, operation, command, ready.step, standing.budget_s(needed_s))
        problem = {**problem, "message": "; ".join(filter(None, (problem["message"], found)))[:2000]}
    (folder / names[0]).touch()
    ended = (nodes, clock, code, problem)
    journal.add("nccl", f"nccl_{operation}", names[0], *ended, params=spec["params"], also=names[1:])
    log = folder / f"nccl_{operation}.log"
    if problem is None and spec["tuning"]:
        out = folder / f"nccl_{operation}.tuning.txt"
        once(folder, spec, operation, command, out, tuning=True, container=ready.step)
    log.touch()
    journal.add(
        "nccl-log",
        "nccl_transport",
        log.name,
        *ended,
        params={**spec["params"], "operation": operation},
        also=(f"nccl_{operation}.tuning.txt", f"nccl_{operation}.tuning.log"),
    )
    return problem is None


def searched(
    folder: Path,
    spec: dict[str, Any],
    operation: str,
    command: list[str],
    container: tuple[str, ...],
    seconds: float,
) -> str:
    """Return what of a hung operation hangs, by smaller ones of the same job; empty: nothing was tried."""
    few = {"iterations": 2, "warmup": 1, "check": 0}

    def ends(nodes: Sequence[str]) -> bool | None:
        part = {**spec, "gpus": {node: spec["gpus"][node] for node in nodes}}
        started, each = launch(part, command, spec["variables"], folder, container)
        at = ["--host", ",".join(f"{node}:{spec['gpus'][node]}" for node in nodes)]
        at = at if spec["launcher"] == "mpirun" else [f"--nodelist={','.join(nodes)}"]
        full = [started[0], *at, *started[1:], *arguments(part, operation, each, **few)]
        return standing.ends_in_time(full, {**spec["variables"], "NCCL_DEBUG": "WARN"})

    return standing.search(list(spec["gpus"]), ends, seconds) if len(spec["gpus"]) > 1 else ""


def once(
    folder: Path,
    spec: dict[str, Any],
    operation: str,
    command: list[str],
    out: Path,
    *,
    tuning: bool = False,
    container: tuple[str, ...] = (),
) -> tuple[int | None, dict[str, str] | None]:
    """Run a program once. Its processes' logs are joined in nccl_OPERATION[.tuning].log."""
    log = folder / (f"nccl_{operation}.tuning.log" if tuning else f"nccl_{operation}.log")
    variables = {**spec["variables"], "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{log}.%h.%p"}
    # Since 2.30 the end of a communicator is of DESTROY; earlier releases pass over what they do not know.
    variables["NCCL_DEBUG_SUBSYS"] = "INIT,TUNING" if tuning else "INIT,NET,DESTROY"
    if spec["split"] != "none":
        variables["NCCL_TESTS_SPLIT"] = f"{SPLIT[spec['split']]} {next(iter(spec['gpus'].values()))}"
    changes = {"iterations": 1, "warmup": 0, "check": 0} if tuning else {}
    variables[standing.MARK] = str(out)
    if container:
        variables["PYTHONPATH"] = str(SOURCE)
    started, each = launch(spec, command, variables, folder, container)
    if spec["launcher"] == "mpirun":
        # The job asked for one task a node; OpenMPI takes its slots from here.
        per_node = next(iter(spec["gpus"].values()))
        variables["SLURM_TASKS_PER_NODE"] = f"{per_node}(x{len(spec['gpus'])})"
    full = [*started, *arguments(spec, operation, each, **changes)]
    wait_for_slurm()
    code, problem = watched(
        full,
        out,
        out.with_suffix(".err"),
        timeout_s=spec["timeout_s"],
        variables=variables,
        standing=lambda: standing.ask(folder, list(spec["gpus"]), str(out)),
    )
    if code and b"# Out of bounds values : " in out.read_bytes():
        problem = None  # wrong elements are a result, judged from the rows
    parts = sorted(folder.glob(f"{log.name}.*"))
    # The logs of all runs: each number that is judged has its proof.
    with log.open("ab") as joined:
        for part in parts:
            joined.write(part.read_bytes())
            part.unlink()
    return code, problem


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
