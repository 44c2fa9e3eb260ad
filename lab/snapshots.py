"""Saving all machines at one moment, and going back to it."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator

from lab import faults, processes, remote
from lab.errors import LabError
from lab.machines import Machines, parallel
from lab.qmp import Qmp
from lab.topology import Machine

_RESTORE_PATIENCE_S = 60.0
_CLOCK_ROUND_TRIP_S = 0.2
_CLOCK_TRIES = 3
# EXIT_NOTINSTALLED of systemctl(1).
_NO_SUCH_UNIT = 5
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


def save(lab: Machines, tag: str) -> None:
    """Save memory and disk of every machine under ``tag``, replacing an older snapshot of that name."""
    if not _TAG.fullmatch(tag):
        raise LabError(f"{tag!r} is no tag", fix="use a letter and up to 31 letters, digits, '-' or '_'")
    off = [machine.name for machine in lab.off()]
    if off:
        raise LabError(f"{', '.join(off)} is off, cannot save", fix="run python -m lab fault clear")
    # Forgotten first: a save that fails half-way must not leave a tag that names different moments.
    lab.state.snapshots.pop(tag, None)
    lab.save_state()

    def savevm(item: tuple[str, Qmp], _stop: threading.Event) -> None:
        name, monitor = item
        said = monitor.human(f"savevm {tag}")
        if said:
            raise LabError(f"saving {name}: {said}")

    with _paused(lab) as monitors:
        parallel(savevm, list(monitors.items()))
    lab.state.snapshots[tag] = dict(lab.state.faults)
    lab.save_state()


def restore(lab: Machines, tag: str) -> None:
    """Put every machine back to the moment of :func:`save`, faults included, and set its clock.

    Every QEMU is started anew with the snapshot.  Loading one into a running emulator makes the guest's time
    stamp counter, and with it every timer, jump ahead by the time since the snapshot was taken.
    """
    if tag not in lab.state.snapshots:
        known = ", ".join(lab.state.snapshots) or "none yet"
        raise LabError(f"no snapshot {tag!r}", fix=f"saved in this lab: {known}")
    remote.close_connections(lab.paths)
    left = processes.end([guest.process for guest in lab.state.guests.values()])
    if left:
        raise LabError(f"process {left[0].pid} does not end", fix="see what holds it")
    for machine in lab.topology.machines:
        lab.start(machine, lab.guest(machine.name).ssh_port, load=tag)
    _wait_until_loaded(lab)
    lab.state.faults = dict(lab.state.snapshots[tag])
    lab.save_state()
    with _paused(lab) as monitors:
        # A cable's state belongs to QEMU, not to the guest's memory; all else is in the snapshot.
        for key in [key for key, fault in lab.state.faults.items() if fault == faults.LINK_DOWN]:
            for name, nic in lab.topology.port(*key.split()).pulled:
                monitors[name].command("set_link", name=f"nic-{nic}", up=False)

    def on_time(machine: Machine, stop: threading.Event) -> None:
        deadline = time.monotonic() + _RESTORE_PATIENCE_S
        while time.monotonic() < deadline and not stop.is_set():
            if set_clock(lab, machine):
                return
        raise LabError(
            f"{machine.name} does not answer after the restore", fix="run python -m lab down and up"
        )

    parallel(on_time, lab.topology.machines)
    # To slurmctld no node has answered since the snapshot was taken: at its next look it would call them
    # down. One that starts anew asks them first. Where none is installed yet, there is nothing to restart.
    restarted = lab.ssh("head", ["systemctl", "try-restart", "slurmctld"], timeout_s=120)
    if restarted.returncode not in (0, _NO_SUCH_UNIT):
        raise LabError(
            f"slurmctld does not restart: {restarted.stderr.strip()}", fix="see journalctl on head"
        )


def set_clock(lab: Machines, machine: Machine) -> bool:
    """Tell a guest the time over its second serial line; its own clock stands at the snapshot's.

    The clock is late by at most the round trip, so a slow answer (a first one has to load the program) is
    worth asking again.
    """
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.settimeout(10)
        line.connect(str(lab.paths.socket(f"{machine.name}.clock")))
        answers = line.makefile("rb")
        for _ in range(_CLOCK_TRIES):
            asked = time.time()
            line.sendall(f"{asked:.3f}\n".encode())
            if answers.readline().strip() != b"set":
                return False
            if time.time() - asked < _CLOCK_ROUND_TRIP_S:
                break
        return True
    return False


def _wait_until_loaded(lab: Machines) -> None:
    """Wait until every QEMU takes commands, which it does once its snapshot is loaded."""
    deadline = time.monotonic() + _RESTORE_PATIENCE_S
    for machine in lab.topology.machines:
        while True:
            try:
                lab.monitor(machine.name).close()
                break
            except LabError:
                if time.monotonic() > deadline or not lab.guest(machine.name).process.alive():
                    raise lab.boot_error(machine, "the snapshot did not load") from None
                time.sleep(0.05)


@contextlib.contextmanager
def _paused(lab: Machines) -> Iterator[dict[str, Qmp]]:
    """Control connections to every machine, all stopped meanwhile and all running afterwards."""
    with contextlib.ExitStack() as stack:
        monitors = {
            m.name: stack.enter_context(lab.monitor(m.name, timeout_s=120)) for m in lab.topology.machines
        }
        try:
            for monitor in monitors.values():
                monitor.command("stop")
            yield monitors
        finally:
            for monitor in monitors.values():
                monitor.command("cont")
