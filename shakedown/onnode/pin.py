"""Run a rank on the CPUs beside its GPU.

    srun ... python -m shakedown.onnode.pin PROGRAM ARGUMENTS...

Local rank i uses GPU i (CUDA_DEVICE_ORDER=PCI_BUS_ID); the kernel says which CPUs are local to that GPU's PCI
slot. A rank without a GPU of its own, or on a kernel that does not tell, is not bound.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def local_cpus(rank: int, root: Path = Path("/")) -> set[int]:
    """Return the CPUs beside GPU `rank` in PCI order; empty if unknown."""
    gpus = sorted(path.name.lower() for path in (root / "proc/driver/nvidia/gpus").glob("*:*:*.*"))
    if rank >= len(gpus):
        return set()
    try:
        text = (root / "sys/bus/pci/devices" / gpus[rank] / "local_cpulist").read_text(encoding="ascii")
    except OSError:
        return set()
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def main(argv: list[str]) -> None:
    """Bind this process and become the program."""
    if not argv:
        sys.exit("usage: python -m shakedown.onnode.pin PROGRAM ARGUMENTS...")
    rank = os.environ.get("SLURM_LOCALID") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or ""
    cpus = local_cpus(int(rank)) & os.sched_getaffinity(0) if rank.isdigit() else set()
    if cpus:
        os.sched_setaffinity(0, cpus)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
