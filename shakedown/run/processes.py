"""Processes of this machine, read from /proc, and which of them is the playbook that started us."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from shakedown.records.errors import BadInput

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

    Raises:
        BadInput: this machine has no Linux /proc.
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

    Raises:
        BadInput: there is none.
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

    Raises:
        BadInput: one of them is another user's.
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
