"""The run that is under way on a submit host: one file there, so that two cannot measure at once.

Whoever changes the file holds a mutex beside it, so that what was read is still so when it is written.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from shakedown.records.base import Name, Record
from shakedown.records.errors import BadInput
from shakedown.records.reading import read_record
from shakedown.records.refusals import refusal
from shakedown.run.folder import to_json, write_aside
from shakedown.run.processes import boot, host, start_ticks

LOCK = "run.lock"
_TRIES, _EVERY_S = 20, 0.25  # for the mutex
Word = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x20-\x7e]+$")]


class Holder(Record):
    """Who holds a submit host: a run, and the ansible-playbook that makes it."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: Name
    host: Word  # the controller: its name and a digest of its machine-id
    boot: Word  # its boot id and process namespace: a process is named by its number within these
    pid: int = Field(gt=0)  # of ansible-playbook
    start_ticks: int = Field(ge=0)  # when that was started, after boot; the number alone may be used again
    user: Word
    since: Word  # RFC 3339, UTC
    ticket: Word  # tells this holder from every other

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @property
    def controller(self) -> str:
        """The controller's name, for people."""
        return self.host.partition(":")[0]


def parse_holder(text: str) -> Holder:
    """Return a holder as its controller printed it. Raises BadInput."""
    try:
        return Holder.model_validate_json(text)
    except ValidationError as error:
        raise refusal(error, Holder) from None


def playbook_state(holder: Holder) -> Literal["alive", "dead", "elsewhere"]:
    """Return whether the holder's ansible-playbook runs; `elsewhere` where that cannot be seen from here."""
    if holder.host != host():
        return "elsewhere"
    here, there = boot().split(), holder.boot.split()
    if here[0] != there[0]:
        return "dead"  # this machine was booted since
    if here != there:
        return "elsewhere"
    return "alive" if start_ticks(holder.pid) == holder.start_ticks else "dead"


class RunLock:
    """The lock of one submit host. `home` is the stage's folder there."""

    def __init__(self, home: Path) -> None:
        self.file = home / LOCK

    @contextmanager
    def mutex(self) -> Iterator[None]:
        """Keep every other process from changing the lock.

        Raises:
            BadInput: another process is about to change it, or the folder cannot be written.
        """
        try:
            mutex = self.file.with_name(f".{LOCK}.mutex").open("a")
        except OSError as error:
            raise BadInput(f"cannot be written: {error.strerror}", file=self.file) from None
        with mutex:
            for left in range(_TRIES, -1, -1):
                try:
                    fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not left:
                        raise BadInput(
                            "another start is taking it at this moment", fix="try again", file=self.file
                        ) from None
                    time.sleep(_EVERY_S)
            yield

    def holder(self) -> Holder | None:
        """Return who holds it; None where it is free.

        Raises:
            BadInput: it is no lock that we wrote.
        """
        if not self.file.exists() and not self.file.is_symlink():
            return None
        try:
            return read_record(self.file, Holder)
        except BadInput as error:
            raise BadInput(
                f"is no lock of a run: {error.what}",
                fix="if no run is under way there, remove it",
                file=self.file,
            ) from None

    def take(self, holder: Holder, *, over: Holder | None) -> None:
        """Take it, free or `over` another holder; only within `mutex`.

        Raises:
            BadInput: it was taken at this moment, past the mutex.
        """
        if over is not None:
            write_aside(self.file, to_json(holder))
            return
        aside = self.file.with_name(f".{LOCK}.{holder.ticket}")
        write_aside(aside, to_json(holder))
        try:
            os.link(aside, self.file)
        except FileExistsError:
            raise BadInput("was taken at this moment", fix="start again", file=self.file) from None
        finally:
            aside.unlink()

    def release(self, ticket: str) -> bool:
        """Give it back if it is still this holder's; return whether it was."""
        with self.mutex():
            holder = self.holder()
            if holder is None or holder.ticket != ticket:
                return False
            self.file.unlink()
            return True
