"""Files and JSON that others wrote, read without trust. Standard library only: compute nodes use this."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from shakedown.records.errors import BadInput

# Nothing that drivers write or read is nested even half as deeply. Far below what Python's own limit allows,
# so that code that walks through the value, or only prints it, does not reach that limit either.
_DEEPEST = 32


class DuplicateKeyError(ValueError):
    """One object has a key twice, so that it says two things."""


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of these pairs. Raises DuplicateKeyError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise DuplicateKeyError(f"duplicate key {next(k for k in names if names.count(k) > 1)[:80]!r}")
    return found


def loads(raw: bytes | str) -> Any:  # noqa: ANN401  (whatever JSON holds, as json.loads)
    """Return parsed JSON.

    Raises ValueError: it is not JSON, not UTF-8, nested too deeply, or has a key twice in one object.
    """
    try:
        value = json.loads(raw, object_pairs_hook=distinct)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [child for item in level for child in _children(item)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def open_plain(path: Path, fix: str) -> FileIO | None:
    """Open a plain file for reading, or return None if there is none.

    A pipe would never end, and a link may lead anywhere, so both are refused. Raises BadInput: it is no plain
    file, or cannot be read; `fix` says what to do about it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", fix=fix, file=path) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadInput("is not a plain file", fix=fix, file=path)
    return FileIO(descriptor)


def read_plain(path: Path, fix: str) -> bytes | None:
    """Return what a plain file holds, or None if there is none. Raises BadInput as `open_plain` does."""
    file = open_plain(path, fix)
    if file is None:
        return None
    with file:
        return file.readall()


def complete_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line) without empty ones and without a last one that was not finished."""
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        if line.strip():
            yield number, line


def holds_something(path: Path) -> bool:
    """Return whether this is a plain file that is not empty."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size > 0


def unused(path: Path) -> Path:
    """Return `path`, or with a number before its last ending if that exists: nothing is overwritten."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return free


def _children(item: object) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []
