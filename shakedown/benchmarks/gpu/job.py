"""The node stage on one node: look at its GPUs, measure with nvbandwidth while sampling them, look again.

    srun --ntasks-per-node=1 --gres=gpu:N python -m shakedown.benchmarks.gpu.job FOLDER

FOLDER/spec.json says how many GPUs are due and which tests to run. Busy or missing GPUs are recorded and
nothing is measured on them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from shakedown.onnode import gpus
from shakedown.onnode.journal import Clock, Journal, job, watched
from shakedown.onnode.software import enter
from shakedown.records.program import own_python
from shakedown.records.reading import ExitStatus


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Measure this node."""
    before = gpus.look("before")
    node = before["node"]
    gpus.write(folder, before)
    problem = gpus.obstacle(before, spec["gpus"][node])
    journal, clock = Journal(folder, node), Clock()
    sampler = subprocess.Popen([*own_python(), "shakedown.onnode.gpus", "sample", str(folder)])
    program, missing = nvbandwidth(folder)
    problem_of_copies = problem or missing
    good = problem_of_copies is None
    if spec["warmup"] and good:
        every = [word for test in spec["nvbandwidth"] for word in ("-t", test)]
        kept = folder / f"warmup.{node}.json"
        watched([*program, "-j", *every], kept, kept.with_suffix(".err"), timeout_s=spec["timeout_s"])
    for test in spec["nvbandwidth"]:
        good &= _bandwidth(folder, journal, node, spec["timeout_s"], program, test, problem_of_copies)
    sampler.terminate()
    sampler.wait()
    after = gpus.write(folder, gpus.look("after"))
    # Missing GPUs are a result here, not an error; the parser reports what cannot be read.
    hidden = problem if problem and before["commands"]["gpus"]["exit_code"] != 0 else None
    journal.add("gpu-state", "gpu_state", after.name, [node], clock, 0, hidden)
    return 0 if good else ExitStatus.INCOMPLETE


def nvbandwidth(folder: Path) -> tuple[list[str], dict[str, str] | None]:
    """Return the words that start nvbandwidth here, and why they would not."""
    ready = enter(folder, "nvbandwidth", gpus=True)
    return [*ready.prefix, ready.program or "nvbandwidth"], ready.problem


def _bandwidth(
    folder: Path,
    journal: Journal,
    node: str,
    timeout_s: float,
    program: list[str],
    test: str,
    problem: dict[str, str] | None,
) -> bool:
    name, clock, code = f"nvbandwidth.{node}.{test}.json", Clock(), None
    out = folder / name
    if problem is None:
        command = [*program, "-j", "-t", test]
        code, problem = watched(command, out, folder / f"nvbandwidth.{node}.{test}.err", timeout_s=timeout_s)
    else:
        out.write_bytes(b"")
    journal.add("nvbandwidth", test, name, [node], clock, code, problem)
    return problem is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
