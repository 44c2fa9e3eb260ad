"""What a connected pair does: slot after slot, one end serves, the other measures and keeps the record.

Within a slot three messages go over the conversation: `ready` (the servers listen, on these ports), `done`
(the clients have ended) and `closed` (how the servers ended). Neither end ever waits for a fixed time.

A slot is measured as a whole. Where it runs all rails at once, a number counts only if the neighbouring rails
were busy; beside idle ones a rail would pass too easily. So

* if one rail cannot be measured, none is, and the others' notes say for which rail;
* if one rail fails while they run, the others' numbers are recorded with that as their problem;
* if one rail is still missing at a second start, all run again. Each is recorded, under its next attempt,
  also those that had a number: nothing that was started is hidden, and attempts that disagree decide nothing;
* if a client could put no number on a rail, for want of a clock, and all else went well, `done` says so and
  all run again at once. Nothing of such a try is recorded, and all its outputs are kept. Only the clock of a
  process decides that, never a rate, so it favours no result.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shakedown.benchmarks.perftest.mesh.perftest import (
    CLOCK_UNKNOWN,
    Perftest,
    RdmaDevice,
    argv,
    port_in_use,
    wait_until_ended,
    wait_until_listening,
)
from shakedown.benchmarks.perftest.mesh.rendezvous import Cell, Partner, Problem, ports_of, problems_of
from shakedown.benchmarks.perftest.mesh.schedule import (
    LESS_LOAD,
    Pair,
    Slot,
    client_and_server,
    nic_of,
    nic_rail,
    port_of,
    slots_of,
)
from shakedown.benchmarks.perftest.mesh.spec import BOTH, Spec
from shakedown.benchmarks.perftest.mesh.store import Again, NodeFiles, Record
from shakedown.benchmarks.perftest.mesh.wire import Conversation, Message, PeerLost
from shakedown.records.writing import unused

# After its client has ended, a server needs a moment for the last exchange and the teardown.
_SERVER_GRACE_S = 5.0
# A server whose client has failed has nothing left to wait for, but may still print the reason.
_FAILED_GRACE_S = 0.5
_MARGIN_S = 15.0  # on top of the time that the other end may take for its part
# After so many tries per rail of a slot in which perftest misses its clock's rate, the slot has no number.
# Nor after tries that took as long as one client may, in all slots together: the job's time limit would end
# them all, and with them the counters that are read at its end.
_CLOCK_TRIES = 4


# What goes on at a serving node from before its clients start until its servers have ended. It is given the
# netdev of each output, by the name that the client's output will have.
Watch = Callable[[Mapping[str, str]], contextlib.AbstractContextManager[None]]


def unwatched(_netdevs: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
    """Watch nothing."""
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Buffers:
    """The memory that perftest uses here, where an operation names one."""

    # Perftest's options, by rail and memory.
    words: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    lacking: Mapping[tuple[str, str], str] = field(default_factory=dict)  # why there is none

    def problems(self) -> dict[str, str]:
        """Return what is lacking as a partner hears of it, beside the problems of rails."""
        return {_buffer(rail, memory): why for (rail, memory), why in self.lacking.items()}


def _buffer(rail: str, memory: str) -> str:
    return f"{rail}:{memory}"  # no rail's name has a colon


@dataclass(frozen=True)
class Host:
    """This node: its usable devices, what is wrong with the others, and its perftest."""

    name: str
    devices: Mapping[str, RdmaDevice]
    problems: Mapping[str, str]
    versions: Mapping[str, str | None]
    prefix: tuple[str, ...] = ()  # words that enter the container with its perftest
    buffers: Buffers = field(default_factory=Buffers)


@dataclass
class RoundTally:
    """What became of the cells of one round on this node, and how long perftest itself took.

    `starting_s` is until its servers listened, `measuring_s` while its clients ran, `ending_s` until its
    servers had ended. What is left of the round's time, of both nodes together, is the driver's own.
    """

    measured: int = 0
    failed: int = 0
    skipped: int = 0
    repeated: int = 0  # outputs set aside, for want of a clock
    starting_s: float = 0.0
    measuring_s: float = 0.0
    ending_s: float = 0.0


@dataclass
class PairWork:
    """One pair in one round, as this node sees it."""

    spec: Spec
    host: Host
    store: NodeFiles
    pair: Pair
    index: int
    watch: Watch = unwatched
    # Given in the rounds at the end: what is in doubt is measured again, whatever was measured before.
    again: Again | None = None
    tally: RoundTally = field(default_factory=RoundTally)
    # The cells that this node has recorded in this round.
    _recorded: set[Cell] = field(default_factory=set)
    _due: list[Cell] = field(default_factory=list)
    _full: list[str] = field(default_factory=list)

    def hello(self) -> Message:
        """Return what the partner must know: what is measured already, what we have, what time it is here."""
        done: list[Cell] = []
        attempts: list[tuple[int, str, int]] = []
        for slot in slots_of(self.spec):
            for rail in slot.rails:
                if self.store.measured(self.pair, slot, rail):
                    done.append((slot.index, rail))
                if n := self.store.attempts(self.pair, slot, rail):
                    attempts.append((slot.index, rail, n))
        told: Message = {}
        if self.again is not None:
            self._due, self._full = self.again.due(self.pair), self.again.full()
            told = {"due": self._due, "full": self._full}
        return {
            **told,
            "done": done,
            "attempts": attempts,
            "problems": dict(self.host.problems),
            "versions": dict(self.host.versions),
        }

    def run(self, conversation: Conversation, theirs: Message) -> None:
        """Measure what neither end has measured whole yet; raises PeerLost after noting what is left."""
        partner = Partner(theirs)
        if self.again is not None:
            full = {self.host.name: self._full, self._other: partner.full}
            for slot in self.again.agreed(self.pair, [*self._due, *partner.due], full):
                self._slot(conversation, partner, slot)
            return
        todo: list[Slot] = []
        for slot in slots_of(self.spec):
            if self._missing(partner, slot):
                todo.append(slot)
            else:
                self.tally.skipped += len(slot.rails)
        while todo:
            try:
                self._slot(conversation, partner, todo[0])
            except PeerLost as lost:
                self.give_up(str(lost), partner, todo)
                raise
            todo.pop(0)

    def give_up(
        self, reason: str, partner: Partner | None = None, todo: Iterable[Slot] | None = None
    ) -> None:
        """Note every cell that is still unmeasured, with the reason."""
        if self.again is not None:
            return  # what was measured stands; what was in doubt stays so
        other = self._other
        for slot in slots_of(self.spec) if todo is None else todo:
            for rail in self._missing(partner, slot):
                if (slot.index, rail) not in self._recorded:
                    self._unmeasured(partner, slot, rail, ("environment", f"{other} lost: {reason}"))

    @property
    def _other(self) -> str:
        return self.pair[1] if self.host.name == self.pair[0] else self.pair[0]

    def _missing(self, partner: Partner | None, slot: Slot) -> list[str]:
        """Return the rails of a slot that neither end has measured."""
        done = partner.done if partner else set()
        return [
            rail
            for rail in slot.rails
            if (slot.index, rail) not in done and not self.store.measured(self.pair, slot, rail)
        ]

    def _slot(self, conversation: Conversation, partner: Partner, slot: Slot) -> None:
        client, _ = client_and_server(slot.operation.test, self.pair, slot.direction)
        found = {rail: self._obstacle(partner, slot, rail) for rail in slot.rails}
        obstacles = {rail: problem for rail, problem in found.items() if problem is not None}
        if obstacles:
            if self.host.name == client:
                self._refuse(partner, slot, obstacles)
            return
        for number in range(1, _clock_tries(slot) + 1):
            if self.host.name == client:
                again = self._measure(conversation, partner, slot, number)
            else:
                again = self._serve(conversation, partner, slot)
            if not again:
                return

    def _refuse(self, partner: Partner, slot: Slot, problems: Mapping[str, Problem]) -> None:
        """Note that nothing of a slot was started, since these of its rails could not be."""
        why = "; ".join(sorted(text for _, text in problems.values()))
        for rail in self._missing(partner, slot):
            problem = problems.get(rail, ("environment", f"{LESS_LOAD}: {why}"[:1000]))
            self._unmeasured(partner, slot, rail, problem)

    def _obstacle(self, partner: Partner, slot: Slot, rail: str) -> Problem | None:
        """Return why a cell cannot be measured, as both ends see it alike, or None."""
        test = slot.operation.test
        for node in self.pair:
            mine = node == self.host.name
            own_rail = nic_rail(node, self.pair, slot.direction, rail)
            if nic_of(self.spec, node, self.pair, slot.direction, rail) is None:
                return ("setup", f"{node} has no {own_rail}")
            problems = self.host.problems if mine else partner.problems
            problem = problems.get(own_rail)
            if problem is not None:
                return ("setup", f"{node} {own_rail}: {problem}")
            lacking = problems.get(_buffer(own_rail, slot.operation.memory))
            if lacking is not None:
                return ("not-run", f"{node} {own_rail}: {lacking}")
            if (self.host.versions if mine else partner.versions).get(test) is None:
                return ("missing-tool", f"{node} has no working {test}")
        ours, theirs = self.host.versions.get(test), partner.versions.get(test)
        if ours != theirs:
            # Sorted, so that both ends say the same.
            found = " and ".join(sorted(f"{v}" for v in (ours, theirs)))
            return ("environment", f"{test} of two versions in {' and '.join(self.pair)}: {found}")
        return None

    def _serve(self, conversation: Conversation, partner: Partner, slot: Slot) -> bool:
        """Serve one slot; returns whether the client measures it again."""
        servers: dict[str, tuple[int, Perftest]] = {}
        problems: dict[str, Problem] = {}
        begin = time.monotonic()
        watching = contextlib.ExitStack()
        try:
            for rail in slot.rails:
                port = port_of(self.spec, self.index, slot, rail)
                nic = nic_of(self.spec, self.host.name, self.pair, slot.direction, rail)
                if nic is not None and port_in_use(nic.ipv4, port):
                    problems[rail] = ("environment", f"port {port} of {self.host.name} is in use")
                    continue
                started = self._start(slot, rail, self._attempt(partner, slot, rail), port, None)
                if isinstance(started, Perftest):
                    servers[rail] = (port, started)
                else:
                    problems[rail] = started
            if not problems:
                problems = self._deaf(servers)
            if not problems:
                watching.enter_context(self.watch(self._netdevs(partner, slot)))
            self.tally.starting_s += time.monotonic() - begin
            ready = {} if problems else {rail: port for rail, (port, _) in servers.items()}
            conversation.send({"type": "ready", "slot": slot.index, "ports": ready, "problems": problems})
            if problems:
                return False
            limit_s = self.spec.start_timeout_s + self.spec.timeout_s + _MARGIN_S
            said = conversation.receive("done", limit_s)
            failed = said.get("failed")
            done = time.monotonic()
            lost = {str(rail) for rail in failed} if isinstance(failed, list) else set()
            wait_until_ended([run for rail, (_, run) in servers.items() if rail not in lost], _SERVER_GRACE_S)
            wait_until_ended([run for _, run in servers.values()], _FAILED_GRACE_S)
            self.tally.ending_s += time.monotonic() - done
        finally:
            for _, run in servers.values():
                run.kill()
            watching.close()
        exits = {rail: run.exit_code for rail, (_, run) in servers.items()}
        conversation.send({"type": "closed", "slot": slot.index, "exits": exits})
        for _, run in servers.values():
            # What the server printed repeats the client's file, unless something went wrong; of a memory that
            # is named, it alone shows which one this end had.
            if run.exit_code == 0 and not slot.operation.memory:
                run.output.unlink(missing_ok=True)
        return said.get("again") is True and _all_well(exits, slot)

    def _netdevs(self, partner: Partner, slot: Slot) -> dict[str, str]:
        """Return this node's netdev of each rail, by the name of the output that the client writes."""
        netdevs: dict[str, str] = {}
        for rail in slot.rails:
            nic = nic_of(self.spec, self.host.name, self.pair, slot.direction, rail)
            if nic is not None:
                stem = self.store.stem(self.pair, slot, rail, self._attempt(partner, slot, rail))
                netdevs[f"{stem.name}.txt"] = nic.netdev
        return netdevs

    def _deaf(self, servers: Mapping[str, tuple[int, Perftest]]) -> dict[str, Problem]:
        """Wait until all servers listen; returns which do not, and why."""
        listening = wait_until_listening(dict(servers.values()), self.spec.start_timeout_s)
        problems: dict[str, Problem] = {}
        for rail, (port, run) in servers.items():
            if port not in listening:
                run.kill()
                words = f"server on {self.host.name} does not listen: {run.last_words()}"
                problems[rail] = ("setup", words)
        return problems

    def _measure(self, conversation: Conversation, partner: Partner, slot: Slot, number: int) -> bool:
        """Measure one slot, for the `number`th time in this round; returns whether it is measured again."""
        server = self.pair[0] if self.pair[1] == self.host.name else self.pair[1]
        ready = conversation.receive("ready", self.spec.start_timeout_s + _MARGIN_S)
        ports, problems = ports_of(ready, slot), problems_of(ready)
        unanswered = ("other", f"{server} did not serve")
        if len(ports) < len(slot.rails):
            unserved = {rail: p for rail, p in problems.items() if rail in slot.rails and rail not in ports}
            self._refuse(partner, slot, unserved or {r: unanswered for r in slot.rails if r not in ports})
            return False
        clients: dict[str, Perftest] = {}
        # Rails that put no load on the others, and why.
        idle: dict[str, str] = {}
        try:
            for rail in slot.rails:
                nic = nic_of(self.spec, server, self.pair, slot.direction, rail)
                attempt = self._attempt(partner, slot, rail)
                started = self._start(slot, rail, attempt, ports[rail], nic.ipv4 if nic else None)
                if isinstance(started, Perftest):
                    clients[rail] = started
                else:
                    idle[rail] = started[1]
                    self._unmeasured(partner, slot, rail, started)
            wait_until_ended(clients.values(), self.spec.timeout_s)
        finally:
            for run in clients.values():
                run.kill()
        took_s = max((run.duration_s for run in clients.values()), default=0.0)
        self.tally.measuring_s += took_s
        idle |= {
            rail: f"{rail} failed: {run.last_words()}" for rail, run in clients.items() if run.exit_code != 0
        }
        # What is watched is counted where it arrives: perftest's own rate is not what is asked.
        needs_rate = self.watch is unwatched
        clockless = {rail for rail, run in clients.items() if needs_rate and run.without_clock()}
        # A try in which something else went wrong as well is not repeated: that would hide the failure.
        in_time = self.store.set_aside_s + took_s < self.spec.timeout_s
        again = bool(clockless) and not idle and in_time and number < _clock_tries(slot)
        exits: Mapping[str, Any] = {}
        heard = False
        try:
            conversation.send({"type": "done", "slot": slot.index, "failed": list(idle), "again": again})
            closed = conversation.receive("closed", _SERVER_GRACE_S + _MARGIN_S)
            exits, heard = closed["exits"] if isinstance(closed.get("exits"), dict) else {}, True
        finally:
            repeat = again and heard and _all_well(exits, slot)
            self.store.set_aside_s += took_s if repeat else 0.0
            for rail, run in clients.items():
                # A client that has ended has its result, whatever becomes of the partner afterwards.
                if repeat or (rail in clockless and not heard):
                    run.set_aside(number)
                    self.tally.repeated += 1
                    continue
                problem = self._client_problem(
                    run, exits.get(rail, 0), server, number if rail in clockless else 0
                )
                if problem is None and idle:
                    problem = {
                        "kind": "environment",
                        "message": f"{LESS_LOAD}: {'; '.join(idle.values())}"[:1000],
                    }
                self._record(partner, slot, rail, run, problem)
        return repeat

    def _record(self, partner: Partner, slot: Slot, rail: str, run: Perftest, problem: Record | None) -> None:
        self._recorded.add((slot.index, rail))
        self.store.record_run(self.pair, slot, rail, self._attempt(partner, slot, rail), run, problem)
        self.tally.measured += problem is None
        self.tally.failed += problem is not None

    def _client_problem(
        self, run: Perftest, server_exit: object, server: str, clockless: int
    ) -> Record | None:
        """Return what spoiled a client's result; `clockless`: tries that had no clock, this one the last."""
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
        if clockless:
            times = "once" if clockless == 1 else f"{clockless} times"
            message = f"{CLOCK_UNKNOWN}, {times}: {self.host.name} is too busy"
            return {"kind": "environment", "message": message}
        return None

    def _start(
        self, slot: Slot, rail: str, attempt: int, port: int, server: str | None
    ) -> Perftest | Problem:
        own_rail = nic_rail(self.host.name, self.pair, slot.direction, rail)
        device = self.host.devices[own_rail]
        buffer = self.host.buffers.words.get((own_rail, slot.operation.memory), ())
        stem = self.store.stem(self.pair, slot, rail, attempt)
        # A killed driver leaves an output without a record; a server of an earlier try leaves its messages.
        output = unused(stem.with_name(f"{stem.name}{'.server' if server is None else ''}.txt"))
        try:
            both = slot.direction == BOTH
            words = argv(self.spec, slot.operation, device, port, server, both=both, buffer=buffer)
            return Perftest(words, output, device.cpus, self.host.prefix)
        except OSError as error:
            return ("missing-tool", f"{slot.operation.test} on {self.host.name}: {error.strerror}")

    def _unmeasured(self, partner: Partner | None, slot: Slot, rail: str, problem: Problem) -> None:
        self._recorded.add((slot.index, rail))
        attempt = self._attempt(partner, slot, rail)
        self.store.record_unmeasured(self.pair, slot, rail, attempt, *problem)
        self.tally.failed += 1

    def _attempt(self, partner: Partner | None, slot: Slot, rail: str) -> int:
        theirs = partner.attempts.get((slot.index, rail), 0) if partner else 0
        return 1 + max(self.store.attempts(self.pair, slot, rail), theirs)


def _all_well(exits: Mapping[str, object], slot: Slot) -> bool:
    """Return whether all servers of a slot ended well, as both ends see it alike."""
    return all(exits.get(rail, 0) == 0 for rail in slot.rails)


def _clock_tries(slot: Slot) -> int:
    return _CLOCK_TRIES * len(slot.rails)
