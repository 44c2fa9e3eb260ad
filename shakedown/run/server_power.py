"""What servers drew while a run measured: `raw/server_power/NODE.jsonl`, written by `shakedown power`.

A line is one reading of a node's BMC, or why there was none. It holds no address, no user and no password.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from shakedown.records.base import Document
from shakedown.records.reading import BadInput, complete_lines, read_evidence, refusal
from shakedown.statistics.robust import median

FOLDER = "server_power"  # under raw/
MOST_WATTS = 100_000  # no server of one BMC draws more, and one that is on draws more than nothing
# A program starts, connects and warms up first, and ends between two readings: what counts lies between.
_FROM, _TO = 0.4, 0.95
FEWEST = 5  # readings within that time


class PowerSample(Document):
    """One reading: exactly one of `watts` and `problem`."""

    time: str  # RFC 3339, UTC
    # What the server drew.
    watts: Annotated[float, Field(gt=0, le=MOST_WATTS, allow_inf_nan=False)] | None = None
    problem: Annotated[str, Field(max_length=200)] | None = None  # why there is no reading

    @model_validator(mode="after")
    def _one_of_both(self) -> PowerSample:
        if (self.watts is None) == (self.problem is None):
            raise ValueError("give exactly one of watts and problem")
        return self


def power_during(raw: Path, node: str, started: str, duration_s: float) -> tuple[float | None, str]:
    """Return the median power of a node while a program ran, in watts, and what it rests on.

    None: the node's BMC was not read then, or too rarely; the text says so. Raises BadInput: a line that is
    no reading.
    """
    file = raw / FOLDER / f"{node}.jsonl"
    if not file.exists():
        return None, f"{node}'s BMC was not read: start `shakedown power` before the run"
    begin = _time(started)
    first, last = (begin + timedelta(seconds=share * duration_s) for share in (_FROM, _TO))
    found: list[float] = []
    problems: dict[str, None] = {}
    for number, line in complete_lines(read_evidence(file)):
        try:
            sample = PowerSample.model_validate_json(line)
            when = _time(sample.time)
        except ValidationError as error:
            raise refusal(error, PowerSample, file=file, line=number, fix="restore the run's own") from None
        except ValueError:
            raise BadInput(
                "time is no RFC 3339", fix="restore the run's own", file=file, line=number
            ) from None
        if first <= when <= last:
            if sample.watts is not None:
                found.append(sample.watts)
            else:
                problems[sample.problem or ""] = None
    if len(found) < FEWEST:
        why = f" ({'; '.join(problems)})" if problems else ""
        return None, f"{len(found)} readings of {node}'s BMC while it ran, {FEWEST} are needed{why}"
    return median(found), f"{node} {median(found):.1f} W of {len(found)} readings"


def _time(text: str) -> datetime:
    """Return a time. Raises ValueError: it is none, or has no zone."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("no time zone")
    return found
