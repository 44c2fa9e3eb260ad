"""How long a partition lets a job run, in Slurm's own words.

Slurm counts time limits in whole minutes and rounds seconds up (slurm.conf, MaxTime; sbatch, --time), so two
limits are compared in minutes.
"""

from __future__ import annotations

import re

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.errors import BadInput

KEY = "slurm.max_job_time"  # of the inventory
# minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_NONE = frozenset({"UNLIMITED", "INFINITE", "-1"})
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60


class JobTime(Record):
    """How long the partition lets a job run; `seconds` None: as long as it likes."""

    seconds: int | None = Field(gt=0)
    said_by: str  # what a refusal names: a key of the inventory, or the partition as Slurm has it
    fix: str


def stated(given: object) -> JobTime | None:
    """Return the limit that an inventory states by `slurm.max_job_time`; None where it states none.

    Raises:
        BadInput: no time as Slurm writes it.
    """
    if given is None or given == "":
        return None
    fix = f"raise {KEY}, or leave it out where Slurm is made by the playbooks; or measure less"
    return JobTime(seconds=seconds_of(given), said_by=KEY, fix=fix)


def seconds_of(text: object) -> int | None:
    """Return a time of Slurm's in seconds; None for one without a limit.

    Raises:
        BadInput: no time as Slurm writes it. YAML reads 4:00:00 without quotes as a number: refused too.
    """
    if not isinstance(text, str):
        raise BadInput(f"{text!r:.40} is no time in quotes", fix='write "04:00:00", or "UNLIMITED"')
    if text.strip().upper() in _NONE:
        return None
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{text[:40]!r} is no time as Slurm writes it", fix='write "04:00:00" or "1-12:00:00"')
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        parts = (days * _DAY_S, (first or 0) * _HOUR_S, (second or 0) * _MINUTE_S, third or 0)
    elif third is not None:
        parts = (0, (first or 0) * _HOUR_S, (second or 0) * _MINUTE_S, third)
    else:
        parts = (0, 0, (first or 0) * _MINUTE_S, second or 0)
    if not sum(parts):
        raise BadInput(f"{text[:40]!r} allows no time at all", fix='write "04:00:00", or "UNLIMITED"')
    return sum(parts)


def minutes(seconds: int) -> int:
    """Return a time limit in minutes as Slurm counts it: rounded up."""
    return -(-seconds // _MINUTE_S)


def slurm_time(seconds: int) -> str:
    """Return a time limit as Slurm writes it, rounded up to minutes: 14,430 s are 04:01:00."""
    hours, rest = divmod(minutes(seconds), _MINUTE_S)
    return f"{hours:02d}:{rest:02d}:00"
