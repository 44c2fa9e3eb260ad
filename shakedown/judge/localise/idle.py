"""Uplinks that carried nothing: a link that is down loses no packet, so no error and no slow pair shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shakedown.judge.localise.causes import Cause
from shakedown.judge.localise.model import Element
from shakedown.nos.uplinks import IDLE
from shakedown.records.counters import CounterReading

# Fewer leaves than this tell a spine from one of its links: with two, a link that is down idles the other.
_FEWEST_LEAVES = 3


def idle_uplinks(readings: Iterable[CounterReading], wanted: Collection[tuple[str, str]]) -> list[Cause]:
    """Return, as causes, the uplinks that carried nothing while their siblings did.

    A spine of which no leaf's uplink carried anything is named in place of them. An uplink is named once,
    whatever the stages say.

    Args:
        readings: of IDLE.
        wanted: the uplinks, by leaf and port, of which the plan requires that they carry something.
    """
    found: dict[tuple[str, str], CounterReading] = {}
    links: dict[str, set[tuple[str, str]]] = {}
    for reading in readings:
        place = (reading.device, reading.port)
        if reading.counter != IDLE or place not in wanted:
            continue
        links.setdefault(_spine(reading)[0], set()).add(place)
        if reading.delta:
            found.setdefault(place, reading)
    causes = []
    for spine, places in sorted(links.items()):
        idle = [found[place] for place in sorted(places) if place in found]
        leaves = {reading.device for reading in idle}
        if len(leaves) > 1 and len(idle) == len(places):
            causes.append(_of_spine(spine, idle, blamed=len(leaves) >= _FEWEST_LEAVES))
        else:
            causes += [_of_link(reading) for reading in idle]
    return causes


def _spine(reading: CounterReading) -> tuple[str, str]:
    spine, _, port = (reading.peer or "").partition("/")
    return spine, port


def _link(reading: CounterReading) -> str:
    return f"{reading.device}:{reading.port} to {':'.join(_spine(reading))}"


def _of_spine(spine: str, idle: Sequence[CounterReading], *, blamed: bool) -> Cause:
    """Return the cause for a spine that no uplink used; with two leaves either link may be the one."""
    ends = " and ".join(_link(reading) for reading in idle)
    links = tuple(Element("uplink", leaf=reading.device, spine=spine) for reading in idle)
    one = "it is down" if blamed else "it, or its links from one leaf, are down"
    return Cause(
        element=Element("spine", spine=spine),
        blamed=blamed,
        confidence=1.0 if blamed else 1 / (1 + len(links)),
        effect=-1.0,
        findings=(),
        evidence=(
            f"{ends} carried less than 1 % of the mean of their leaves' uplinks over the {idle[0].stage} "
            f"stage: {one}, or routing leaves it out",
        ),
        rivals=() if blamed else links,
        proposal=f"look at {spine} and at {ends}: a port without LLDP neighbour is the one that is down",
    )


def _of_link(reading: CounterReading) -> Cause:
    ends = _link(reading)
    return Cause(
        element=Element("uplink", leaf=reading.device, spine=_spine(reading)[0]),
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
