"""What a driver reads with types and bounds: the fields of the specification, and messages between drivers.
Standard library only."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, get_origin, get_type_hints

from shakedown.records.reading import BadInput, loads

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")


class Place(NamedTuple):
    """Where in outside data a value stands, for refusals."""

    field: str  # `nodes.n1.rails`; empty: the whole
    file: str | None

    def at(self, key: str) -> Place:
        """Return the place of a field within this one."""
        return self._replace(field=f"{self.field}.{key}" if self.field else key)

    def item(self, number: int) -> Place:
        """Return the place of an item of this list."""
        return self._replace(field=f"{self.field}[{number}]")

    def refuse(self, value: object, fix: str) -> NoReturn:
        """Raise the refusal of the value here."""
        raise BadInput(f"{self.field}: {str(value)[:80]!r} cannot be used", fix=fix, file=self.file)


# Each returns what stands at a place as it is used, or refuses it with the field's name.
Reader = Callable[[Place, Any], Any]
T = TypeVar("T")


def load(kind: type[T], value: object, place: Place) -> T:
    """Return an object as a dataclass whose fields are annotated with their readers; others are refused."""
    if not isinstance(value, dict):
        what = f"{place.field or 'the specification'} is not an object"
        raise BadInput(what, fix="write a JSON object", file=place.file)
    hints = get_type_hints(kind, include_extras=True)
    readers = {key: hint.__metadata__[0] for key, hint in hints.items() if get_origin(hint) is Annotated}
    unknown = sorted(str(key) for key in value if key not in readers)
    missing = [
        one.name
        for one in fields(kind)  # type: ignore[arg-type]
        if one.name in readers and one.name not in value and one.default is one.default_factory is MISSING
    ]
    if unknown or missing:
        wrong = f"unknown {unknown[0]!r}" if unknown else f"{missing[0]!r} is missing"
        raise BadInput(
            f"{place.field or 'the specification'}: {wrong}",
            fix=f"fields are {', '.join(readers)}",
            file=place.file,
        )
    found = {key: read(place.at(key), value[key]) for key, read in readers.items() if key in value}
    return kind(**{key: one for key, one in found.items() if one is not None})


def of(kind: type) -> Reader:
    """Return the reader of an object that a dataclass describes."""
    return lambda place, value: load(kind, value, place)


def or_null(read: Reader) -> Reader:
    """Return a reader to which null is as good as a field that is left out."""
    return lambda place, value: None if value is None else read(place, value)


def entries(read: Reader) -> Reader:
    """Return the reader of an object whose keys are names."""

    def read_each(place: Place, value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or not value:
            raise BadInput(f"{place.field}: no entries", fix="write a JSON object", file=place.file)
        return {plain_name(place, key): read(place.at(key), one) for key, one in value.items()}

    return read_each


def items(place: Place, value: object) -> tuple[Any, ...]:
    """Return a list that is not empty."""
    if not isinstance(value, list) or not value:
        raise BadInput(f"{place.field}: not a list with entries", fix="write a JSON list", file=place.file)
    return tuple(value)


def each(read: Reader) -> Reader:
    """Return the reader of a list that is not empty."""
    return lambda place, value: tuple(read(place.item(i), one) for i, one in enumerate(items(place, value)))


def each_once(fits: Callable[[Any], bool], fix: str) -> Reader:
    """Return the reader of a list that is not empty, of what fits and of nothing twice."""

    def read(place: Place, value: object) -> tuple[Any, ...]:
        found = items(place, value)
        for one in found:
            if not fits(one) or found.count(one) > 1:
                place.refuse(one, fix)
        return found

    return read


def must(fits: Callable[[Any], bool], fix: str) -> Reader:
    """Return the reader of a value that fits."""

    def read(place: Place, value: object) -> object:
        if not fits(value):
            place.refuse(value, fix)
        return value

    return read


def one_of(*allowed: str) -> Reader:
    """Return the reader of one of these words."""
    return must(allowed.__contains__, f"use one of {', '.join(filter(None, allowed))}")


def some_of(allowed: tuple[str, ...]) -> Reader:
    """Return the reader of some of these words."""
    return each_once(allowed.__contains__, f"use each of {', '.join(allowed)} at most once")


def whole(low: int, high: int) -> Reader:
    """Return the reader of a whole number within bounds."""
    return must(lambda x: type(x) is int and low <= x <= high, f"use a whole number from {low} to {high}")


plain_name = must(
    lambda x: isinstance(x, str) and _NAME.match(x) is not None,
    "names have letters, digits, '.', '_' and '-', at most 63",
)
flag = must(lambda x: isinstance(x, bool), "use true or false")
seconds = must(
    lambda x: type(x) in (int, float) and 0 < x <= 86400, "use seconds, more than 0 and at most 86400"
)


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
