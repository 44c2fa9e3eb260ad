"""What a node's GPUs showed when a job had measured: who else was on them, and their power limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shakedown.benchmarks.gpu.output_look import GpuLook, parse_gpu_look
from shakedown.run.job_folder import JobFolder
from shakedown.run.ownership import CONTENTS

# What `Measurement.disturbed` holds.
_MOST_CHARACTERS = 500


def at_end(folder: JobFolder, node: str) -> GpuLook | None:
    """Return what a node's GPUs showed; None where nobody looked. Raises BadInput for what is no look."""
    name = f"gpus.{node}.after.json"
    return folder.once(_read, name) if folder.holds(name) else None


def disturbed(folder: JobFolder, gpus: Mapping[str, Iterable[int]]) -> str:
    """Say which other processes were on these GPUs of each node, or that it is not known; else nothing."""
    return "; ".join(said for node, mine in gpus.items() for said in _node(folder, node, sorted(mine)))[
        :_MOST_CHARACTERS
    ]


def _node(folder: JobFolder, node: str, gpus: list[int]) -> Iterator[str]:
    look = at_end(folder, node)
    if look is None:
        # PyTorch's jobs before there was a list of a job's files looked at the start alone.
        if folder.holds(f"gpus.{node}.before.json") and folder.holds(CONTENTS):
            yield f"who else was on the GPUs of {node} at the end is not known: they were not looked at"
        return
    if look.users is None:
        yield f"who else was on the GPUs of {node} at the end is not known: nvidia-smi said {look.no_users!r}"
        return
    seen = {gpu.index: look.users.get(gpu.uuid, ()) for gpu in look.gpus}
    for gpu in gpus:
        if gpu not in seen:
            yield f"GPU {gpu} of {node} was not there at the end"
        elif seen[gpu]:
            yield f"another process was on GPU {gpu} of {node} at the end: {', '.join(seen[gpu])}"


def _read(folder: Path, name: str) -> GpuLook:
    return parse_gpu_look(JobFolder(folder).text(name), file=name)
