"""What is known of one switch operating system: the form that each system's file fills in.

`registry.py` lists the systems; a system that is not listed there is not understood anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.nos.counters import Classes, Outputs, PortCounters

Tree = dict[str, Any]
# Local port to the (system, port) heard at the other end.
Neighbours = Mapping[str, Sequence[tuple[str, str]]]
ParseCounters = Callable[[Outputs, Classes, str | Path | None], PortCounters]


def tells_nothing(_found: object, _port: str) -> Tree:
    """Return no fields: the read-back is compared as text and nothing in it is understood."""
    return {}


def no_links(_outputs: Outputs, _ports: Sequence[str]) -> dict[str, Tree]:
    """Return no port: rate and FEC come from the settings, or from nowhere."""
    return {}


@dataclass(frozen=True)
class SwitchSystem:
    """One switch operating system.

    Attributes:
        name: as `roce_switch_nos` gives it.
        parse: raw outputs of the counter commands to `{port: {counter: value}}`; None: no counter is read.
        reported: what a configured port always reports. A port that lacks one of these was not read, which is
            not zero.
        may_report: what a port reports on some platforms, releases or links; judged where it is there.
        forwarded: counters of what enters and what leaves whose sums over a rail's ports must agree, if the
            system has such.
        tells: what its read-backs report of a cable's end (constants of `crosscheck`); None: unknown, so
            everything is checked, and what it does not report stays open.
        end: one port of the settings' read-back (`found`) to fields of `crosscheck.End`.
        links: rate (`speed_gbps`) and FEC (`fec`) of ports, from a counter reading.
        neighbours: output of its LLDP command to neighbours; raises BadInput. None: it is not asked.
        lossless_limit: lossless priorities that the platform can hold, where its documents give a number.
        version: the system's own version in a counter reading, or nothing; None: it is not read.
        not_done: what of the intent the role neither sets nor reads on this system, in words.
        cable_lengths_m: lengths of cable, in metres, that its buffer profiles know; empty: any.
    """

    name: str
    parse: ParseCounters | None = None
    reported: Callable[[Classes], tuple[str, ...]] = lambda _classes: ()
    may_report: tuple[str, ...] = ()
    forwarded: tuple[str, str] | None = None
    tells: frozenset[str] | None = None
    end: Callable[[Any, str], Tree] = tells_nothing
    links: Callable[[Outputs, Sequence[str]], dict[str, Tree]] = no_links
    neighbours: Callable[[str], Neighbours] | None = None
    lossless_limit: int | None = None
    version: Callable[[Outputs], str] | None = None
    not_done: tuple[str, ...] = ()
    cable_lengths_m: tuple[int, ...] = ()

    def can_tell(self, what: str) -> bool:
        """Whether a check of a cable (a constant of `crosscheck`) may be asked of this system."""
        return self.tells is None or what in self.tells
