"""A lab's machines at work: starting their QEMUs, waiting for them, commands inside them, control of them.

The lowest layer that does anything; :mod:`lab.snapshots` and :mod:`lab.planting` stand on it, and
:class:`lab.cluster.Lab` is what others use.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from lab import faults, processes, qemu, remote, state
from lab.errors import LabError
from lab.image import Image, Progress
from lab.paths import LabPaths
from lab.qmp import Qmp
from lab.sites import topology_of
from lab.topology import Machine

# Seconds until a guest must answer: emulated on two busy cores four machines need one to two minutes.
_BOOT_PATIENCE_S = 240.0
_BOOT_PATIENCE_PER_MACHINE_S = 30.0

T = TypeVar("T")


def silent(_line: str) -> None:
    """Ignore progress messages."""


class Machines:
    """The machines of one lab: where its files are, what is known of it, and what it looks like."""

    def __init__(self, paths: LabPaths, current: state.State, progress: Progress) -> None:
        self.paths = paths
        self.state = current
        self.progress = progress
        self.topology = topology_of(current.site, current.nodes)
        self.image = Image(Path(current.image))

    def guest(self, name: str) -> state.Guest:
        """What runs of a machine; :class:`LabError` when the lab has none of that name."""
        self.topology.machine(name)
        return self.state.guests[name]

    def save_state(self) -> None:
        """Write the state file."""
        self.state.save(self.paths.state)

    def reload_state(self) -> None:
        """Read the state file: another command may have changed it."""
        current = state.load(self.paths.state)
        if current is None:
            raise LabError(f"lab {self.paths.name} is not up any more", fix="run python -m lab up")
        self.state = current

    # -- starting -------------------------------------------------------------------------------------------

    def start(self, machine: Machine, port: int, *, load: str = "") -> None:
        """Start a machine's QEMU, booting, or paused in the snapshot ``load``."""
        for use in (*(nic.name for nic in machine.nics), "console", "clock", "qmp"):
            self.paths.socket(f"{machine.name}.{use}").unlink(missing_ok=True)
        argv = qemu.guest_argv(
            self.paths,
            self.topology,
            machine,
            self.image,
            ssh_port=port,
            accelerator=qemu.accelerator(self.state.accelerator),
            load=load,
        )
        self.paths.qemu_log(machine.name).unlink(missing_ok=True)
        started = processes.start(argv, self.paths.qemu_log(machine.name))
        self.state.guests[machine.name] = state.Guest(started, port)
        self.save_state()

    def off(self) -> list[Machine]:
        """Machines whose QEMU is gone."""
        return [m for m in self.topology.machines if not self.guest(m.name).process.alive()]

    def boot_what_is_off(self) -> list[str]:
        """Boot machines whose QEMU is gone, with their disks as they left them; returns their names."""
        missing = self.off()
        for machine in missing:
            self.progress(f"{machine.name} is off; booting it")
            self.start(machine, self.guest(machine.name).ssh_port)
            self._forget_faults_of_hardware(machine)
        if missing:
            self.wait_for_ssh(missing)
            self.save_state()
        return [machine.name for machine in missing]

    def _forget_faults_of_hardware(self, machine: Machine) -> None:
        """A QEMU started anew has power and every cable plugged in."""
        self.state.faults = {
            key: fault
            for key, fault in self.state.faults.items()
            if key.split()[0] != machine.name or fault not in {faults.NO_POWER, faults.LINK_DOWN}
        }

    def wait_for_ssh(self, machines: Sequence[Machine]) -> None:
        """Wait until every machine answers; :class:`LabError` with its console for one that does not."""
        started = time.monotonic()
        patience = _BOOT_PATIENCE_S + _BOOT_PATIENCE_PER_MACHINE_S * len(machines)

        def wait(machine: Machine, stop: threading.Event) -> None:
            guest = self.guest(machine.name)
            while not stop.is_set():
                if not guest.process.alive():
                    raise self.boot_error(machine, "QEMU ended")
                if time.monotonic() - started > patience:
                    raise self.boot_error(machine, f"no answer over SSH within {patience:.0f} s")
                if _ssh_banner(guest.ssh_port) and remote.answers(
                    self.paths, self.image, guest.ssh_port, ["true"], timeout_s=30
                ):
                    self.progress(f"{machine.name} answers")
                    return
                stop.wait(0.3)

        parallel(wait, machines)

    def boot_error(self, machine: Machine, what: str) -> LabError:
        """What kept a machine from starting, with the last lines of its console."""
        said = remote.tail(self.paths.qemu_log(machine.name), 3)
        if "Could not set up host forwarding" in said:
            return LabError(
                f"port {self.guest(machine.name).ssh_port} for {machine.name} was taken by another program",
                fix="run python -m lab up again",
            )
        shown = remote.tail(self.paths.console_log(machine.name), 20)
        return LabError(
            f"{machine.name} did not boot: {what}{'; QEMU said: ' + said if said else ''}",
            fix=f"see {self.paths.console_log(machine.name)}",
            detail=f"last lines of {machine.name}'s console:\n{shown}" if shown else "",
        )

    # -- using ----------------------------------------------------------------------------------------------

    def ssh_argv(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """The SSH command line for a machine, for interactive use."""
        return remote.ssh_argv(self.paths, self.image, self.guest(name).ssh_port, command)

    def ssh(
        self, name: str, command: Sequence[str], *, timeout_s: float, input_text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine as root; see :meth:`lab.cluster.Lab.ssh`."""
        return remote.run(name, command, self.ssh_argv, timeout_s=timeout_s, input_text=input_text)

    def monitor(self, name: str, *, timeout_s: float = 60.0) -> Qmp:
        """A control connection to a machine's QEMU."""
        self.topology.machine(name)
        return Qmp(self.paths.socket(f"{name}.qmp"), timeout_s=timeout_s)


def cut_power(lab: Machines, name: str) -> None:
    """End a machine's QEMU at once. Raises LabError if it does not end."""
    process = lab.guest(name).process
    if processes.end([process], at_once=True):
        raise LabError(f"{name}'s QEMU (process {process.pid}) does not end", fix="see what holds it")


def _ssh_banner(port: int) -> bool:
    """Whether an SSH server greets; cheaper than a whole connection while a guest still boots."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def parallel(work: Callable[[T, threading.Event], None], items: Sequence[T]) -> None:
    """Do ``work`` on all items at once; the first failure (or Ctrl-C) tells the others to stop."""
    if not items:
        return
    stop_all = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        try:
            running = [pool.submit(work, item, stop_all) for item in items]
            for done in concurrent.futures.as_completed(running):
                done.result()
        finally:
            stop_all.set()


@contextlib.contextmanager
def exclusive(paths: LabPaths, progress: Progress) -> Iterator[None]:
    """One command at a time changes a lab."""
    with paths.lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another command works on lab {paths.name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
