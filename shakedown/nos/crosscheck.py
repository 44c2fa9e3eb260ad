"""Both ends of every cable against each other: MTU, PFC, DSCP map, speed, FEC and the LLDP neighbour.  Pure.

A host and a switch can each be as somebody wanted and still not fit. What is compared here is what was read
from the two, not what was written to them; what an end does not tell is not compared, and never fine.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Literal

from pydantic import Field

from shakedown.records.base import Name, Record
from shakedown.records.wording import natural_key

MTU, PFC, DSCP, SPEED, FEC, CABLING = "mtu", "pfc", "dscp", "speed", "fec", "cabling"
# What an end is that several ports hear. The verdict puts it first: no cable is at fault.
ONE_NAME = "two machines with one name"


class SwitchCable(Record):
    """One planned cable; a port's name is the switch's own."""

    host: Name  # or a switch, where `role` is uplink or spine
    netdev: str
    switch: Name
    port: str
    rail: Name | None = None
    role: Literal["host", "uplink", "spine"] = "host"

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
    # Who is at the other end, `leaf0/swp1`; empty: LLDP was read and no neighbour was heard.
    neighbours: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()  # what LLDP calls this port beside its name


class Check(Record):
    """One property of one cable."""

    what: Name  # `mtu`, `pfc`, `dscp.26`, `speed`, `fec` or `cabling`
    cable: SwitchCable  # which
    fits: bool | None  # None if an end told nothing
    text: str  # a sentence that names both ends


def dscp_check(dscp: int) -> str:
    """Return the name of the check of one DSCP's class."""
    return f"{DSCP}.{dscp}"


def cross_check(
    cables: Sequence[SwitchCable],  # the planned cabling
    # What each (host, netdev) says of itself, and each (switch, port) at the other end of a link.
    hosts: Mapping[tuple[str, str], End],
    switches: Mapping[tuple[str, str], End],  # what each (switch, port) says of itself
    dscps: Sequence[int],  # the DSCPs that matter, RoCE's and its CNPs'; the rest of a map may differ
) -> Iterator[Check]:
    """Yield every check of every cable."""
    known = {end for cable in cables for end in (cable.host_end, cable.switch_end, cable.host, cable.switch)}
    called = _called({**hosts, **switches}, known)
    hosts, switches = (
        {
            at: end.model_copy(update={"neighbours": _by_name(end.neighbours, called, known)})
            for at, end in ends
        }
        for ends in (hosts.items(), switches.items())
    )
    twice = _heard_twice(cables, switches, known)
    for cable in cables:
        host = hosts.get((cable.host, cable.netdev), End())
        switch = switches.get((cable.switch, cable.port), End())
        for key, what, mine, theirs, fits in _pairs(host, switch, dscps, linked=cable.role != "host"):
            if mine is None or theirs is None:
                silent = [end for end, v in ((cable.host_end, mine), (cable.switch_end, theirs)) if v is None]
                text = f"{what} of {cable.host_end} and {cable.switch_end}: {_and(silent)} told none"
                yield Check(what=key, cable=cable, fits=None, text=text)
            else:
                text = f"{what}: {cable.host_end} has {mine}, {cable.switch_end} has {theirs}"
                yield Check(what=key, cable=cable, fits=fits, text=text)
        yield _cabling(cable, host, switch, known, twice)


def _called(ends: Mapping[tuple[str, str], End], known: Set[str]) -> dict[str, str]:
    """Return which port each alias means, `spine0/etp1` to `spine0/Ethernet0`: none where two have it."""
    ports: dict[str, set[str]] = {}
    for (switch, port), end in ends.items():
        for alias in end.aliases:
            ports.setdefault(f"{switch}/{alias}", set()).add(f"{switch}/{port}")
    return {name: min(some) for name, some in ports.items() if len(some) == 1 and name not in known}


def _by_name(
    heard: tuple[str, ...] | None, called: Mapping[str, str], known: Set[str]
) -> tuple[str, ...] | None:
    """Return the neighbours by their ports' own names; of a neighbour with a known name, by that alone."""
    if heard is None:
        return None
    names = [called.get(name) or called.get(_short(name)) or name for name in heard]
    placed = {_short(name).partition("/")[0] for name in names if name in known or _short(name) in known}
    kept = [
        name
        for name in names
        if name in known or _short(name) in known or _short(name).partition("/")[0] not in placed
    ]
    return tuple(dict.fromkeys(kept))


def _short(end: str) -> str:
    """`spine0.example.org/swp1` is `spine0/swp1`: a machine may give its full name."""
    name, _, port = end.partition("/")
    return f"{name.partition('.')[0]}/{port}"


def _pairs(
    host: End, switch: End, dscps: Sequence[int], *, linked: bool
) -> Iterator[tuple[str, str, str | None, str | None, bool]]:
    """Yield (check, in words, the host's value, the switch's value, whether they fit)."""
    # A switch port may take larger frames than the host sends; smaller ones it drops without a word.
    # Between two switches either would drop what the other sends.
    fits = host.mtu_bytes is None or switch.mtu_bytes is None or switch.mtu_bytes >= host.mtu_bytes
    if linked:
        fits = host.mtu_bytes == switch.mtu_bytes
    yield MTU, "MTU", _bytes(host.mtu_bytes), _bytes(switch.mtu_bytes), fits
    mine, theirs = host.pfc_priorities, switch.pfc_priorities
    yield PFC, "PFC priorities", _set(mine), _set(theirs), mine == theirs
    maps = (host.dscp_map, switch.dscp_map)
    for dscp in dscps:
        ends = [None if m is None else m.get(dscp, 0) for m in maps]  # a DSCP without an entry is class 0
        texts = [None if end is None else f"class {end}" for end in ends]
        yield dscp_check(dscp), f"class of DSCP {dscp}", texts[0], texts[1], ends[0] == ends[1]
    speeds = (host.speed_gbps, switch.speed_gbps)
    texts = [None if s is None else f"{s:g} Gb/s" for s in speeds]
    yield SPEED, "speed", texts[0], texts[1], speeds[0] == speeds[1]
    fecs = [None if f is None else f.lower() for f in (host.fec, switch.fec)]
    yield FEC, "FEC", fecs[0], fecs[1], fecs[0] == fecs[1]


def _heard_twice(
    cables: Sequence[SwitchCable], switches: Mapping[tuple[str, str], End], known: Set[str]
) -> dict[str, str]:
    """Return the host ends that several switch ports hear, each with what that means.

    A cable has one port: two machines give themselves the same name. Where all these ports hear the same
    neighbours, something between them and the hosts repeats LLDP frames, and that is no such proof.
    """
    ports: dict[str, dict[str, frozenset[str]]] = {}
    for cable in cables:
        seen = switches.get((cable.switch, cable.port), End()).neighbours or ()
        ends = frozenset(end for name in seen if (end := _ours(name, cable.host_end, known)) in known and end)
        for end in ends:
            ports.setdefault(end, {})[cable.switch_end] = ends
    switch_names = {cable.switch for cable in cables}
    found = {}
    for end, heard in ports.items():
        if len(heard) > 1 and (len(set(heard.values())) > 1 or set(heard.values()) == {frozenset({end})}):
            names = sorted(heard, key=natural_key)
            if len(switch_names) == 1:
                names = [name.partition("/")[2] for name in names]
            host = end.partition("/")[0]
            found[end] = f"{host} is heard on {_and(names)}: {ONE_NAME}"
    return found


def _cabling(cable: SwitchCable, host: End, switch: End, known: Set[str], twice: Mapping[str, str]) -> Check:
    """Compare the neighbour that each end hears with the plan. One end that hears the right one is enough.

    A neighbour that the plan does not know is no proof of anything: NIC firmware has LLDP agents of its own,
    which give MAC addresses for names. Nor is a name that two machines share: its own cables fail for it, and
    a port that hears it in another's place leaves that other's cable open.
    """
    planned = f"cabling of {cable.host_end} and {cable.switch_end}"
    shared = sorted({text for end, text in twice.items() if end.partition("/")[0] == cable.host})
    right, wrong, silent, impostors = False, [], [], []
    for end, other, seen in (
        (cable.host_end, cable.switch_end, host.neighbours),
        (cable.switch_end, cable.host_end, switch.neighbours),
    ):
        names = {_ours(name, other, known) for name in seen or ()} - {None}
        impostors += sorted(twice[name] for name in names - {other} if name is not None and name in twice)
        strangers = sorted(str(name) for name in names - {other} - twice.keys())
        if strangers:
            wrong.append(f"{end} has {_and(strangers)} at its other end")
        elif names:
            right = True
        elif seen:
            silent.append(f"{end} heard only {_and(list(seen))[:200]}")
        else:
            heard = "was not asked for LLDP neighbours" if seen is None else "heard no LLDP neighbour"
            silent.append(f"{end} {heard}")
    if shared:
        return Check(what=CABLING, cable=cable, fits=False, text="; ".join((*shared, *wrong)))
    if wrong:
        return Check(what=CABLING, cable=cable, fits=False, text=f"{planned} by plan: {'; '.join(wrong)}")
    if impostors:
        return Check(
            what=CABLING, cable=cable, fits=None, text=f"{planned} is not proven: {'; '.join(impostors)}"
        )
    if right:
        return Check(what=CABLING, cable=cable, fits=True, text=planned)
    return Check(what=CABLING, cable=cable, fits=None, text=f"{planned}: {_and(silent)}")


def _ours(seen: str, planned: str, known: Set[str]) -> str | None:
    """Return the end of the plan that a neighbour is, or the wrong host; None if it is unknown."""
    name, _, port = seen.partition("/")
    for host in (name, name.partition(".")[0]):  # a host may give its full name
        end = f"{host}/{port}"
        if end in known or (host in known and host != planned.partition("/")[0]):
            return end
    return None


def _bytes(value: int | None) -> str | None:
    return None if value is None else f"{value} bytes"


def _set(values: frozenset[int] | None) -> str | None:
    return None if values is None else ",".join(map(str, sorted(values))) or "none"


def _and(texts: list[str]) -> str:
    return " and ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)
