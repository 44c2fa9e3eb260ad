"""Start the collectives through PyTorch inside a Slurm job, under a watchdog, and note what they measure.

python -m shakedown.benchmarks.torch_collectives.job FOLDER    (in the batch script, on the first node)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from shakedown.benchmarks.nccl.job import before, on_every_node
from shakedown.onnode import standing, tcp_paths
from shakedown.onnode.journal import Clock, Journal, job, ran, watched
from shakedown.onnode.software import Ready, enter
from shakedown.onnode.standing import wait_for_slurm
from shakedown.records.program import SOURCE
from shakedown.records.reading import ExitStatus


@job
def main(folder: Path, spec: dict[str, Any]) -> int:
    """Run the collectives on all ranks."""
    nodes, each = list(spec["ranks"]), max(spec["ranks"].values())
    gpu = spec["backend"] == "nccl"
    ready = enter(folder, "pytorch", gpus=gpu)
    seen = {"gpus": spec["ranks"], "shared_gpus": spec.get("shared_gpus", [])}
    problem = ready.problem or (
        before(folder, seen, spec, _library(ready)) if gpu else tcp_paths.look(folder, spec)
    )
    clock, code, out = Clock(), None, folder / "torch.jsonl"
    if problem is None:
        command = [
            "srun",
            f"--nodes={len(nodes)}",
            f"--ntasks={sum(spec['ranks'].values())}",
            f"--ntasks-per-node={each}",
            "--overlap",
            *([f"--gres=gpu:{each}"] if gpu else []),
            "--mpi=none",
            "--cpu-bind=none",
            "--input=none",
            "--kill-on-bad-exit=1",
            *(ready.step or ready.prefix),
            ready.interpreter,
            "-m",
            "shakedown.benchmarks.torch_collectives.program",
            str(folder),
        ]
        # The interpreter is the site's own: it finds this package where this one lies.
        variables = {
            **spec["variables"],
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")])),
            standing.MARK: str(out),
            "SHAKEDOWN_FIRST_NODE": nodes[0] if len(nodes) > 1 else "127.0.0.1",
        }
        wait_for_slurm()
        code, problem = watched(
            command,
            out,
            folder / "torch.err",
            timeout_s=spec["timeout_s"],
            variables=variables,
            standing=lambda: standing.ask(folder, nodes, str(out)),
        )
        if gpu:
            on_every_node(folder, "after", seen)
        if code == 1 and '"wrong"' in out.read_text(encoding="utf-8", errors="replace"):
            problem = None  # wrong elements are a result, judged from the rows
    else:
        out.touch()
    operations = [*spec["operations"], *(["all_reduce"] if spec["many"] else [])]
    for operation in dict.fromkeys(operations):
        Journal(folder).add(
            "torch-collectives",
            f"torch_{operation}",
            out.name,
            nodes,
            clock,
            code,
            problem,
            params=spec["params"],
        )
    return ExitStatus.INCOMPLETE if problem else 0


def _library(ready: Ready) -> str:
    """Return PyTorch's library that loads NCCL; nothing in a container, which brings the same everywhere."""
    if ready.step or ready.contained:
        return ""
    # PyTorch is found and not loaded, which takes seconds.
    ask = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    done = ran([ready.interpreter, "-c", ask], 60)
    return f"{done.stdout.strip()}/lib/libtorch_cuda.so" if done and done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
