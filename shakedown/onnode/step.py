"""Start a job's steps: one of this package's programs on every node, beside what runs there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# What goes before an srun, or before what starts one: it waits while slurmctld is away.
WITH_SLURM = ("sh", str(Path(__file__).with_name("with_slurm.sh")))
# How long, in seconds, and the file that says that it was in vain.
SILENT_S, SILENT_FILE = "SHAKEDOWN_SLURM_SILENT_S", "SHAKEDOWN_SLURM_SILENT_FILE"


def once_a_node(nodes: int, module: str, *words: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command: a step of one task a node, which takes nothing from the steps beside it.

    Args:
        nodes: how many nodes the job has.
        module: of this package.
        words: its arguments.
        options: more options of srun.
    """
    step = [*WITH_SLURM, "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap"]
    alone = ["--mpi=none", "--cpu-bind=none", "--input=none"]
    return [*step, *options, *alone, sys.executable, "-m", module, *words]


def wait_for_slurm() -> None:
    """Return once slurmctld answers, or after the time that it may be silent.

    For steps that have a time limit of their own, which is not to pass while slurmctld is away.
    """
    subprocess.run([*WITH_SLURM, "true"], check=False, stdin=subprocess.DEVNULL)
