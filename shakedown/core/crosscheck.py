"""Both ends of every cable against each other: MTU, PFC, DSCP map, speed, FEC and the LLDP neighbour.  Pure.

A host and a switch can each be as somebody wanted and still not fit. What is compared here is what was read
from the two, not what was written to them; what only one end tells is listed as not compared, never as fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from shakedown.core.records import Name, Record


class Cable(Record):
    """One planned cable; a port's name is the switch's own."""

    host: Name
    netdev: Name
    switch: Name
    port: str
    rail: Name

    @property
    def host_end(self) -> str:
        """`n1/fab0`."""
        return f"{self.host}/{self.netdev}"

    @property
    def switch_end(self) -> str:
        """`leaf0/swp1`."""
        return f"{self.switch}/{self.port}"


class End(Record):
    """What one end of a cable says of itself. None: it was not read, or the end has no such thing."""

    mtu_bytes: int | None = Field(default=None, gt=0)  # IP MTU
    pfc_priorities: frozenset[int] | None = None
    # DSCP to priority (host) or traffic class (switch).
    dscp_map: dict[int, int] | None = None
    speed_gbps: float | None = Field(default=None, gt=0)  # 10^9 bit/s
    fec: str | None = None  # as both ends spell it after lower-casing: none, rs, fc
    # Who is at the other end, `leaf0/swp1`; empty: LLDP was read and nobody was heard.
    neighbours: tuple[str, ...] | None = None


class Mismatch(Record):
    """Two ends that do not fit, or a cable that is not where it was planned."""

    what: str
    host_end: str
    switch_end: str
    host_value: str
    switch_value: str

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.host_end} has {self.host_value}, {self.switch_end} has {self.switch_value}"
        )


class CrossCheck(Record):
    """The outcome for a whole fabric."""

    compared: int
    mismatches: tuple[Mismatch, ...]
    not_compared: tuple[str, ...]  # a sentence each


def cross_check(
    cables: Sequence[Cable],
    hosts: Mapping[tuple[str, str], End],
    switches: Mapping[tuple[str, str], End],
    dscps: Sequence[int],
) -> CrossCheck:
    """Compare both ends of every cable.

    Args:
        cables: the planned cabling.
        hosts: what each (host, netdev) says of itself.
        switches: what each (switch, port) says of itself.
        dscps: the DSCPs that matter, RoCE's and its CNPs'; the rest of a map may differ.
    """
    compared = 0
    wrong: list[Mismatch] = []
    missing: list[str] = []
    for cable in cables:
        host = hosts.get((cable.host, cable.netdev), End())
        switch = switches.get((cable.switch, cable.port), End())
        for what, mine, theirs, fits in _pairs(host, switch, dscps):
            if mine is None or theirs is None:
                silent = [end for end, v in ((cable.host_end, mine), (cable.switch_end, theirs)) if v is None]
                missing.append(f"{what} of {cable.host_end} and {cable.switch_end}: {_and(silent)} told none")
                continue
            compared += 1
            if not fits:
                wrong.append(_mismatch(what, cable, mine, theirs))
        for end, planned, seen in (
            (cable.host_end, cable.switch_end, host.neighbours),
            (cable.switch_end, cable.host_end, switch.neighbours),
        ):
            if not seen:
                why = "was not asked for LLDP neighbours" if seen is None else "heard no LLDP neighbour"
                missing.append(f"cabling of {cable.host_end} and {cable.switch_end}: {end} {why}")
                continue
            compared += 1
            if seen != (planned,):
                wrong.append(_miswired(cable, end == cable.host_end, _and(list(seen))))
    return CrossCheck(compared=compared, mismatches=tuple(wrong), not_compared=tuple(missing))


def _pairs(
    host: End, switch: End, dscps: Sequence[int]
) -> Iterator[tuple[str, str | None, str | None, bool]]:
    """Yield (what, the host's value, the switch's value, whether they fit)."""
    # A switch port may take larger frames than the host sends; smaller ones it drops without a word.
    fits = host.mtu_bytes is None or switch.mtu_bytes is None or switch.mtu_bytes >= host.mtu_bytes
    yield "MTU", _bytes(host.mtu_bytes), _bytes(switch.mtu_bytes), fits
    mine, theirs = host.pfc_priorities, switch.pfc_priorities
    yield "PFC priorities", _set(mine), _set(theirs), mine == theirs
    maps = (host.dscp_map, switch.dscp_map)
    for dscp in dscps:
        ends = [None if m is None else m.get(dscp, 0) for m in maps]  # a DSCP without an entry is class 0
        texts = [None if end is None else f"class {end}" for end in ends]
        yield f"class of DSCP {dscp}", texts[0], texts[1], ends[0] == ends[1]
    speeds = (host.speed_gbps, switch.speed_gbps)
    texts = [None if s is None else f"{s:g} Gb/s" for s in speeds]
    yield "speed", texts[0], texts[1], speeds[0] == speeds[1]
    fecs = [None if f is None else f.lower() for f in (host.fec, switch.fec)]
    yield "FEC", fecs[0], fecs[1], fecs[0] == fecs[1]


def _mismatch(what: str, cable: Cable, mine: str, theirs: str) -> Mismatch:
    return Mismatch(
        what=what,
        host_end=cable.host_end,
        switch_end=cable.switch_end,
        host_value=mine,
        switch_value=theirs,
    )


def _miswired(cable: Cable, seen_by_host: bool, seen: str) -> Mismatch:
    mine, theirs = (f"{seen} at its other end", "this cable by plan")
    if not seen_by_host:
        mine, theirs = theirs, mine
    return _mismatch("cabling", cable, mine, theirs)


def _bytes(value: int | None) -> str | None:
    return None if value is None else f"{value} bytes"


def _set(values: frozenset[int] | None) -> str | None:
    return None if values is None else ",".join(map(str, sorted(values))) or "none"


def _and(texts: list[str]) -> str:
    return " and ".join(texts)
