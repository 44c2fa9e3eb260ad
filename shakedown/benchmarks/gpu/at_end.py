"""What a node's GPUs showed when a job had measured: who else was on them, and their power limits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shakedown.benchmarks.gpu.output_nvidia_smi import parse_query
from shakedown.records.errors import BadInput
from shakedown.run.job_folder import JobFolder

# What `Measurement.disturbed` holds.
_MOST_CHARACTERS = 500


@dataclass(frozen=True)
class AtEnd:
    """One GPU."""

    limit_w: float | None
    others: tuple[str, ...]  # processes that were on it: `process 1105 (638 MiB)`


def at_end(folder: JobFolder, node: str) -> Mapping[int, AtEnd]:
    """Return what each GPU of a node showed, by its number; nothing where nobody looked."""
    name = f"gpus.{node}.after.json"
    return folder.once(_read, name) if folder.holds(name) else {}


def disturbed(folder: JobFolder, gpus: Mapping[str, Iterable[int]]) -> str:
    """Say which other processes were on these GPUs of each node; empty if none was seen."""
    seen = {node: at_end(folder, node) for node in gpus}
    return "; ".join(
        f"another process was on GPU {gpu} of {node} at the end: {', '.join(seen[node][gpu].others)}"
        for node, mine in gpus.items()
        for gpu in sorted(set(mine) & set(seen[node]))
        if seen[node][gpu].others
    )[:_MOST_CHARACTERS]


def _read(folder: Path, name: str) -> dict[int, AtEnd]:
    try:
        commands = json.loads(JobFolder(folder).text(name))["commands"]
        listed, processes = commands["gpus"], str(commands["processes"]["out"])
        rows = parse_query(listed["out"], file=name).gpus if listed["exit_code"] == 0 else ()
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BadInput("is no look at GPUs", fix="run it again", file=name) from None
    found = {}
    for row in rows:
        index, watts = row.get("index"), row.get("power.limit")
        if isinstance(index, int):
            limit_w = float(watts) if isinstance(watts, int | float) else None
            found[index] = AtEnd(limit_w, _processes(processes, str(row.get("uuid"))))
    return found


def _processes(text: str, uuid: str) -> tuple[str, ...]:
    cells = ([cell.strip() for cell in line.split(",")] for line in text.splitlines()[1:])
    return tuple(f"process {row[1]} ({row[2]})"[:60] for row in cells if len(row) >= 3 and row[0] == uuid)
