"""Whether the rates that one of our own programs prints of a collective are those of its time."""

from __future__ import annotations

import math
from typing import Literal

from shakedown.physics.collectives import Collective, busbw_factor

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
