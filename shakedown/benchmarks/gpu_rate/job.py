"""Work every GPU of this node at once, while it is sampled, and look before and after.

    srun --ntasks-per-node=1 --gres=gpu:N python -m shakedown.benchmarks.gpu_rate.job FOLDER

FOLDER/spec.json is the order of gpu_rate or, by its `name`, of gpu_integrity. One process a GPU runs its
program; all begin each kind of work together.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shakedown.onnode import gpus
from shakedown.onnode.journal import Clock, Journal, job
from shakedown.onnode.software import Ready, enter
from shakedown.records.program import SOURCE, WORKLOADS, own_python
from shakedown.records.reading import ExitStatus

_START_S = 50.0  # the longest that the node's GPUs wait for the slowest of their processes to load PyTorch
_LOOK_S = 0.1  # how often the processes' outputs are looked at meanwhile
# By the order's name, what runs on each GPU, and the seconds between two kinds of work: making the matrices,
# finding the size of a batch or taking digests.
_PROGRAMS = {
    "gpu_rate": ("shakedown.benchmarks.gpu_rate.program", 6.0),
    "gpu_integrity": ("gpu_integrity.program", 4.0),
}


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Measure this node."""
    before = gpus.look("before")
    name = spec.get("name", "gpu_rate")
    node, wanted = before["node"], spec["gpus"][before["node"]]
    gpus.write(folder, before)
    ready, clock = enter(folder, "pytorch", gpus=True), Clock()
    problem = gpus.obstacle(before, wanted) or ready.problem
    file = folder / f"{name}.{node}.jsonl"
    codes = _measure(folder, file, spec, name, ready) if problem is None else None
    if codes is None:
        file.touch()
    elif any(codes):
        said = (folder / f"{file.stem}.gpu{next(i for i, code in enumerate(codes) if code)}.err").read_text(
            encoding="utf-8", errors="replace"
        )
        last = (said.strip().splitlines() or ["no message"])[-1]
        problem = {"kind": "other", "message": f"{node}: {last}"[:500]}
    gpus.write(folder, gpus.look("after"))
    for work in spec["work"]:
        Journal(folder, node).add(
            name.replace("_", "-"),
            f"{name}_{work}",
            file.name,
            [node],
            clock,
            max((code if code >= 0 else 1 for code in codes), default=0) if codes is not None else None,
            problem,
        )
    return ExitStatus.INCOMPLETE if problem else ExitStatus.PASS


def _measure(folder: Path, file: Path, spec: dict[str, Any], name: str, ready: Ready) -> list[int]:
    """Run a process on each GPU and join what they print; return their exit statuses."""
    sampler = subprocess.Popen([*own_python(), "shakedown.onnode.gpus", "sample", str(folder)])
    program, between_s = _PROGRAMS[name]
    each_s = spec["seconds"] + spec.get("warmup_s", 0)
    order = {key: value for key, value in spec.items() if key not in ("gpus", "spread", "own")}
    order["slot_s"] = each_s + between_s
    # The interpreter is the site's own: it finds this package where this one lies.
    path = os.pathsep.join(filter(None, [str(SOURCE), str(WORKLOADS), os.environ.get("PYTHONPATH", "")]))
    node = file.stem.partition(".")[2]
    stems = [str(folder / f"{file.stem}.gpu{gpu}") for gpu in range(spec["gpus"][node])]
    limit = len(spec["work"]) * 2 * each_s + 30
    children = []
    for gpu, stem in enumerate(stems):
        words = [*ready.prefix, ready.interpreter, "-m", program]
        with Path(f"{stem}.out").open("wb") as out, Path(f"{stem}.err").open("wb") as err:
            children.append(
                subprocess.Popen(
                    [*words, json.dumps(order | {"gpu": gpu})],
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": _device(gpu)},
                )
            )
    begin = start_together(children, [Path(f"{stem}.out") for stem in stems])
    codes = []
    for child in children:
        try:
            codes.append(child.wait(max(1.0, begin + limit - time.time())))
        except subprocess.TimeoutExpired:
            child.kill()
            codes.append(child.wait())
    sampler.terminate()
    sampler.wait()
    with file.open("wb") as joined:
        for stem in stems:
            joined.write(Path(f"{stem}.out").read_bytes())
    return codes


def start_together(
    children: Sequence[subprocess.Popen[bytes]], outputs: Sequence[Path], *, patience_s: float = _START_S
) -> float:
    """Tell all processes when to begin, as soon as each has said its first line; return that time."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and any(
        child.poll() is None and not output.stat().st_size
        for child, output in zip(children, outputs, strict=True)
    ):
        time.sleep(_LOOK_S)
    begin = time.time() + 1.0
    for child in children:
        assert child.stdin is not None
        # One that has ended already says so by its exit status.
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(f"{begin!r}\n".encode())
            child.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    return begin


def _device(gpu: int) -> str:
    """Return the name of a job's GPU: Slurm may have named the job's own already."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name for name in given.split(",") if name]
    return names[gpu] if gpu < len(names) else str(gpu)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
