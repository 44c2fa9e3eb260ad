"""What several readers of outputs share: whether times and rates agree, and where the ranks ran."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shakedown.benchmarks.base.contract import Read
from shakedown.physics.collectives import Collective, busbw_factor
from shakedown.records.base import Better, Params
from shakedown.records.reading import BadInput
from shakedown.records.results import OutputRecord
from shakedown.run.nic_counters import JobFolder

_ROUNDING = 1e-6  # these programs print every digit; nccl-tests rounds, and has a check of its own


def contradicted(
    collective: Collective,
    *,
    ranks: int,
    moved_bytes: int,
    time_us: float,
    algbw_gb_per_s: float,
    busbw_gb_per_s: float,
) -> Literal["algbw", "busbw", ""]:
    """Return which rate is not that of bytes, time and ranks; empty if both are.

    Source of both: `shakedown.physics.collectives`. One rank moves nothing: no bus bandwidth is due then.
    """
    due = moved_bytes / time_us / 1e3 if time_us else math.inf
    if not math.isclose(algbw_gb_per_s, due, rel_tol=_ROUNDING):
        return "algbw"
    if ranks > 1 and not math.isclose(
        busbw_gb_per_s, due * busbw_factor(collective, ranks), rel_tol=_ROUNDING
    ):
        return "busbw"
    return ""


def longer_than_recorded(counted_s: float, record: OutputRecord, tolerance: float = 0.0) -> str:
    """Return why the time that a program counted is not of the run that its record is of; empty if it can be.

    The record's time is that around the whole program, so that what it measured within cannot be longer.
    """
    if counted_s * (1 - tolerance) <= record.duration_s:
        return ""
    whole = f"the whole test took {record.duration_s:.3g} s by its record"
    return f"this test counted over {counted_s:.3g} s, {whole}"


@dataclass(frozen=True, slots=True)
class Deviation:
    """One check; `wrong` None: what the job left does not tell."""

    check: str
    wrong: int | None
    detail: str

    def read(self, params: Params) -> Read:
        """Return it as the cell of this check; `params` tell which part was checked."""
        wrong = None if self.wrong is None else float(self.wrong)
        return Read("wrong", wrong, "1", Better.LOWER, {"check": self.check, **params}, self.detail)


def judge_pinning(
    folder: JobFolder,  # the job's
    ranks: Mapping[str, int],  # how many ranks each node had
) -> Deviation:
    """Check that every rank ran on the CPUs that its node's rank file gives it, and on no other."""
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
