"""A lab as an object: start it, use it, plant faults, save and restore it, stop it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from lab import accelerator, faults, host, processes, qemu, remote, state
from lab.errors import LabError
from lab.image import Image, Progress, ensure_image
from lab.paths import LabPaths, default_name, lab_paths
from lab.qmp import Qmp
from lab.topology import DEFAULT_NODES, LEAF, Machine, Topology

# An overlay holds the guest's writes and every snapshot its memory.
_SPACE_PER_MACHINE_BYTES = 1_000_000_000
# Seconds until a guest must answer: emulated on two busy cores four machines need about 45.
_BOOT_PATIENCE_S = 240.0
_BOOT_PATIENCE_PER_MACHINE_S = 30.0
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")

T = TypeVar("T")


def _silent(_line: str) -> None:
    """Progress that nobody wants to see."""


@dataclass(frozen=True)
class MachineStatus:
    """One machine as ``status`` shows it."""

    name: str
    role: str
    running: bool
    mgmt_ip: str
    ssh_port: int
    pid: int
    memory_mib: int
    fault: str


@dataclass(frozen=True)
class LabStatus:
    """A lab as ``status`` shows it; ``machines`` is empty when it is down."""

    name: str
    up: bool
    nodes: int
    accelerator: str
    run_folder: str
    disk_folder: str
    snapshots: tuple[str, ...]
    machines: tuple[MachineStatus, ...]

    def json(self) -> dict[str, object]:
        return {"schema": 1, **asdict(self)}


class Lab:
    """A running lab.  Get one from :meth:`up` or :meth:`open`."""

    def __init__(self, paths: LabPaths, current: state.State, progress: Progress = _silent) -> None:
        self.paths = paths
        self._state = current
        self._progress = progress
        self.topology = Topology(current.nodes)
        self.image = Image(Path(current.image))

    @property
    def name(self) -> str:
        return self.paths.name

    # -- starting and stopping ------------------------------------------------------------------------------

    @classmethod
    def up(
        cls, nodes: int | None = None, name: str | None = None, *, progress: Progress = _silent
    ) -> Lab:
        """Start the lab, or return it when it is up already.

        Raises :class:`LabError` for anything the user can mend.  Whatever goes wrong, no process is left.
        """
        paths = lab_paths(name or default_name())
        host.require(host.RUN_PROGRAMS)
        paths.create()
        with _exclusive(paths, progress):
            current = state.load(paths.state)
            if current is not None and current.ready and current.guests and current.hub and current.hub.alive():
                if nodes is not None and nodes != current.nodes:
                    raise LabError(
                        f"lab {paths.name} is up with {current.nodes} compute nodes",
                        fix="run python -m lab down first",
                    )
                lab = cls(paths, current, progress)
                lab._boot_missing()
                progress(f"lab {paths.name} is up already")
                return lab
            topology = Topology(DEFAULT_NODES if nodes is None else nodes)
            if current is not None:
                progress("cleaning up after a lab that did not end well")
                _stop(paths, current)
            return cls._start(paths, topology, progress)

    @classmethod
    def _start(cls, paths: LabPaths, topology: Topology, progress: Progress) -> Lab:
        image = ensure_image(progress)
        host.require_space(paths.disks, _SPACE_PER_MACHINE_BYTES * len(topology.machines), "the lab")
        chosen = accelerator.choose(image)
        current = state.State(paths.name, topology.nodes, str(image.folder), chosen.name)
        lab = cls(paths, current, progress)
        how = "hardware virtualisation" if chosen is qemu.KVM else "emulation"
        progress(f"starting {len(topology.machines)} machines with {how}")
        try:
            for stale in qemu.sockets(topology):
                paths.socket(stale).unlink(missing_ok=True)
            for machine in topology.machines:
                paths.console_log(machine.name).unlink(missing_ok=True)
                paths.qemu_log(machine.name).unlink(missing_ok=True)
                _make_overlay(paths, image, machine)
            ports = remote.ports_free(len(topology.machines))
            remote.write_known_hosts(paths, image, ports)
            current.hub = processes.start(qemu.hub_argv(paths, topology), paths.qemu_log(qemu.HUB))
            current.save(paths.state)
            for machine, port in zip(topology.machines, ports, strict=True):
                lab._start_guest(machine, port)
            lab._wait_for_ssh(topology.machines)
            current.ready = True
            current.save(paths.state)
        except BaseException:
            _stop(paths, current)
            raise
        return lab

    @classmethod
    def open(cls, name: str | None = None, *, progress: Progress = _silent) -> Lab:
        """The running lab of that name, or :class:`LabError`."""
        paths = lab_paths(name or default_name())
        current = state.load(paths.state)
        if current is None or not current.ready or not any(p.alive() for p in current.processes()):
            raise LabError(f"lab {paths.name} is not up", fix="run python -m lab up")
        return cls(paths, current, progress)

    def down(self) -> None:
        """End every process of the lab and remove its disks."""
        stop(self.name)

    def _start_guest(self, machine: Machine, port: int, *, load: str = "") -> None:
        for nic in machine.nics:
            self.paths.socket(f"{machine.name}.{nic.name}").unlink(missing_ok=True)
        argv = qemu.guest_argv(
            self.paths,
            self.topology,
            machine,
            self.image,
            ssh_port=port,
            accelerator=qemu.KVM if self._state.accelerator == qemu.KVM.name else qemu.TCG,
            load=load,
        )
        started = processes.start(argv, self.paths.qemu_log(machine.name))
        self._state.guests[machine.name] = state.Guest(started, port)
        self._state.save(self.paths.state)

    def _boot_missing(self) -> list[str]:
        """Boot machines whose process is gone; their disks are as they left them."""
        missing = [m for m in self.topology.machines if not self._guest(m.name).process.alive()]
        for machine in missing:
            self._progress(f"{machine.name} is off; booting it")
            self._start_guest(machine, self._guest(machine.name).ssh_port)
            self._state.faults.pop(machine.name, None)
        if missing:
            self._wait_for_ssh(missing)
            self._state.save(self.paths.state)
        return [machine.name for machine in missing]

    def _wait_for_ssh(self, machines: Sequence[Machine]) -> None:
        """Wait until every machine answers; a machine that does not is reported with its console."""
        started = time.monotonic()
        patience = _BOOT_PATIENCE_S + _BOOT_PATIENCE_PER_MACHINE_S * len(machines)

        def wait(machine: Machine, stop: threading.Event) -> None:
            guest = self._guest(machine.name)
            while not stop.is_set():
                if not guest.process.alive():
                    raise self._boot_error(machine, "QEMU ended")
                if time.monotonic() - started > patience:
                    raise self._boot_error(machine, f"no answer over SSH within {patience:.0f} s")
                if _ssh_banner(guest.ssh_port) and remote.answers(
                    self.paths, self.image, guest.ssh_port, ["true"], timeout_s=30
                ):
                    self._progress(f"{machine.name} answers")
                    return
                stop.wait(0.3)

        _parallel(wait, machines)

    def _boot_error(self, machine: Machine, what: str) -> LabError:
        said = remote.tail(self.paths.qemu_log(machine.name), 3)
        if "Could not set up host forwarding" in said:
            return LabError(
                f"port {self._guest(machine.name).ssh_port} for {machine.name} was taken by another program",
                fix="run python -m lab up again",
            )
        shown = remote.tail(self.paths.console_log(machine.name), 20)
        return LabError(
            f"{machine.name} did not boot: {what}{'; QEMU said: ' + said if said else ''}",
            fix=f"see {self.paths.console_log(machine.name)}",
            detail=f"last lines of {machine.name}'s console:\n{shown}" if shown else "",
        )

    # -- using ----------------------------------------------------------------------------------------------

    def _guest(self, name: str) -> state.Guest:
        self.topology.machine(name)
        return self._state.guests[name]

    def ssh_argv(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """The SSH command line for a machine, for interactive use."""
        return remote.ssh_argv(self.paths, self.image, self._guest(name).ssh_port, command)

    def ssh(
        self, name: str, command: Sequence[str], *, timeout_s: float = 120.0, input_text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine as root; its exit status is in the result (255: SSH itself failed).

        Raises :class:`LabError` when it takes longer than ``timeout_s`` or the machine is unknown.
        """
        if not command:
            raise LabError("no command given", fix="name one, or use ssh_argv for a shell")
        options: dict[str, object] = {"stdin": subprocess.DEVNULL} if input_text is None else {"input": input_text}
        try:
            return subprocess.run(  # type: ignore[call-overload,no-any-return]
                self.ssh_argv(name, command),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout_s,
                **options,
            )
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{command[0]} on {name} took longer than {timeout_s:g} s") from error

    def status(self) -> LabStatus:
        return status(self.name)

    # -- snapshots ------------------------------------------------------------------------------------------

    def save(self, tag: str) -> None:
        """Save memory and disk of every machine at one moment, under ``tag`` (replacing an older one)."""
        if not _TAG.fullmatch(tag):
            raise LabError(f"{tag!r} is no tag", fix="use a letter, then up to 31 letters, digits, '-' or '_'")
        with _exclusive(self.paths, self._progress):
            self._reload()
            self._require_running("save")
            with self._paused() as monitors:
                self._state.snapshots.pop(tag, None)
                self._state.save(self.paths.state)
                _parallel(lambda item, _stop: _human(item, f"savevm {tag}"), list(monitors.items()))
            self._state.snapshots[tag] = dict(self._state.faults)
            self._state.save(self.paths.state)

    def restore(self, tag: str) -> None:
        """Put every machine back to the moment of ``save(tag)``, faults included, and set its clock."""
        with _exclusive(self.paths, self._progress):
            self._reload()
            if tag not in self._state.snapshots:
                known = ", ".join(self._state.snapshots) or "none yet"
                raise LabError(f"no snapshot {tag!r}", fix=f"saved in this lab: {known}")
            gone = [m for m in self.topology.machines if not self._guest(m.name).process.alive()]
            for machine in gone:
                self._start_guest(machine, self._guest(machine.name).ssh_port, load=tag)
            self._wait_for_monitor(gone)
            with self._paused() as monitors:
                alive = [item for item in monitors.items() if item[0] not in {m.name for m in gone}]
                _parallel(lambda item, _stop: _human(item, f"loadvm {tag}"), alive)
                self._state.faults = dict(self._state.snapshots[tag])
                for link in self.topology.links:
                    down = self._state.faults.get(f"{link.node} {link.rail}") == "link down"
                    monitors[link.node].command("set_link", name=f"nic-{link.netdev}", up=not down)
            remote.close_connections(self.paths)
            self._state.save(self.paths.state)
            _parallel(self._wake, self.topology.machines)

    def _wake(self, machine: Machine, stop: threading.Event) -> None:
        """Set a restored guest's clock, which still stands at the time of the snapshot."""
        port = self._guest(machine.name).ssh_port
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not stop.is_set():
            command = ["date", "-u", "-s", f"@{time.time():.2f}"]
            if remote.answers(self.paths, self.image, port, command, timeout_s=20):
                return
        raise LabError(f"{machine.name} does not answer after the restore", fix="run python -m lab down, then up")

    def _wait_for_monitor(self, machines: Iterable[Machine]) -> None:
        for machine in machines:
            deadline = time.monotonic() + 30
            while True:
                try:
                    with Qmp(self.paths.socket(f"{machine.name}.qmp")):
                        break
                except LabError:
                    if time.monotonic() > deadline or not self._guest(machine.name).process.alive():
                        raise self._boot_error(machine, "the snapshot did not load") from None
                    time.sleep(0.1)

    @contextlib.contextmanager
    def _paused(self) -> Iterator[dict[str, Qmp]]:
        """Control connections to every machine, all stopped meanwhile."""
        with contextlib.ExitStack() as stack:
            monitors = {
                m.name: stack.enter_context(Qmp(self.paths.socket(f"{m.name}.qmp"), timeout_s=120))
                for m in self.topology.machines
            }
            try:
                for monitor in monitors.values():
                    monitor.command("stop")
                yield monitors
            finally:
                for monitor in monitors.values():
                    monitor.command("cont")

    # -- faults ---------------------------------------------------------------------------------------------

    def fault_port(self, node: str, rail: str, fault: faults.PortFault) -> str:
        """Plant loss, rate or delay on the leaf port toward ``node``; returns what was planted where."""
        link = self.topology.link(node, rail)
        with _exclusive(self.paths, self._progress):
            self._reload()
            self._on_leaf(faults.plant_argv(link.port, fault), f"planting {fault.description}")
            self._state.faults[f"{node} {rail}"] = fault.description
            self._state.save(self.paths.state)
        return f"{fault.description} on {LEAF} {link.port}, into {node} {link.netdev}"

    def fault_loss(self, node: str, rail: str, percent: float) -> str:
        return self.fault_port(node, rail, faults.loss(percent))

    def fault_rate(self, node: str, rail: str, mbit_per_s: float) -> str:
        return self.fault_port(node, rail, faults.rate(mbit_per_s))

    def fault_delay(self, node: str, rail: str, milliseconds: float) -> str:
        return self.fault_port(node, rail, faults.delay(milliseconds))

    def fault_link_down(self, node: str, rail: str) -> str:
        """Unplug the cable at the node: no carrier, RDMA port down."""
        link = self.topology.link(node, rail)
        with _exclusive(self.paths, self._progress):
            self._reload()
            self._set_link(link.node, link.netdev, up=False)
            self._state.faults[f"{node} {rail}"] = "link down"
            self._state.save(self.paths.state)
        return f"{node} {link.netdev} ({rail}) has no carrier"

    def fault_kill(self, name: str) -> str:
        """Take a machine's power away."""
        with _exclusive(self.paths, self._progress):
            self._reload()
            guest = self._guest(name)
            if not guest.process.alive():
                raise LabError(f"{name} is off already", fix="fault clear boots it")
            if processes.end([guest.process], at_once=True):
                raise LabError(f"{name}'s QEMU (process {guest.process.pid}) does not end")
            self._state.faults[name] = "no power"
            self._state.save(self.paths.state)
        return f"{name} has no power"

    def fault_clear(self) -> list[str]:
        """Undo every fault: free the leaf ports, plug the cables, boot what has no power."""
        done = []
        with _exclusive(self.paths, self._progress):
            self._reload()
            done += [f"{name} booted" for name in self._boot_missing()]
            present = self._on_leaf(["tc", "qdisc", "show"], "reading the leaf's qdiscs")
            for link in self.topology.links:
                if f" {faults.HANDLE} dev {link.port} root" in present:
                    self._on_leaf(faults.clear_argv(link.port), "clearing a fault")
                    done.append(f"{LEAF} {link.port} freed (into {link.node} {link.rail})")
                if self._state.faults.get(f"{link.node} {link.rail}") == "link down":
                    done.append(f"{link.node} {link.rail} plugged in")
                self._set_link(link.node, link.netdev, up=True)
            self._state.faults.clear()
            self._state.save(self.paths.state)
        return done

    def _set_link(self, node: str, netdev: str, *, up: bool) -> None:
        with Qmp(self.paths.socket(f"{node}.qmp")) as monitor:
            monitor.command("set_link", name=f"nic-{netdev}", up=up)

    def _on_leaf(self, command: Sequence[str], what: str) -> str:
        done = self.ssh(LEAF, command)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise LabError(f"{what} on {LEAF} failed: {last}")
        return done.stdout

    def _require_running(self, what: str) -> None:
        off = [m.name for m in self.topology.machines if not self._guest(m.name).process.alive()]
        if off:
            raise LabError(f"cannot {what} while {', '.join(off)} is off", fix="run python -m lab fault clear")

    def _reload(self) -> None:
        """Another command may have changed the state since this object was made."""
        current = state.load(self.paths.state)
        if current is None:
            raise LabError(f"lab {self.name} is not up any more", fix="run python -m lab up")
        self._state = current


def status(name: str | None = None) -> LabStatus:
    """What is known of a lab, running or not."""
    paths = lab_paths(name or default_name())
    current = state.load(paths.state)
    machines: list[MachineStatus] = []
    if current is not None:
        for machine in Topology(current.nodes).machines:
            guest = current.guests.get(machine.name)
            if guest is None:
                continue
            shown = [
                f"{key.removeprefix(machine.name).strip()} {fault}".strip()
                for key, fault in current.faults.items()
                if key.split()[0] == machine.name
            ]
            machines.append(
                MachineStatus(
                    name=machine.name,
                    role=machine.role,
                    running=guest.process.alive(),
                    mgmt_ip=machine.mgmt_ip,
                    ssh_port=guest.ssh_port,
                    pid=guest.process.pid,
                    memory_mib=guest.process.rss_bytes() >> 20,
                    fault="; ".join(shown),
                )
            )
    return LabStatus(
        name=paths.name,
        up=current is not None and current.ready and any(m.running for m in machines),
        nodes=current.nodes if current else 0,
        accelerator=current.accelerator if current else "",
        run_folder=str(paths.run),
        disk_folder=str(paths.disks),
        snapshots=tuple(current.snapshots) if current else (),
        machines=tuple(machines),
    )


def stop(name: str | None = None, progress: Progress = _silent) -> bool:
    """End every process of a lab and remove its files; false when there was none."""
    paths = lab_paths(name or default_name())
    if not paths.run.exists():
        return False
    with _exclusive(paths, progress):
        current = state.load(paths.state)
        if current is None:
            return False
        _stop(paths, current)
    return True


def _stop(paths: LabPaths, current: state.State) -> None:
    remote.close_connections(paths)
    left = processes.end(current.processes())
    if left:
        raise LabError(f"process {left[0].pid} of lab {paths.name} does not end", fix="see what holds it")
    for stem in qemu.sockets(Topology(current.nodes)):
        paths.socket(stem).unlink(missing_ok=True)
    for machine in Topology(current.nodes).machines:
        paths.overlay(machine.name).unlink(missing_ok=True)
    paths.known_hosts.unlink(missing_ok=True)
    paths.state.unlink(missing_ok=True)


def _make_overlay(paths: LabPaths, image: Image, machine: Machine) -> None:
    overlay = paths.overlay(machine.name)
    overlay.unlink(missing_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image.disk), str(overlay)]
    host.run(argv, f"making {machine.name}'s disk")


def _ssh_banner(port: int) -> bool:
    """Whether an SSH server greets; cheaper than a whole connection while a guest still boots."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _human(item: tuple[str, Qmp], line: str) -> None:
    name, monitor = item
    said = monitor.human(line)
    if said:
        raise LabError(f"{line} on {name}: {said}")


def _parallel(work: Callable[[T, threading.Event], None], items: Sequence[T]) -> None:
    """Do ``work`` on all items at once; the first failure (or Ctrl-C) tells the others to stop."""
    if not items:
        return
    stop_all = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        try:
            for done in concurrent.futures.as_completed([pool.submit(work, item, stop_all) for item in items]):
                done.result()
        finally:
            stop_all.set()


@contextlib.contextmanager
def _exclusive(paths: LabPaths, progress: Progress) -> Iterator[None]:
    """One command at a time changes a lab."""
    with paths.lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another command works on lab {paths.name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


__all__ = ["Lab", "LabStatus", "MachineStatus", "status", "stop"]
