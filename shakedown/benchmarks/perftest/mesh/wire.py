"""What a driver reads with types and bounds: the fields of the specification, and messages between drivers.
Standard library only."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from shakedown.records.errors import BadInput
from shakedown.records.untrusted import loads

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")


class FieldReader:
    """Typed access to outside data; whatever does not fit is refused with the field's name."""

    def __init__(self, file: str | None) -> None:
        self.file = file

    def refuse(self, where: str, value: object, fix: str) -> NoReturn:
        """Raise the refusal of one value."""
        raise BadInput(f"{where}: {str(value)[:80]!r} cannot be used", fix=fix, file=self.file)

    def table(
        self, value: object, where: str, required: tuple[str, ...], optional: dict[str, object]
    ) -> dict[str, object]:
        """Return an object with exactly these fields."""
        if not isinstance(value, dict):
            raise BadInput(f"{where} is not an object", fix="write a JSON object", file=self.file)
        unknown = sorted(str(k) for k in value if k not in required and k not in optional)
        missing = [k for k in required if k not in value]
        if unknown or missing:
            wrong = f"unknown {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
            known = ", ".join((*required, *optional))
            raise BadInput(f"{where}: {wrong}", fix=f"fields are {known}", file=self.file)
        return {**optional, **value}

    def mapping(self, value: object, where: str) -> dict[str, object]:
        """Return an object whose keys are names."""
        if not isinstance(value, dict) or not value:
            raise BadInput(f"{where}: no entries", fix="write a JSON object", file=self.file)
        for key in value:
            if not _NAME.match(str(key)):
                self.refuse(where, key, "names have letters, digits, '.', '_' and '-', at most 63")
        return value

    def items(self, value: object, where: str) -> list[object]:
        """Return a list that is not empty."""
        if not isinstance(value, list) or not value:
            raise BadInput(f"{where}: not a list with entries", fix="write a JSON list", file=self.file)
        return value

    def name(self, value: object, where: str) -> str:
        """Return a name."""
        if not isinstance(value, str) or not _NAME.match(value):
            self.refuse(where, value, "names have letters, digits, '.', '_' and '-', at most 63")
        return value

    def choices(self, value: object, where: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """Return some of `allowed`, each at most once."""
        chosen = self.items(value, where)
        for item in chosen:
            if item not in allowed or chosen.count(item) > 1:
                self.refuse(where, item, f"use each of {', '.join(allowed)} at most once")
        return tuple(str(item) for item in chosen)

    def integer(self, value: object, where: str, low: int, high: int) -> int:
        """Return a whole number within bounds."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(where, value, f"use a whole number from {low} to {high}")
        return value

    def seconds(self, value: object, where: str) -> float:
        """Return a time."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86400:
            self.refuse(where, value, "use seconds, more than 0 and at most 86400")
        return float(value)


# Nothing here measures; the traffic is a few hundred bytes a round on the management network.

MAX_MESSAGE_BYTES = 1 << 20
PROBE_EVERY_S = 2.0  # how often a silent peer is asked whether it is still there

Message = dict[str, Any]


class PeerLost(Exception):  # noqa: N818  (it names the peer's state)
    """The other driver is gone, or has gone on without us; the text says how we know."""


def encode(message: Message) -> bytes:
    """Return a message as it goes over the wire."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """Return the message in a line, or None if it is not one."""
    try:
        message = loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None


def set_timeouts(sock: socket.socket) -> None:
    """Send small messages at once, and never block for ever on a peer that stopped reading."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(10.0)


class Conversation:
    """The exchange with one partner in one round.

    Args:
        sock: connected socket.
        probe: asks the peer's agent whether it is alive and still with us; returns the reason to give up, or
            None. It is called while the peer is silent, so that a long measurement is told from a dead node.
        buffered: bytes that were already received.
    """

    def __init__(self, sock: socket.socket, probe: Callable[[], str | None], buffered: bytes = b"") -> None:
        self._sock, self._probe, self._buffer = sock, probe, buffered
        set_timeouts(sock)

    def send(self, message: Message) -> None:
        """Send one message; raises PeerLost."""
        try:
            self._sock.sendall(encode(message))
        except OSError as error:
            raise PeerLost(f"sending failed: {error.strerror or error}") from error

    def receive(self, kind: str, timeout_s: float) -> Message:
        """Return the next message, which must be of this kind; raises PeerLost."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            wait_s = min(PROBE_EVERY_S, deadline - time.monotonic())
            if wait_s <= 0:
                raise PeerLost(f"alive, but sent no {kind!r} within {timeout_s:.0f} s")
            if not select.select([self._sock], [], [], wait_s)[0]:
                reason = self._probe()
                # What it sent before it went on still counts.
                if reason is not None and not select.select([self._sock], [], [], 0)[0]:
                    raise PeerLost(reason)
                continue
            self._read_more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = decode(line)
        if message is None or message["type"] != kind:
            raise PeerLost(f"sent something else than {kind!r}")
        return message

    def close(self) -> None:
        """End the exchange."""
        self._sock.close()

    def _read_more(self) -> None:
        try:
            chunk = self._sock.recv(65536)
        except OSError as error:
            raise PeerLost(f"connection failed: {error.strerror or error}") from error
        if not chunk:
            raise PeerLost("closed the connection")
        self._buffer += chunk
        if len(self._buffer) > MAX_MESSAGE_BYTES:
            raise PeerLost("sent a message without end")


def ask(address: str, port: int, message: Message, timeout_s: float) -> Message:
    """Connect, send one message and return the one-line answer; raises PeerLost."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as sock:
            set_timeouts(sock)
            sock.settimeout(timeout_s)
            sock.sendall(encode(message))
            answer = b""
            while not answer.endswith(b"\n") and len(answer) < MAX_MESSAGE_BYTES:
                chunk = sock.recv(65536)
                if not chunk:
                    break
                answer += chunk
    except OSError as error:
        raise PeerLost(str(error.strerror or error)) from error
    decoded = decode(answer)
    if decoded is None:
        raise PeerLost("answered something that is not a driver's message")
    return decoded
