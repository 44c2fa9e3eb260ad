"""Processes that outlive the command that started them, known by id and start time.

A process id alone is not enough: the kernel uses it again, and a recycled one must never be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import host
from lab.errors import LabError


@dataclass(frozen=True)
class Process:
    """A process by id and by its start in clock ticks since boot (field 22 of proc(5) /proc/pid/stat)."""

    pid: int
    started: int

    def alive(self, proc: Path = Path("/proc")) -> bool:
        """Whether this very process still runs; a zombie does not (its parent may never reap it)."""
        found = stat_of(self.pid, proc)
        return found is not None and found[1] == self.started and found[0] not in "ZX"

    def rss_bytes(self) -> int:
        """Resident memory, 0 when the process is gone."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")


def stat_of(pid: int, proc: Path = Path("/proc")) -> tuple[str, int] | None:
    """State letter and start time of a process, or None."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The command name stands in parentheses and may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


# Handles of our own children, kept so that the interpreter does not complain about running ones.
_children: list[subprocess.Popen[bytes]] = []


def start(argv: Sequence[str], log: Path) -> Process:
    """Start a program in a session of its own, so that Ctrl-C in the terminal does not reach it."""
    with log.open("ab") as output:
        handle = subprocess.Popen(
            [host.program(argv[0]), *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    found = stat_of(handle.pid)
    if found is None:
        raise LabError(f"{argv[0]} ended at once", fix=f"see {log}")
    _children.append(handle)
    return Process(handle.pid, found[1])


def child_of(parent: Process) -> Process | None:
    """The one child of a process, or None while it has none."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent.pid:
            return Process(int(folder.name), int(fields[19]))
    return None


def end(processes: Iterable[Process], *, patience_s: float = 5.0, at_once: bool = False) -> list[Process]:
    """End these processes, politely first unless ``at_once``; return those that would not go."""
    left = [process for process in processes if process.alive()]
    for number in (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            _signal(process, number)
        deadline = time.monotonic() + patience_s
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            _children[:] = [child for child in _children if child.poll() is None]
            left = [process for process in left if process.alive()]
    return left


def _signal(process: Process, number: signal.Signals) -> None:
    """Signal a process through a descriptor that cannot come to mean another one."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
