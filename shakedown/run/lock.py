"""Who holds the cluster, and whether that process lives."""

import fcntl
import getpass
import hashlib
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from shakedown.records.base import Document, Name, to_json
from shakedown.records.program import ended, status_of
from shakedown.records.reading import BadInput, ExitStatus, read_as, read_record
from shakedown.records.writing import lock_file, write_aside

PROC = Path("/proc")
_PLAYBOOK = "ansible-playbook"
_STATE, _PARENT, _START = 0, 1, 19  # fields of /proc/PID/stat after the name, proc_pid_stat(5)


def host() -> str:
    """Return this machine's name and what tells it from another one of that name."""
    try:
        machine_id = Path("/etc/machine-id").read_bytes()
    except OSError:
        machine_id = b""
    # machine-id(5): applications must not show it as it is.
    return f"{socket.gethostname()}:{hashlib.sha256(b'shakedown ' + machine_id).hexdigest()[:12]}"


def boot() -> str:
    """Return what differs after a reboot, and in another container of the same machine.

    Raises BadInput: this machine has no Linux /proc.
    """
    try:
        boot_id = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot_id} {(PROC / 'self/ns/pid').readlink()}"
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}", fix="start this on Linux") from None


def start_ticks(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] in "ZX" else int(fields[_START])


def argv_of(pid: int) -> list[str]:
    """Return a process's arguments; none if it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def with_argument(argument: str) -> list[int]:
    """Return the processes, but not this one, that were started with exactly this argument."""
    found = (int(path.name) for path in PROC.iterdir() if path.name.isdecimal())
    return sorted(
        pid for pid in found if pid != os.getpid() and argument in argv_of(pid) and start_ticks(pid)
    )


def playbook_above() -> int:
    """Return the process of the ansible-playbook that started this program, the nearest one.

    Raises BadInput: there is none.
    """
    pid = os.getppid()
    while pid > 1 and not _is_playbook(argv_of(pid)):
        pid = _parent(pid)
    if pid <= 1:
        raise BadInput(
            "no ansible-playbook started this",
            fix="start the run as `ansible-playbook playbooks/acceptance.yml`",
        )
    # A worker is a copy of the playbook's process, with the same arguments.
    while argv_of(_parent(pid)) == argv_of(pid):
        pid = _parent(pid)
    return pid


def end(pids: Iterable[int], *, patience_s: float = 60) -> None:
    """End processes: SIGTERM, and SIGKILL for what is left after `patience_s`.

    Raises BadInput: one of them is another user's.
    """
    started = {pid: ticks for pid in pids if (ticks := start_ticks(pid)) is not None}
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid, ticks in started.items():
            if start_ticks(pid) == ticks:
                _signal(pid, sign)
        deadline = time.monotonic() + patience_s
        while any(start_ticks(pid) == ticks for pid, ticks in started.items()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        else:
            return
    raise BadInput(f"processes {sorted(started)} do not end", fix="look at them with ps")


def _signal(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
    except PermissionError:
        raise BadInput(f"process {pid} is another user's", fix="ask that user to end it") from None


def _is_playbook(argv: list[str]) -> bool:
    return any(Path(word).name == _PLAYBOOK for word in argv[:2])


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold brackets and spaces itself.
    return text.rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return 0 if fields is None else int(fields[_PARENT])


# Whoever changes the file holds a mutex beside it, so that what was read is still so when it is written.

LOCK = "run.lock"
_TRIES, _EVERY_S = 20, 0.25  # for the mutex
Word = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x20-\x7e]+$")]


class Holder(Document):
    """Who holds a submit host: a run, and the ansible-playbook that makes it."""

    run: Name
    host: Word  # the controller: its name and a digest of its machine-id
    boot: Word  # its boot id and process namespace: a process is named by its number within these
    pid: int = Field(gt=0)  # of ansible-playbook
    start_ticks: int = Field(ge=0)  # when that was started, after boot; the number alone may be used again
    user: Word
    since: Word  # RFC 3339, UTC
    ticket: Word  # tells this holder from every other

    @property
    def controller(self) -> str:
        """The controller's name, for people."""
        return self.host.partition(":")[0]


def parse_holder(text: str) -> Holder:
    """Return a holder as its controller printed it. Raises BadInput."""
    return read_as(Holder, text)


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

        Raises BadInput: another process is about to change it, or the folder cannot be written.
        """
        try:
            mutex = lock_file(self.file.with_name(f".{LOCK}.mutex"))
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
        """Return who holds it; None where it is free. Raises BadInput: it is no lock that we wrote."""
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

        Raises BadInput: it was taken at this moment, past the mutex.
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


def mine(run: str) -> Holder:
    """Return this controller's holder of a run. Raises BadInput."""
    pid = playbook_above()
    ticks = start_ticks(pid)
    if ticks is None:
        raise BadInput("the ansible-playbook that started this has ended")
    return Holder(
        run=run,
        host=host(),
        boot=boot(),
        pid=pid,
        start_ticks=ticks,
        user=getpass.getuser(),
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        ticket=secrets.token_hex(8),
    )


def main() -> int:
    """Answer one question; return the exit status."""
    question, text = sys.argv[1:] if len(sys.argv) == 3 else ("", "")
    if question == "mine":
        return status_of(lambda: print(mine(text).model_dump_json(by_alias=True)))
    if question == "look":
        return status_of(lambda: print(playbook_state(parse_holder(text))))
    print("usage: python -m shakedown.run.lock mine RUN | look JSON", file=sys.stderr)
    return ExitStatus.BAD_INPUT


if __name__ == "__main__":
    ended(main)
