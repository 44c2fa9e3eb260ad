"""Start one of this package's programs once on every node of the job, beside what runs there."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def once_a_node(nodes: int, module: str, *words: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command: a step of one task a node, which takes nothing from the steps beside it.

    Args:
        nodes: how many nodes the job has.
        module: of this package.
        words: its arguments.
        options: more options of srun.
    """
    step = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap", *options]
    return [*step, "--mpi=none", "--cpu-bind=none", "--input=none", sys.executable, "-m", module, *words]
