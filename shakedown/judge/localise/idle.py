"""Uplinks that carried nothing: a link that is down loses no packet, so no error and no slow pair shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from shakedown.judge.localise.causes import Cause
from shakedown.judge.localise.model import Element
from shakedown.nos.uplinks import IDLE
from shakedown.records.counters import CounterReading


def idle_uplinks(readings: Iterable[CounterReading], wanted: Collection[tuple[str, str]]) -> list[Cause]:
    """Return, as causes, the uplinks that carried nothing while their siblings did.

    `wanted`: those of which the plan requires that they do. An uplink is named once, whatever the stages say.
    """
    found: dict[tuple[str, str], CounterReading] = {}
    for reading in readings:
        place = (reading.device, reading.port)
        if reading.counter == IDLE and reading.delta and place in wanted:
            found.setdefault(place, reading)
    return [_cause(reading) for _, reading in sorted(found.items())]


def _cause(reading: CounterReading) -> Cause:
    spine, _, port = (reading.peer or "").partition("/")
    ends = f"{reading.device}:{reading.port} to {spine}:{port}"
    return Cause(
        element=Element("uplink", leaf=reading.device, spine=spine),
        blamed=True,
        confidence=1.0,
        effect=-1.0,
        findings=(),
        evidence=(
            f"{ends} carried less than 1 % of the mean of {reading.device}'s uplinks over the "
            f"{reading.stage} stage: it is down, or routing leaves it out",
        ),
        rivals=(),
        proposal=f"look at the link {ends}, its optics and its routing; until then capacity is missing",
    )
