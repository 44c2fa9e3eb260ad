"""One rank's log: JSON lines, each on disk before the next step begins.

shakedown/benchmarks/lora/job.py makes the job's one log of all ranks'; output.py beside it is the format.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

RANK_LOG = "rank.{:05d}.jsonl"
REASON = "reason.json"


class RankLog:
    """Appends records to `rank.N.jsonl`; what a job wrote before it was killed is kept."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = (folder / RANK_LOG.format(rank)).open("a", encoding="utf-8")

    def write(self, **record: object) -> None:
        """Append a record. What is absent or not finite is left out, never written as NaN."""
        kept = {k: v for k, v in record.items() if v is not None and not _unprintable(v)}
        self._file.write(json.dumps(kept, allow_nan=False) + "\n")
        self._file.flush()


def _unprintable(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def give_reason(folder: Path, kind: str, message: str) -> None:
    """Write why the job ends, unless a reason is there already: the first is the cause, later ones follow
    from it."""
    text = json.dumps({"kind": kind, "message": message[:1900]}) + "\n"
    try:
        with (folder / REASON).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return
