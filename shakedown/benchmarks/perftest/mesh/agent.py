"""The agent: the thread of a driver that answers pings and takes in partners that arrive early.

It runs while the main thread measures, so silence from it means that the node or its driver is dead, and not
that a measurement takes long.
"""

from __future__ import annotations

import contextlib
import ipaddress
import selectors
import socket
import threading
import time
from dataclasses import dataclass

from shakedown.benchmarks.perftest.mesh.spec import Node
from shakedown.benchmarks.perftest.mesh.wire import MAX_MESSAGE_BYTES, Message, decode, encode, set_timeouts
from shakedown.records.errors import BadInput

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

    Raises:
        BadInput: the port cannot be opened.
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
