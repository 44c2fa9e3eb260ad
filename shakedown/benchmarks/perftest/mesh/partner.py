"""The partner's messages, parsed without trust: what does not fit counts as not said."""

from __future__ import annotations

from typing import Any

from shakedown.benchmarks.perftest.mesh.schedule import Slot
from shakedown.benchmarks.perftest.mesh.wire import Message, PeerLost
from shakedown.records.wording import printable

Problem = tuple[str, str]  # kind (of records.Problem), message
Cell = tuple[int, str]  # slot index, rail

# No cell is ever tried so often; a larger number is ignored.
_MAX_ATTEMPTS = 10_000


class Partner:
    """The partner's hello: what it has measured and how often tried, what is wrong with it, its perftest."""

    def __init__(self, hello: Message) -> None:
        self.done: set[Cell] = {(c[0], c[1]) for c in _cells(hello.get("done"), 2)}
        self.attempts: dict[Cell, int] = {
            (c[0], c[1]): c[2]
            for c in _cells(hello.get("attempts"), 3)
            if type(c[2]) is int and 0 <= c[2] <= _MAX_ATTEMPTS
        }
        # What it wants measured again, and which of its NICs are in doubt too often for that (again.py).
        self.due: list[Cell] = [(c[0], c[1]) for c in _cells(hello.get("due"), 2)]
        full = hello.get("full")
        self.full: tuple[str, ...] = (
            tuple(x for x in full if isinstance(x, str)) if isinstance(full, list) else ()
        )
        self.problems: dict[str, str] = _texts(hello.get("problems"))
        self.versions: dict[str, str] = _texts(hello.get("versions"))


def _cells(value: object, length: int) -> list[list[Any]]:
    entries = value if isinstance(value, list) else []
    return [
        e
        for e in entries
        if isinstance(e, list) and len(e) == length and isinstance(e[0], int) and isinstance(e[1], str)
    ]


def _texts(value: object) -> dict[str, str]:
    entries = value.items() if isinstance(value, dict) else ()
    return {k: _told(v) for k, v in entries if isinstance(v, str)}


def ports_of(ready: Message, slot: Slot) -> dict[str, int]:
    """Return rail -> TCP port of the servers that listen; raises PeerLost."""
    ports = ready.get("ports")
    if ready.get("slot") != slot.index or not isinstance(ports, dict):
        raise PeerLost("is not at the same place of the schedule")
    return {r: p for r, p in ports.items() if r in slot.rails and type(p) is int and 1024 <= p <= 65535}


def problems_of(ready: Message) -> dict[str, Problem]:
    """Return rail -> why there is no server."""
    problems = ready.get("problems")
    entries = problems.items() if isinstance(problems, dict) else ()
    kinds = ("setup", "environment", "missing-tool")
    return {
        rail: (p[0], _told(p[1]))
        for rail, p in entries
        if isinstance(p, list) and len(p) == 2 and all(isinstance(t, str) for t in p) and p[0] in kinds
    }


def _told(text: str) -> str:
    return printable(text)[:500] or "not said"
