"""Counters as witnesses: which NIC or switch port counts what its peers do not?"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shakedown.nics.counters import counts_errors, damaged_on_cable, end_to_end
from shakedown.records.counters import CounterReading

# A counter stands out when it is this many times its peers' median, and not just a few events.
_TIMES_PEERS = 10.0
_MIN_EVENTS = 10


@dataclass(frozen=True)
class Witness:
    """A counter that stands out.

    Attributes:
        node: the node at which the cable of that NIC or port ends; empty between switches.
        rail: its rail.
        place: `nic`, `port` (of the switch) or, when bits were damaged, `cable`.
        local: whether it says where, and not only that something was lost on the way.
        device: host or switch that counted.
        peer: the other end of the cable, as recorded.
        text: for the evidence.
    """

    node: str
    rail: str
    place: str
    local: bool
    device: str
    peer: str
    text: str


def witnesses(readings: Iterable[CounterReading], ports: Mapping[tuple[str, str], str]) -> list[Witness]:
    """Return the counters of errors that stand out among the same counter of all peers, largest first.

    Args:
        readings: counters before and after each test; a port's deltas are added up.
        ports: (node, rail) -> "switch:port", for switch ports recorded without their peer.
    """
    ends = {where: key for key, where in ports.items()}
    total: dict[tuple[str, str], dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    about: dict[tuple[str, str], CounterReading] = {}
    for reading in readings:
        if not counts_errors(reading.counter):
            continue
        total[reading.kind, reading.counter][reading.device, reading.port] += reading.delta or 0
        about[reading.device, reading.port] = reading
    found: list[tuple[int, Witness]] = []
    for (_, counter), deltas in total.items():
        ordered = sorted(deltas.values())
        for place, events in deltas.items():
            if events < _MIN_EVENTS or len(ordered) == 1:
                continue
            usual = _median_of_others(ordered, events)
            if events >= _TIMES_PEERS * usual:
                found.append((events, _witness(about[place], counter, events, usual, ends)))
    return [witness for _, witness in sorted(found, key=lambda f: (not f[1].local, -f[0], f[1].text))]


def _median_of_others(ordered: Sequence[int], one: int) -> float:
    """Return the median of sorted values without one of them, without copying them for each."""
    at, others = bisect_left(ordered, one), len(ordered) - 1
    low, high = (
        ordered[middle if middle < at else middle + 1] for middle in ((others - 1) // 2, others // 2)
    )
    return (low + high) / 2


def _witness(
    reading: CounterReading, counter: str, events: int, usual: float, ends: Mapping[str, tuple[str, str]]
) -> Witness:
    local = not end_to_end(counter)
    peer = reading.peer or ""
    where = f"{reading.device}:{reading.port}"
    if reading.kind == "nic":
        node, rail, place = reading.device, reading.rail or "", "nic"
    else:
        node, rail = ends.get(where, (peer.partition("/")[0] if reading.rail else "", reading.rail or ""))
        place = "port"
    if local and damaged_on_cable(counter):
        place = "cable"
    text = f"{where} counted {events} {counter} (peers' median {usual:.0f})"
    return Witness(node, rail, place, local, reading.device, peer, text)
