"""The one error the lab raises on purpose."""

from __future__ import annotations


class LabError(Exception):
    """Something the user can mend: bad input, a missing package, no disk space, a guest that does not boot.

    ``what`` says what is wrong and ``fix`` how to mend it, together in one line.  ``detail`` may hold further
    lines (a console's tail) that the command prints above that line.
    """

    exit_status = 2

    def __init__(self, what: str, *, fix: str = "", detail: str = "") -> None:
        self.what = " ".join(what.split())
        self.fix = " ".join(fix.split())
        self.detail = detail
        super().__init__(f"{self.what}; {self.fix}" if self.fix else self.what)
