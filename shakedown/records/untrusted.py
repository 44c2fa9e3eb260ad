"""Files and JSON that others wrote, read without trust; and files written so that no reader sees half of one.

Standard library only: compute nodes use this.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
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


def write_aside(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old or the new one, never half of it, and stays so without power.

    Raises OSError: with its name, which the system does not give for a disk that is full.
    """
    # Cut: a name may be as long as file systems allow.
    aside = path.with_name(f".{path.name[:200]}.{os.getpid()}.new")
    try:
        with aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        settle(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def settle(folder: Path) -> None:
    """Have a new name in a folder on disk; some file systems have no such thing, and need none."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a plain file, made if need be, as `append_whole` does. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        with suppress(OSError):  # a share without locks has one writer for each file
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        append_whole(descriptor, line)
    finally:
        os.close(descriptor)


def append_whole(descriptor: int, line: bytes) -> None:
    """Append a line and its end to an open file: all of it, on disk when this returns, or nothing.

    What a writer that died left half written is taken away first: the next line must not be glued to it.
    Raises OSError: a disk that is full, a share that is gone.
    """
    whole = end = os.fstat(descriptor).st_size
    while whole:  # a writer that died is rare, and its line short
        block = os.pread(descriptor, min(whole, 1 << 16), max(0, whole - (1 << 16)))
        found = block.rfind(b"\n") + 1
        whole = whole - len(block) + found
        if found:
            break
    if whole < end:
        os.ftruncate(descriptor, whole)
    left, at = memoryview(line + b"\n"), whole
    try:
        while left:  # a write may be short
            done = os.pwrite(descriptor, left, at)
            left, at = left[done:], at + done
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, whole)
        raise


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
