"""The one way in which bad input is refused: a single line naming what, where and how to mend it."""

from __future__ import annotations

import errno
from enum import IntEnum
from pathlib import Path

from shakedown.records.wording import printable


class ExitStatus(IntEnum):
    """Exit status of every command."""

    PASS = 0
    FAIL = 1
    BAD_INPUT = 2  # bad input, or an error of our own
    INCOMPLETE = 3  # inconclusive, or something was not run


class BadInput(Exception):  # noqa: N818  (it names the input, which is at fault, not an error of ours)
    """Input that cannot be used. The command line prints it as one line and exits with status 2.

    Args:
        what: what is wrong, in words that quote the offending value.
        fix: what the user should do about it.
        file: the file the input came from, if any.
        line: the 1-based line in that file, if known.
    """

    def __init__(
        self, what: str, *, fix: str = "", file: str | Path | None = None, line: int | None = None
    ) -> None:
        self.what, self.fix, self.file, self.line = what, fix, file, line
        super().__init__(str(self))

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        fix = f" -- {self.fix}" if self.fix else ""
        # Outside text may hold newlines or terminal escapes; the promise is one printable line.
        text = f"{where}{self.what}{fix}"
        return printable(text)


def said_by_system(error: OSError) -> str:
    """Return what the system says of a file in one line, with the way out where its disk or quota is full."""
    words = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
    if error.filename and error.errno in (errno.ENOSPC, errno.EDQUOT):
        words += " -- make room there, then start it again"
    return printable(words)
