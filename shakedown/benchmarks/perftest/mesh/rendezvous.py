"""How two drivers find each other in a round, and how a dead one is told from a late one.

The agent answers pings; what the partner says is parsed without trust."""

from __future__ import annotations

import contextlib
import ipaddress
import selectors
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from shakedown.benchmarks.perftest.mesh.schedule import Pair, Slot
from shakedown.benchmarks.perftest.mesh.spec import Node, Spec
from shakedown.benchmarks.perftest.mesh.wire import (
    MAX_MESSAGE_BYTES,
    PROBE_EVERY_S,
    Conversation,
    Message,
    PeerLost,
    ask,
    decode,
    encode,
    set_timeouts,
)
from shakedown.records.reading import BadInput
from shakedown.records.wording import printable

Problem = tuple[str, str]  # kind (of records.Problem), message
Cell = tuple[int, str]  # slot index, rail

_MAX_ATTEMPTS = 10_000  # no cell is ever tried so often; a larger number is ignored


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


# The agent runs while the main thread measures, so silence from it means that the node or its driver is
# dead, and not that a measurement takes long.

# A stranger that connects and says nothing is disconnected after this time.
_SILENT_AFTER_S = 10.0
_MAX_STRANGERS = 512


@dataclass
class Arrival:
    """A partner that came to a round: its open connection, its hello, and what it sent after that."""

    sock: socket.socket
    hello: Message
    rest: bytes


@dataclass
class _Stranger:
    since: float
    data: bytes = b""


class Agent:
    """Listens on the control port of this node.

    Args:
        node: this node; when its address is an IP literal only that address is bound, otherwise all of them.
        port: TCP port of the drivers.
        session: what tells this run's drivers from any other's.

    Raises BadInput: the port cannot be opened.
    """

    def __init__(self, node: Node, port: int, session: str) -> None:
        self._session = session
        self._round = -1
        self._arrivals: dict[tuple[int, str], Arrival] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((_own_address(node.address), port))
            self._listener.listen(256)
        except OSError as error:
            self._listener.close()
            raise BadInput(
                f"{node.name}: control port {port} cannot be opened: {error.strerror}",
                fix="end what uses it, or choose another control_port",
            ) from error
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="mesh-agent", daemon=True)
        self._thread.start()

    def enter_round(self, index: int) -> None:
        """Set the round that this node is in; arrivals for earlier rounds are turned away."""
        with self._changed:
            self._round = index
            for key in [k for k in self._arrivals if k[0] < index]:
                self._arrivals.pop(key).sock.close()

    def take(self, index: int, node: str, timeout_s: float) -> Arrival | None:
        """Return `node`'s arrival for a round, waiting for it up to `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: (index, node) in self._arrivals, timeout_s)
            return self._arrivals.pop((index, node), None)

    def close(self) -> None:
        """Stop answering."""
        self._closing = True
        self._wake_in.send(b"x")
        self._thread.join(timeout=5)
        # Not by the thread, which may end before it is woken.
        self._wake_in.close()
        self._wake_out.close()

    def _serve(self) -> None:
        strangers: dict[socket.socket, _Stranger] = {}
        while not self._closing:
            for key, _ in self._selector.select(timeout=1.0):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listener:
                    self._accept(strangers)
                elif sock in strangers:
                    self._hear(sock, strangers)
            now = time.monotonic()
            for sock in [s for s, known in strangers.items() if now - known.since > _SILENT_AFTER_S]:
                self._forget(sock, strangers)
                sock.close()
        for sock in [self._listener, *strangers]:
            sock.close()
        self._selector.close()

    def _accept(self, strangers: dict[socket.socket, _Stranger]) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            if len(strangers) >= _MAX_STRANGERS:
                sock.close()
                return
            set_timeouts(sock)
            strangers[sock] = _Stranger(time.monotonic())
            self._selector.register(sock, selectors.EVENT_READ)

    def _hear(self, sock: socket.socket, strangers: dict[socket.socket, _Stranger]) -> None:
        known = strangers[sock]
        try:
            chunk = sock.recv(65536)
        except OSError:
            chunk = b""
        known.data += chunk
        if chunk and b"\n" not in known.data and len(known.data) <= MAX_MESSAGE_BYTES:
            return
        self._forget(sock, strangers)
        line, newline, rest = known.data.partition(b"\n")
        message = decode(line) if newline else None
        if message is None or not self._park(sock, message, rest):
            with contextlib.suppress(OSError):
                if message is not None:
                    sock.sendall(encode(self._pong(message)))
            sock.close()

    def _pong(self, message: Message) -> Message:
        """Answer a ping or a late arrival with this node's round; a stranger gets a bare pong."""
        if message.get("session") != self._session:
            return {"type": "pong"}
        return {"type": "pong", "session": self._session, "round": self._round}

    def _park(self, sock: socket.socket, message: Message, rest: bytes) -> bool:
        index, node = message.get("round"), message.get("node")
        if message["type"] != "hello" or message.get("session") != self._session:
            return False
        if isinstance(index, bool) or not isinstance(index, int) or not isinstance(node, str):
            return False
        with self._changed:
            if index < self._round:
                return False
            earlier = self._arrivals.pop((index, node), None)
            if earlier is not None:
                earlier.sock.close()
            self._arrivals[index, node] = Arrival(sock, message, rest)
            self._changed.notify_all()
        return True

    def _forget(self, sock: socket.socket, strangers: dict[socket.socket, _Stranger]) -> None:
        self._selector.unregister(sock)
        del strangers[sock]


def _own_address(address: str) -> str:
    try:
        return str(ipaddress.IPv4Address(address))
    except ipaddress.AddressValueError:
        # A name may stand for 127.0.1.1 on its own host (Debian's /etc/hosts), so it is no guide to bind to.
        return ""


# No coordinator and no collective: a node talks only to its partner of the round, so the death of any node
# costs its own pairs and nothing else. Every hello also names the nodes that have been found dead.

_CONNECT_S = 3.0
_RETRY_S = 0.2
# Another node says that it found it dead: look once, quickly. Nobody's word is believed without a look of
# one's own: a stranger who can speak for two nodes would take healthy ones out, and they would be blamed.
_SECOND_LOOK_S = 2.0


class PeerProbe:
    """Asks a partner's agent whether it is alive, and whether it is still with us in this round.

    Args:
        node: the partner.
        port: its control port.
        session: of this run.
        index: the round.
        give_up_after_s: how long it may fail to answer, and the earliest time (monotonic) to give up.
    """

    def __init__(
        self, node: Node, port: int, session: str, index: int, give_up_after_s: tuple[float, float]
    ) -> None:
        self._node, self._port, self._session, self._index = node, port, session, index
        self._window_s, self._not_before = give_up_after_s
        self._silent_since: float | None = None

    def __call__(self) -> str | None:
        """Return the reason to give the partner up, or None."""
        try:
            ping: Message = {"type": "ping", "session": self._session}
            answer = ask(self._node.address, self._port, ping, _CONNECT_S)
        except PeerLost as error:
            return self.failed(str(error))
        self._silent_since, self._not_before = None, 0.0
        if answer.get("session") != self._session:
            return "another run's driver answers there"
        if isinstance(answer.get("round"), int) and answer["round"] > self._index:
            return f"has gone on to round {answer['round']}"
        return None

    def failed(self, reason: str) -> str | None:
        """Note that it could not be reached; return the reason to give it up, or None."""
        now = time.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        silent_s = now - self._silent_since
        if silent_s >= self._window_s and now >= self._not_before:
            return f"no answer for {silent_s:.0f} s: {reason}"
        return None


class Meetings:
    """Connects one node to its partners, round after round, and remembers which were lost.

    Args:
        spec: the mesh.
        me: this node's name.
        session: of this run.
        agent: this node's agent.
        longest_round_s: what a round may take at most; a partner that is alive but does not come is given up.
    """

    def __init__(self, spec: Spec, me: str, session: str, agent: Agent, longest_round_s: float) -> None:
        self._spec, self._me, self._session, self._agent = spec, me, session, agent
        self._longest_round_s = longest_round_s
        self._limit_s = spec.join_timeout_s + 2 * longest_round_s
        self._join_until = time.monotonic() + spec.join_timeout_s
        self._met: set[str] = set()
        # node -> those that found it lost, as they say: each report is checked, quickly.
        self.lost: dict[str, set[str]] = {}

    def meet(self, pair: Pair, index: int, hello: Message) -> tuple[Conversation, Message]:
        """Return the open conversation with the partner, and its hello; raises PeerLost."""
        partner = pair[1] if self._me == pair[0] else pair[0]
        probe = self._probe(partner, index)
        hello = {
            **hello,
            "type": "hello",
            "session": self._session,
            "round": index,
            "node": self._me,
            "lost": {node: sorted(by) for node, by in self.lost.items()},
        }
        if self._me == pair[0]:
            conversation = self._visit(partner, probe)
            conversation.send({**hello, "time": time.time()})
            theirs = conversation.receive("hello", self._limit_s)
        else:
            conversation, theirs = self._await(partner, index, probe)
            conversation.send({**hello, "time": time.time()})
        if theirs.get("session") != self._session or theirs.get("node") != partner:
            raise PeerLost("another program answers there")
        self._met.add(partner)
        self._learn(theirs.get("lost"))
        return conversation, theirs

    def accuse(self, node: str) -> None:
        """Remember that this node has lost another."""
        self.lost.setdefault(node, set()).add(self._me)

    def _probe(self, partner: str, index: int) -> PeerProbe:
        window_s, not_before = self._spec.lost_after_s, 0.0
        if accusers := self.lost.get(partner, set()) - {self._me}:
            # Of two that say so, the first failure of one's own is enough.
            window_s = _SECOND_LOOK_S if len(accusers) < 2 else 0.0
        elif partner in self.lost:
            window_s = _SECOND_LOOK_S
        elif partner not in self._met:
            not_before = self._join_until
        node = self._spec.nodes[partner]
        return PeerProbe(node, self._spec.control_port, self._session, index, (window_s, not_before))

    def _visit(self, partner: str, probe: PeerProbe) -> Conversation:
        address = (self._spec.nodes[partner].address, self._spec.control_port)
        while True:
            try:
                return Conversation(socket.create_connection(address, timeout=_CONNECT_S), probe)
            except OSError as error:
                reason = probe.failed(str(error.strerror or error))
                if reason is not None:
                    raise PeerLost(reason) from error
            time.sleep(_RETRY_S)

    def _await(self, partner: str, index: int, probe: PeerProbe) -> tuple[Conversation, Message]:
        # One that two say is lost, and that answers all the same, may be stuck: it gets a round's time.
        doubted = len(self.lost.get(partner, set()) - {self._me}) >= 2
        limit_s = min(self._limit_s, self._longest_round_s) if doubted else self._limit_s
        deadline = time.monotonic() + limit_s
        while True:
            arrival = self._agent.take(index, partner, PROBE_EVERY_S)
            if arrival is None:
                reason = probe()
                arrival = self._agent.take(index, partner, 0) if reason is not None else None
                if reason is not None and arrival is None:
                    raise PeerLost(reason)
            if arrival is not None:
                set_timeouts(arrival.sock)
                return Conversation(arrival.sock, probe, arrival.rest), arrival.hello
            if time.monotonic() >= deadline:
                raise PeerLost(f"alive, but did not come within {limit_s:.0f} s")

    def _learn(self, lost: object) -> None:
        """Adopt what the partner knows of lost nodes, except about this node itself."""
        if not isinstance(lost, dict):
            return
        for node, accusers in lost.items():
            if node in self._spec.nodes and node != self._me and isinstance(accusers, list):
                known = {a for a in accusers if isinstance(a, str) and a in self._spec.nodes}
                if known:
                    self.lost.setdefault(node, set()).update(known)
