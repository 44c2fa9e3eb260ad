"""Whether what a program prints of its own times and rates agrees with itself and with its record."""

from __future__ import annotations

import math
from typing import Literal

from shakedown.physics.collectives import Collective, busbw_factor
from shakedown.records.results import OutputRecord

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
