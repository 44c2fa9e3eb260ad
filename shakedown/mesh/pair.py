"""What a pair does when it has met: slot after slot, one end serves, the other measures and keeps the record.

Within a slot three messages go over the conversation: `ready` (the servers listen, on these ports), `done`
(the clients have ended) and `closed` (the servers have ended, so). No end ever waits for a fixed time. What a
client could put no number on, for want of a clock, is named in `done` and measured again at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shakedown.core.mesh import Pair, Slot, client_and_server, nic_of, nic_rail, port_of, slots_of
from shakedown.core.mesh_spec import Spec
from shakedown.mesh.host import Device, port_in_use
from shakedown.mesh.perftest import Run, argv, wait_until_ended, wait_until_listening
from shakedown.mesh.store import Record, Store
from shakedown.mesh.wire import Conversation, Message, PeerLost
from shakedown.parsers.perftest_clock import CLOCK_UNKNOWN

# After its client has ended, a server needs a moment for the last exchange and the teardown.
_SERVER_GRACE_S = 5.0
# A server whose client has failed waits for nothing any more; it may have something to say about it.
_FAILED_GRACE_S = 0.5
# On top of the time that the other end may take for its part.
_MARGIN_S = 15.0
# How often perftest may fail to find the rate of its clock before a cell counts as not measured.
_CLOCK_TRIES = 4

Problem = tuple[str, str]  # kind (of records.Problem), message
Cell = tuple[int, str]  # slot index, rail


@dataclass(frozen=True)
class Host:
    """This node: its usable devices, what is wrong with the others, and its perftest."""

    name: str
    devices: Mapping[str, Device]
    problems: Mapping[str, str]
    versions: Mapping[str, str | None]


@dataclass
class Tally:
    """What became of the cells of one round on this node, and how long perftest itself took.

    `starting_s` is until its servers listened, `measuring_s` while its clients ran, `ending_s` until its
    servers had ended. What is left of the round's time, of both nodes together, is the driver's own.
    """

    measured: int = 0
    failed: int = 0
    skipped: int = 0
    repeated: int = 0  # outputs without a number, for want of a clock: see _CLOCK_TRIES
    starting_s: float = 0.0
    measuring_s: float = 0.0
    ending_s: float = 0.0


@dataclass
class PairWork:
    """One pair in one round, as this node sees it."""

    spec: Spec
    host: Host
    store: Store
    pair: Pair
    index: int
    tally: Tally = field(default_factory=Tally)
    # What this node has written a record of in this round.
    _recorded: set[Cell] = field(default_factory=set)

    def hello(self) -> Message:
        """Return what the partner must know: what is measured already, what we have, what time it is here."""
        done: list[Cell] = []
        attempts: list[tuple[int, str, int]] = []
        for slot in slots_of(self.spec):
            for rail in slot.rails:
                if self.store.measured(self.pair, slot, rail):
                    done.append((slot.index, rail))
                elif n := self.store.attempts(self.pair, slot, rail):
                    attempts.append((slot.index, rail, n))
        return {
            "done": done,
            "attempts": attempts,
            "problems": dict(self.host.problems),
            "versions": dict(self.host.versions),
        }

    def run(self, conversation: Conversation, theirs: Message) -> None:
        """Measure every cell that neither end has measured yet; raises PeerLost after noting what is left."""
        partner = _Partner(theirs)
        todo: list[tuple[Slot, list[str]]] = []
        for slot in slots_of(self.spec):
            rails = [
                rail
                for rail in slot.rails
                if (slot.index, rail) not in partner.done and not self.store.measured(self.pair, slot, rail)
            ]
            self.tally.skipped += len(slot.rails) - len(rails)
            if rails:
                todo.append((slot, rails))
        while todo:
            slot, rails = todo[0]
            try:
                self._slot(conversation, partner, slot, rails)
            except PeerLost as lost:
                self.give_up(str(lost), partner, todo)
                raise
            todo.pop(0)

    def give_up(
        self, reason: str, partner: _Partner | None = None, todo: list[tuple[Slot, list[str]]] | None = None
    ) -> None:
        """Note every cell that is still unmeasured, with the reason."""
        other = self.pair[1] if self.host.name == self.pair[0] else self.pair[0]
        for slot, rails in todo if todo is not None else [(s, list(s.rails)) for s in slots_of(self.spec)]:
            for rail in rails:
                if (slot.index, rail) not in self._recorded and not self.store.measured(
                    self.pair, slot, rail
                ):
                    attempt = self._attempt(partner, slot, rail)
                    self._unmeasured(slot, rail, attempt, ("environment", f"{other} lost: {reason}"))

    def _slot(self, conversation: Conversation, partner: _Partner, slot: Slot, rails: list[str]) -> None:
        client, _ = client_and_server(slot.operation, self.pair, slot.direction)
        runnable = []
        for rail in rails:
            problem = self._obstacle(partner, slot, rail)
            if problem is None:
                runnable.append(rail)
            elif self.host.name == client:
                self._unmeasured(slot, rail, self._attempt(partner, slot, rail), problem)
        # What perftest could not put a number on, for want of a clock, is no attempt: nothing was learnt of
        # the fabric, good or bad, so choosing by it favours no result. Each such output is kept.
        for number in range(1, _CLOCK_TRIES + 1):
            if not runnable:
                return
            if self.host.name == client:
                again = number if number < _CLOCK_TRIES else None
                runnable = self._measure(conversation, partner, slot, runnable, again)
            else:
                runnable = self._serve(conversation, partner, slot, runnable)

    def _obstacle(self, partner: _Partner, slot: Slot, rail: str) -> Problem | None:
        """Return why a cell cannot be measured, as both ends see it alike, or None."""
        test = slot.operation.test
        for node in self.pair:
            mine = node == self.host.name
            own_rail = nic_rail(node, self.pair, slot.direction, rail)
            if nic_of(self.spec, node, self.pair, slot.direction, rail) is None:
                return ("setup", f"{node} has no {own_rail}")
            problem = (self.host.problems if mine else partner.problems).get(own_rail)
            if problem is not None:
                return ("setup", f"{node} {own_rail}: {problem}")
            if (self.host.versions if mine else partner.versions).get(test) is None:
                return ("missing-tool", f"{node} has no working {test}")
        ours, theirs = self.host.versions.get(test), partner.versions.get(test)
        if ours != theirs:
            # Sorted, so that both ends say the same.
            found = " and ".join(sorted(f"{v}" for v in (ours, theirs)))
            return ("environment", f"{test} of two versions in {' and '.join(self.pair)}: {found}")
        return None

    def _serve(
        self, conversation: Conversation, partner: _Partner, slot: Slot, rails: list[str]
    ) -> list[str]:
        """Serve one slot; returns the rails that the client wants to measure again."""
        again: list[str] = []
        servers: dict[str, tuple[int, Run]] = {}
        problems: dict[str, Problem] = {}
        begin = time.monotonic()
        try:
            for rail in rails:
                port = port_of(self.spec, self.index, slot, rail)
                nic = nic_of(self.spec, self.host.name, self.pair, slot.direction, rail)
                if nic is not None and port_in_use(nic.ipv4, port):
                    problems[rail] = ("environment", f"port {port} of {self.host.name} is in use")
                    continue
                started = self._start(slot, rail, self._attempt(partner, slot, rail), port, None)
                if isinstance(started, Run):
                    servers[rail] = (port, started)
                else:
                    problems[rail] = started
            listening = wait_until_listening(dict(servers.values()), self.spec.start_timeout_s)
            for rail in [r for r, (port, _) in servers.items() if port not in listening]:
                _, run = servers.pop(rail)
                run.kill()
                problems[rail] = ("setup", f"server on {self.host.name} does not listen: {run.last_words()}")
            self.tally.starting_s += time.monotonic() - begin
            ready: dict[str, int] = {rail: port for rail, (port, _) in servers.items()}
            conversation.send({"type": "ready", "slot": slot.index, "ports": ready, "problems": problems})
            if servers:
                limit_s = self.spec.start_timeout_s + self.spec.timeout_s + _MARGIN_S
                said = conversation.receive("done", limit_s)
                failed, repeat = said.get("failed"), said.get("again")
                again = [rail for rail in servers if isinstance(repeat, list) and rail in repeat]
                done = time.monotonic()
                lost = {str(rail) for rail in failed} if isinstance(failed, list) else set()
                wait_until_ended(
                    [run for rail, (_, run) in servers.items() if rail not in lost], _SERVER_GRACE_S
                )
                wait_until_ended([run for _, run in servers.values()], _FAILED_GRACE_S)
                self.tally.ending_s += time.monotonic() - done
        finally:
            for _, run in servers.values():
                run.kill()
        if servers:
            exits = {rail: run.exit_code for rail, (_, run) in servers.items()}
            conversation.send({"type": "closed", "slot": slot.index, "exits": exits})
        for _, run in servers.values():
            # What the server printed repeats the client's file, unless something went wrong.
            if run.exit_code == 0:
                run.output.unlink(missing_ok=True)
        return again

    def _measure(
        self, conversation: Conversation, partner: _Partner, slot: Slot, rails: list[str], number: int | None
    ) -> list[str]:
        """Measure one slot; returns the rails to measure again, none in the last try (`number` is None)."""
        server = self.pair[0] if self.pair[1] == self.host.name else self.pair[1]
        ready = conversation.receive("ready", self.spec.start_timeout_s + _MARGIN_S)
        ports, problems = _ports(ready, slot, rails), _problems(ready)
        clients: dict[str, Run] = {}
        try:
            for rail in rails:
                attempt = self._attempt(partner, slot, rail)
                if rail not in ports:
                    self._unmeasured(
                        slot, rail, attempt, problems.get(rail, ("other", f"{server} did not serve"))
                    )
                    continue
                nic = nic_of(self.spec, server, self.pair, slot.direction, rail)
                started = self._start(slot, rail, attempt, ports[rail], nic.ipv4 if nic else None)
                if isinstance(started, Run):
                    clients[rail] = started
                else:
                    self._unmeasured(slot, rail, attempt, started)
            wait_until_ended(clients.values(), self.spec.timeout_s)
        finally:
            for run in clients.values():
                run.kill()
        self.tally.measuring_s += max((run.duration_s for run in clients.values()), default=0.0)
        exits: Mapping[str, Any] = {}
        clockless = [rail for rail, run in clients.items() if run.without_clock()]
        again = clockless if number is not None else []
        try:
            if ports:
                failed = [rail for rail in ports if rail not in clients or clients[rail].exit_code != 0]
                conversation.send({"type": "done", "slot": slot.index, "failed": failed, "again": again})
                closed = conversation.receive("closed", _SERVER_GRACE_S + _MARGIN_S)
                exits = closed["exits"] if isinstance(closed.get("exits"), dict) else {}
        finally:
            # A client that has ended has its result, whatever becomes of the partner afterwards.
            for rail, run in clients.items():
                if rail in again and number is not None:
                    run.set_aside(number)
                    self.tally.repeated += 1
                    continue
                problem = self._client_problem(run, exits.get(rail, 0), server, clock=rail not in clockless)
                attempt = self._attempt(partner, slot, rail)
                self._recorded.add((slot.index, rail))
                self.store.record_run(self.pair, slot, rail, attempt, run, problem)
                self.tally.measured += problem is None
                self.tally.failed += problem is not None
        return again

    def _client_problem(self, run: Run, server_exit: object, server: str, *, clock: bool) -> Record | None:
        if run.killed:
            return {
                "kind": "killed",
                "message": f"killed after {self.spec.timeout_s:.0f} s: {run.last_words()}",
            }
        if run.exit_code != 0:
            return {"kind": "other", "message": f"exit status {run.exit_code}: {run.last_words()}"}
        if server_exit != 0:
            return {
                "kind": "other",
                "message": f"client ended well, server on {server} with {server_exit!s:.20}",
            }
        if not clock:
            message = f"{CLOCK_UNKNOWN}, {_CLOCK_TRIES} times: {self.host.name} is too busy"
            return {"kind": "environment", "message": message}
        return None

    def _start(self, slot: Slot, rail: str, attempt: int, port: int, server: str | None) -> Run | Problem:
        device = self.host.devices[nic_rail(self.host.name, self.pair, slot.direction, rail)]
        stem = self.store.stem(self.pair, slot, rail, attempt)
        output = stem.with_name(f"{stem.name}{'.server' if server is None else ''}.txt")
        try:
            return Run(argv(self.spec, slot.operation, device, port, server), output, device.cpus)
        except OSError as error:
            return ("missing-tool", f"{slot.operation.test} on {self.host.name}: {error.strerror}")

    def _unmeasured(self, slot: Slot, rail: str, attempt: int, problem: Problem) -> None:
        self._recorded.add((slot.index, rail))
        self.store.record_unmeasured(self.pair, slot, rail, attempt, *problem)
        self.tally.failed += 1

    def _attempt(self, partner: _Partner | None, slot: Slot, rail: str) -> int:
        theirs = partner.attempts.get((slot.index, rail), 0) if partner else 0
        return 1 + max(self.store.attempts(self.pair, slot, rail), theirs)


class _Partner:
    """The partner's hello, taken apart with suspicion: what does not fit counts as not said."""

    def __init__(self, hello: Message) -> None:
        self.done: set[Cell] = {(c[0], c[1]) for c in _cells(hello.get("done"), 2)}
        self.attempts = {
            (c[0], c[1]): c[2] for c in _cells(hello.get("attempts"), 3) if isinstance(c[2], int)
        }
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
    return {k: _printable(v) for k, v in entries if isinstance(v, str)}


def _ports(ready: Message, slot: Slot, rails: list[str]) -> dict[str, int]:
    ports = ready.get("ports")
    if ready.get("slot") != slot.index or not isinstance(ports, dict):
        raise PeerLost("is not at the same place of the schedule")
    return {r: p for r, p in ports.items() if r in rails and type(p) is int and 1024 <= p <= 65535}


def _problems(ready: Message) -> dict[str, Problem]:
    problems = ready.get("problems")
    entries = problems.items() if isinstance(problems, dict) else ()
    kinds = {"setup", "environment", "missing-tool"}
    return {
        rail: (p[0], _printable(p[1]))
        for rail, p in entries
        if isinstance(p, list) and len(p) == 2 and p[0] in kinds and isinstance(p[1], str)
    }


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:500] or "not said"
