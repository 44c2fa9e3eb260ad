"""Files written so that no reader sees half of one. Standard library only: compute nodes use this."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

_LONGEST_LOCK_S = 2.0  # ours last for one line; whoever may read a file may lock it, and keep it so


def write_aside(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file so that it is either the old or the new one, never half of it, and stays so without power.

    `content`: the whole, or its parts one after another, of which none is kept.

    Raises OSError: with its name, which the system does not give for a disk that is full.
    """
    aside = path.with_name(aside_of(path.name))
    try:
        with aside.open("xb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        settle(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def aside_of(name: str) -> str:
    """Return the name under which a file is written first, by no two writers at once, on whatever host.

    It says which process writes, for `leftovers`. Cut: a name may be as long as file systems allow.
    """
    return f".{name[:200]}.{os.getpid()}.{os.urandom(4).hex()}.new"


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
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o664 if _is_shared(path.parent) else 0o644)
    try:
        lock(descriptor)
        first = os.fstat(descriptor).st_size == 0
        append_whole(descriptor, line)
    finally:
        os.close(descriptor)
    if first:
        settle(path.parent)


def lock(descriptor: int) -> None:
    """Wait for whoever else appends to a file; a share without locks has one writer for each."""
    until = time.monotonic() + _LONGEST_LOCK_S
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return
        else:
            return


def lock_file(path: Path) -> IO[bytes]:
    """Open a file that is there to be locked: by none but who may write beside it. Raises OSError."""
    mode = 0o660 if _is_shared(path.parent) else 0o600
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb")
    with suppress(PermissionError):  # of another one of the group
        os.fchmod(file.fileno(), mode)
    return file


def _is_shared(folder: Path) -> bool:
    """Return whether a group works in a folder; whatever the umask says, it has no part in another one."""
    return bool(folder.stat().st_mode & 0o020)


def append_whole(descriptor: int, line: bytes) -> None:
    """Append a line and its end to a file open with O_APPEND: all, on disk when this returns, or nothing.

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
    left = memoryview(line + b"\n")
    try:
        while left:  # a write may be short
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, whole)
        raise


def unused(path: Path) -> Path:
    """Return `path`, or with a number before its last ending if that exists: nothing is overwritten."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return free
