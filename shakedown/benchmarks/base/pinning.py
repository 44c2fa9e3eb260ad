"""Where the ranks of a job ran, by the notes of `shakedown.onnode.pin`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from shakedown.records.errors import BadInput
from shakedown.run.job_folder import JobFolder


@dataclass(frozen=True, slots=True)
class Deviation:
    """One check; `wrong` None: what the job left does not tell."""

    check: str
    wrong: int | None
    detail: str


def judge_pinning(folder: JobFolder, ranks: Mapping[str, int]) -> Deviation:
    """Check that every rank ran on the CPUs that its node's rank file gives it, and on no other.

    Args:
        folder: the job's.
        ranks: how many ranks each node had.
    """
    said: list[str] = []
    unknown: list[str] = []
    for node, many in ranks.items():
        for rank in range(many):
            where, note = f"rank {rank} on {node}", _note(folder, node, rank)
            if note is None:
                unknown.append(f"{where} left no note")
                continue
            wanted, runs = note["wanted"], note["runs"]
            if note["by"] != "rankfile" or not wanted:
                said.append(
                    f"{where}: /etc/shakedown/rankfile has no CPUs for it (roles/numa_pinning writes it)"
                )
            elif not runs or not set(runs) <= set(wanted):
                said.append(f"{where} runs on CPUs {_list(runs)}, its rank file says {_list(wanted)}")
    if said:
        return Deviation("pinning", 1, "; ".join(said)[:900])
    if unknown:
        return Deviation("pinning", None, "; ".join(unknown)[:900])
    return Deviation("pinning", 0, f"{sum(ranks.values())} ranks on the CPUs of their rank files")


def _note(folder: JobFolder, node: str, rank: int) -> dict[str, list[int] | str] | None:
    try:
        note = json.loads(folder.text(f"pinned.{node}.{rank}.json"))
    except (BadInput, OSError, ValueError):
        return None
    if not isinstance(note, dict) or (note.get("node"), note.get("rank")) != (node, rank):
        return None
    lists = all(
        isinstance(note.get(key), list) and all(isinstance(cpu, int) for cpu in note[key])
        for key in ("wanted", "runs")
    )
    return note if lists and isinstance(note.get("by"), str) else None


def _list(cpus: list[int] | str) -> str:
    """Write CPU numbers, the first few."""
    return ",".join(map(str, cpus[:8])) + (",..." if len(cpus) > 8 else "")
