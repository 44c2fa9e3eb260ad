"""Run a rank on the CPUs beside its GPU or NIC, as the node's rank file says, and note where it really runs.

    srun ... python -m shakedown.onnode.pin [--note FOLDER] PROGRAM ARGUMENTS...

/etc/shakedown/rankfile (roles/numa_pinning, `shakedown topology --ranks`) gives the CPUs of local rank i by
the kernel's numbers. OpenMPI would take them for its own logical numbers, and srun reads no rank file: so
this program, which stands before the rank whatever starts it, is what applies the file. On a node without
one, local rank i runs on the CPUs that the kernel calls local to GPU i (CUDA_DEVICE_ORDER=PCI_BUS_ID). A rank
of which neither is known is not bound. `--note` writes FOLDER/pinned.NODE.RANK.json, which says what was
wanted, by what, and where the rank runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

RANK_FILE = "etc/shakedown/rankfile"
_DIGITS = 5  # of a CPU's number: Linux counts to 8,192 at most
_RANK = re.compile(r"rank\s+(\d+)\s*=\s*\S+\s+slots?\s*=\s*([0-9,-]+)\s*\Z")


def cpu_set(text: str) -> set[int]:
    """Return the numbers of a CPU list such as `0-3,8`; what is no number in it is left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(last) <= _DIGITS:
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def rank_file_cpus(rank: int, root: Path = Path("/")) -> set[int] | None:
    """Return the CPUs of local rank `rank` in the node's rank file, empty if it has none; None: no file."""
    try:
        lines = (root / RANK_FILE).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        found = _RANK.match(line.strip())
        if found and int(found[1]) == rank:
            return cpu_set(found[2])
    return set()


def local_cpus(rank: int, root: Path = Path("/")) -> set[int]:
    """Return the CPUs beside GPU `rank` in PCI order; empty if unknown."""
    gpus = sorted(path.name.lower() for path in (root / "proc/driver/nvidia/gpus").glob("*:*:*.*"))
    if rank >= len(gpus):
        return set()
    try:
        return cpu_set(
            (root / "sys/bus/pci/devices" / gpus[rank] / "local_cpulist").read_text(encoding="ascii")
        )
    except OSError:
        return set()


def local_rank() -> int | None:
    """Return this process's number among the ranks of its node, None if nothing says it.

    mpirun's own variable comes first: its ranks inherit SLURM_LOCALID from the daemon that srun started for
    it, of which there is one a node, so that it is 0 for all of them.
    """
    rank = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ.get("SLURM_LOCALID") or ""
    return int(rank) if rank.isdigit() else None


def wanted_cpus(rank: int, root: Path = Path("/")) -> tuple[str, set[int]]:
    """Return what says where a local rank belongs (`rankfile`, `kernel` or `nothing`), and the CPUs."""
    filed = rank_file_cpus(rank, root)
    if filed is not None:
        return "rankfile", filed
    cpus = local_cpus(rank, root)
    return ("kernel", cpus) if cpus else ("nothing", set())


def bind(root: Path = Path("/")) -> dict[str, object]:
    """Bind this process, and return what was wanted and what it got."""
    rank = local_rank()
    by, wanted = wanted_cpus(rank, root) if rank is not None else ("nothing", set())
    # What Slurm keeps from this step cannot be had.
    if cpus := wanted & os.sched_getaffinity(0):
        os.sched_setaffinity(0, cpus)
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    runs = sorted(os.sched_getaffinity(0))
    return {"schema": 1, "node": node, "rank": rank, "by": by, "wanted": sorted(wanted), "runs": runs}


def main(argv: list[str], root: Path = Path("/")) -> None:
    """Bind this process and become the program."""
    folder, command = (Path(argv[1]), argv[2:]) if argv[:1] == ["--note"] and len(argv) > 1 else (None, argv)
    if not command:
        sys.exit("usage: python -m shakedown.onnode.pin [--note FOLDER] PROGRAM ARGUMENTS...")
    note = bind(root)
    if folder is not None:
        (folder / f"pinned.{note['node']}.{note['rank']}.json").write_text(json.dumps(note), encoding="utf-8")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
