"""A run's folder on a share that others write to: nothing below it is opened through a link.

Who can write there as the jobs' user, as the root of any node can, may put a link, a pipe or a device where a
file is due. The submit host's user has files that no node may read or write, so that host opens nothing there
in another way; what is read of a copy of the run goes through `records.reading`. Every part of a path is
opened by itself with O_NOFOLLOW (open(2)): Python has no call of openat2, whose RESOLVE_NO_SYMLINKS says the
same. What another user owns was put there by that user, and only its owner may write what is made here.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shakedown.records.reading import LARGEST_OUTPUT, open_file
from shakedown.records.writing import append_whole, aside_of, lock

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL, _OWN = 0o755, 0o644  # a group that may write there could take the place of the jobs' user
_TRIES = 3  # NFS: a file that another host replaces is stale once, and is there when it is opened again


class Share:
    """The folder of a run; paths are absolute, and lie below it.

    Everything here raises OSError: a part of the path is a link, no folder or another user's, the file is not
    plain or too large, or the system refuses. ValueError: a path that does not lie below the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def _folder(self, path: Path, *, make: bool = False) -> Iterator[int]:
        at = os.open(self._root, _FOLDER)
        try:
            for part in path.relative_to(self._root).parts:
                if part == "..":
                    raise ValueError(f"{path} leaves the run")
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, _ALL, dir_fd=at)
                inner = os.open(part, _FOLDER, dir_fd=at)
                os.close(at)
                at = inner
                self._refuse_of_others(at, path)
            yield at
        finally:
            os.close(at)

    @contextmanager
    def open(self, path: Path, flags: int, mode: int = _OWN) -> Iterator[int]:
        """Open a plain file with open(2)'s flags; give its descriptor."""
        with self._folder(path.parent) as folder:
            file = open_file(path.name, flags & ~os.O_TRUNC, mode, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(f"{path} is not a plain file")
            self._refuse_of_others(file, path)
            if flags & os.O_TRUNC:
                os.ftruncate(file, 0)
            yield file
        finally:
            os.close(file)

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, where they are missing."""
        with self._folder(path, make=True):
            pass

    def names(self, path: Path) -> list[str]:
        """Return what a folder holds, sorted."""
        with self._folder(path) as folder:
            return sorted(os.listdir(folder))  # noqa: PTH208  (a descriptor has no path)

    def read(self, path: Path, most: int = LARGEST_OUTPUT) -> bytes:
        """Return what a file of at most so many bytes holds."""
        for left in reversed(range(_TRIES)):
            try:
                with self.open(path, os.O_RDONLY) as file, os.fdopen(os.dup(file), "rb") as content:
                    _refuse_above(file, path, most)
                    return content.read(most)
            except OSError as error:
                if error.errno != errno.ESTALE or not left:
                    raise
        raise AssertionError

    def write(self, path: Path, content: bytes, mode: int = _OWN) -> None:
        """Write a file that is either the old or the new one; a link of its name is replaced."""
        aside = aside_of(path.name)
        with self._folder(path.parent) as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with os.fdopen(open_file(aside, flags, mode, dir_fd=folder), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(aside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
                with suppress(OSError):  # as `settle`
                    os.fsync(folder)
            finally:
                self._unlink(aside, folder)

    def remove(self, path: Path) -> None:
        """Remove a file, or the link that has its name, if it is there."""
        with self._folder(path.parent) as folder:
            self._unlink(path.name, folder)

    def copy(self, source: Path, target: Path) -> None:
        """Copy one file of the run to another place in it."""
        self.write(target, self.read(source))

    def append(self, path: Path, line_after: Callable[[list[bytes]], bytes]) -> None:
        """Append a line, whole or not at all, alone; what a line before left half written is taken away.

        Args:
            path: the file, made if need be.
            line_after: returns the line without its end for the lines that are there.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self.open(path, flags) as file, os.fdopen(os.dup(file), "rb") as chain:
            lock(file)
            _refuse_above(file, path, LARGEST_OUTPUT)
            content = chain.read()
            append_whole(file, line_after(content[: content.rfind(b"\n") + 1].splitlines()))
        if not content:
            with self._folder(path.parent) as folder, suppress(OSError):  # the new name, as `settle`
                os.fsync(folder)

    def _refuse_of_others(self, file: int, path: Path) -> None:
        ours = {self._root.stat().st_uid, os.geteuid()}  # a server may map ours to another
        if (owner := os.fstat(file).st_uid) not in ours:
            raise OSError(errno.EPERM, f"belongs to user {owner}, who is not the jobs'", str(path))

    @staticmethod
    def _unlink(name: str, folder: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _refuse_above(file: int, path: Path, most: int) -> None:
    if os.fstat(file).st_size > most:
        raise OSError(f"{path} is larger than {most} bytes")
