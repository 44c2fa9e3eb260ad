"""A lab as an object, for tests and programs: start it, use it, plant faults, save and restore it, stop it.

::

    lab = Lab.up(nodes=2)
    lab.ssh("n1", ["rdma", "link"]).stdout
    lab.save("clean"); lab.fault_loss("n1", "rail0", 2.0); lab.restore("clean")
    lab.down()
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab import (
    accelerator,
    clocks,
    faults,
    host,
    node_faults,
    planting,
    processes,
    qemu,
    remote,
    snapshots,
    state,
)
from lab.errors import LabError
from lab.foreign.setup import check_size, set_up
from lab.image import SITES, Image, Progress, ensure_image
from lab.machines import Machines, exclusive, silent
from lab.paths import LabPaths, default_name, lab_paths, runtime_root
from lab.sites import topology_of
from lab.topology import DEFAULT_NODES, Machine, Topology

# An overlay holds the guest's writes and every snapshot its memory.
_SPACE_PER_MACHINE_BYTES = 1_000_000_000


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
        """For ``status --json``, with the schema's version."""
        return {"schema": 1, **asdict(self)}


class Lab:
    """A running lab.  Get one from :meth:`up` or :meth:`open`.

    Every method raises :class:`LabError`, which says in one line what is wrong and how to mend it.
    """

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.paths = machines.paths
        self.topology = machines.topology
        self.image = machines.image
        self.name = machines.paths.name
        self.site = machines.state.site

    # -- starting and stopping ------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        nodes: int | None = None,
        name: str | None = None,
        *,
        site: str = "own",
        progress: Progress = silent,
    ) -> Lab:
        """Start the lab, or return it when it is up already.  Whatever goes wrong, no process is left.

        ``site``: ``own`` for bare machines, ``foreign`` for a cluster that is somebody else's,
        ``fabric`` for two leaves under two spines.
        """
        if site not in SITES:
            raise LabError(f"there is no site {site!r}", fix=f"use one of {', '.join(SITES)}")
        paths = lab_paths(name or default_name())
        # What was asked for is judged before this machine is.
        topology = topology_of(site, DEFAULT_NODES if nodes is None else nodes)
        if site == "foreign":
            check_size(topology.nodes)
        host.require(host.RUN_PROGRAMS)
        paths.create()
        with exclusive(paths, progress):
            current = state.load(paths.state)
            if current is not None and current.ready and current.hub and current.hub.alive():
                if nodes is not None and nodes != current.nodes:
                    raise LabError(
                        f"lab {paths.name} is up with {current.nodes} compute nodes",
                        fix="run python -m lab down first",
                    )
                if site != current.site:
                    raise LabError(
                        f"lab {paths.name} is up as the site {current.site!r}",
                        fix="run python -m lab down first",
                    )
                machines = Machines(paths, current, progress)
                clocks.settle(machines, machines.boot_what_is_off())
                progress(f"lab {paths.name} is up already")
                return cls(machines)
            if current is not None:
                progress("cleaning up after a lab that did not end well")
                _stop(paths, current)
            return cls(_start(paths, topology, site, progress))

    @classmethod
    def open(cls, name: str | None = None, *, progress: Progress = silent) -> Lab:
        """The running lab of that name."""
        paths = lab_paths(name or default_name())
        current = state.load(paths.state)
        if current is None or not current.ready or not any(p.alive() for p in current.processes()):
            raise LabError(f"lab {paths.name} is not up", fix="run python -m lab up")
        return cls(Machines(paths, current, progress))

    def down(self) -> None:
        """End every process of the lab and remove its disks."""
        stop(self.name)

    # -- using ----------------------------------------------------------------------------------------------

    def ssh_argv(self, machine: str, command: Sequence[str] = ()) -> list[str]:
        """The SSH command line for a machine, for interactive use."""
        return self._machines.ssh_argv(machine, command)

    def ssh(
        self, machine: str, command: Sequence[str], *, timeout_s: float = 120.0, input_text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine as root; each word reaches it as it is.

        The exit status is in the result (255: SSH itself failed); :class:`LabError` when the command takes
        longer than ``timeout_s`` or there is no such machine.
        """
        return self._machines.ssh(machine, command, timeout_s=timeout_s, input_text=input_text)

    def status(self) -> LabStatus:
        """What ``python -m lab status`` shows."""
        return status(self.name)

    def mistimed(self) -> list[str]:
        """The nodes whose kernel no longer goes by the TSC: perftest decides nothing there (clocks.py)."""
        self._machines.reload_state()
        return [node.name for node, _ in clocks.off_the_tsc(self._machines, self.topology.compute_names)]

    # -- snapshots and faults -------------------------------------------------------------------------------

    def save(self, tag: str) -> None:
        """Save memory and disk of every machine at one moment, under ``tag`` (replacing an older one)."""
        with self._changing() as machines:
            snapshots.save(machines, tag)

    def restore(self, tag: str) -> None:
        """Put every machine back to the moment of ``save(tag)``, faults included, and set its clock.

        SSH connections from before are gone afterwards; the shared ones of this lab are closed.
        """
        with self._changing() as machines:
            snapshots.restore(machines, tag)

    def fault_loss(self, node: str, rail: str, percent: float) -> str:
        """Random loss of ``percent`` of the packets into ``node`` on ``rail``; returns what was planted."""
        with self._changing() as machines:
            return planting.port_fault(machines, node, rail, faults.loss(percent))

    def fault_rate(self, node: str, rail: str, mbit_per_s: float) -> str:
        """A limit of ``mbit_per_s`` (10^6 bit/s) on traffic into ``node`` on ``rail``."""
        with self._changing() as machines:
            return planting.port_fault(machines, node, rail, faults.rate(mbit_per_s))

    def fault_delay(self, node: str, rail: str, milliseconds: float) -> str:
        """A delay of ``milliseconds`` on traffic into ``node`` on ``rail``."""
        with self._changing() as machines:
            return planting.port_fault(machines, node, rail, faults.delay(milliseconds))

    def fault_reorder(self, node: str, rail: str, percent: float) -> str:
        """``percent`` of the packets into ``node`` on ``rail`` overtake the others."""
        with self._changing() as machines:
            return planting.port_fault(machines, node, rail, faults.reorder(percent))

    def fault_flap(self, node: str, rail: str, seconds: float = 2.0) -> str:
        """No carrier at ``node`` on ``rail`` for so many seconds; returns when it is back."""
        with self._changing() as machines:
            return planting.flap(machines, node, rail, seconds)

    def fault_small_rx_ring(self, node: str, rail: str, entries: int) -> str:
        """So few receive buffers of the NIC of ``node`` on ``rail``."""
        with self._changing() as machines:
            return node_faults.small_rx_ring(machines, node, rail, entries)

    def fault_pause_frames(self, node: str, rail: str, count: int) -> str:
        """So many PFC pause frames into ``node`` on ``rail``, at once."""
        with self._changing() as machines:
            return node_faults.pause_frames(machines, node, rail, count)

    def fault_ecn_off(self, node: str, rail: str) -> str:
        """No ECN marking on the leaf port toward ``node``."""
        with self._changing() as machines:
            return planting.setting_fault(machines, node, rail, faults.ecn_off())

    def fault_wrong_dscp_map(self, node: str, rail: str) -> str:
        """RoCE that ``node`` sends on ``rail`` leaves the RoCE class at its leaf port."""
        with self._changing() as machines:
            return planting.setting_fault(machines, node, rail, faults.wrong_dscp_map())

    def fault_rewrite_dscp(self, node: str, rail: str, dscp: int = 0) -> str:
        """RoCE leaves the leaf port toward ``node`` with another DSCP."""
        with self._changing() as machines:
            return planting.setting_fault(machines, node, rail, faults.rewrite_dscp(dscp))

    def fault_bleach_ecn(self, node: str, rail: str) -> str:
        """RoCE leaves the leaf port toward ``node`` as Not-ECT."""
        with self._changing() as machines:
            return planting.setting_fault(machines, node, rail, faults.bleach_ecn())

    def fault_port_mtu(self, node: str, rail: str, mtu_bytes: int) -> str:
        """Another MTU, in bytes, on the leaf port toward ``node``."""
        with self._changing() as machines:
            return planting.setting_fault(machines, node, rail, faults.port_mtu(mtu_bytes))

    def fault_port_down(self, node: str, rail: str) -> str:
        """Shut the leaf port toward ``node``; the node keeps its carrier."""
        with self._changing() as machines:
            return planting.setting_fault(machines, node, rail, faults.port_down())

    def fault_miswire(self, node: str, other: str, rail: str) -> str:
        """Swap the cables of two nodes on one rail at the leaf."""
        with self._changing() as machines:
            return planting.miswire(machines, node, other, rail)

    def fault_link_down(self, node: str, rail: str) -> str:
        """Unplug the cable of ``rail`` at ``node``: no carrier, RDMA port down."""
        with self._changing() as machines:
            return planting.link_down(machines, node, rail)

    def fault_kill(self, machine: str) -> str:
        """Take a machine's power away at once."""
        with self._changing() as machines:
            return planting.kill(machines, machine)

    def fault_clock(self, node: str, seconds: float) -> str:
        """A clock of ``node`` that is so many seconds ahead, or behind."""
        with self._changing() as machines:
            return node_faults.clock(machines, node, seconds)

    def fault_stage_readonly(self, node: str) -> str:
        """The shared folder mounted read-only on ``node``."""
        with self._changing() as machines:
            return node_faults.stage_readonly(machines, node)

    def fault_duplicate_address(self, node: str, rail: str) -> str:
        """The address of ``node`` on ``rail`` on the leaf as well."""
        with self._changing() as machines:
            return node_faults.duplicate_address(machines, node, rail)

    def fault_clear(self) -> list[str]:
        """Undo every fault; machines without power boot again.  Returns what was undone."""
        with self._changing() as machines:
            return planting.clear(machines)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Machines]:
        """The machines, with the present state, locked against other commands."""
        with exclusive(self.paths, self._machines.progress):
            self._machines.reload_state()
            yield self._machines


def _start(paths: LabPaths, topology: Topology, site: str, progress: Progress) -> Machines:
    image = ensure_image(progress, site)
    host.require_space(paths.disks, _SPACE_PER_MACHINE_BYTES * len(topology.machines), "the lab")
    chosen = accelerator.choose(image)
    current = state.State(paths.name, topology.nodes, str(image.folder), chosen.name, site=site)
    machines = Machines(paths, current, progress)
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
        machines.save_state()
        for machine, port in zip(topology.machines, ports, strict=True):
            machines.start(machine, port)
        machines.wait_for_ssh(topology.machines)
        clocks.settle(machines, [machine.name for machine in topology.machines])
        if site == "foreign":
            set_up(machines, progress)
        current.ready = True
        machines.save_state()
    except BaseException:
        _stop(paths, current)
        raise
    return machines


def _make_overlay(paths: LabPaths, image: Image, machine: Machine) -> None:
    overlay = paths.overlay(machine.name)
    overlay.unlink(missing_ok=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(image.disk), str(overlay)]
    host.run(argv, f"making {machine.name}'s disk")


def faults_of(machine: str, in_force: Mapping[str, str]) -> str:
    """What ``status`` shows of a machine's faults; keys are "<machine>" or "<machine> <rail>"."""
    shown = [
        f"{key.removeprefix(machine).strip()} {fault}".strip()
        for key, fault in in_force.items()
        if key.split()[0] == machine
    ]
    return "; ".join(shown)


def status(name: str | None = None) -> LabStatus:
    """What is known of a lab, running or not."""
    paths = lab_paths(name or default_name())
    current = state.load(paths.state)
    machines: list[MachineStatus] = []
    if current is not None:
        for machine in topology_of(current.site, current.nodes).machines:
            guest = current.guests.get(machine.name)
            if guest is None:
                continue
            machines.append(
                MachineStatus(
                    name=machine.name,
                    role=machine.role,
                    running=guest.process.alive(),
                    mgmt_ip=machine.mgmt_ip,
                    ssh_port=guest.ssh_port,
                    pid=guest.process.pid,
                    memory_mib=guest.process.rss_bytes() >> 20,
                    fault=faults_of(machine.name, current.faults),
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


def images_in_use() -> set[Path]:
    """Image folders that the labs of this user run from."""
    found = (state.load(path) for path in runtime_root().glob("*/state.json"))
    return {Path(current.image) for current in found if current is not None}


def stop(name: str | None = None, progress: Progress = silent) -> bool:
    """End every process of a lab and remove its disks; false when there was none."""
    paths = lab_paths(name or default_name())
    if not paths.run.exists():
        return False
    with exclusive(paths, progress):
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
    topology = topology_of(current.site, current.nodes)
    for stem in qemu.sockets(topology):
        paths.socket(stem).unlink(missing_ok=True)
    for machine in topology.machines:
        paths.overlay(machine.name).unlink(missing_ok=True)
    paths.known_hosts.unlink(missing_ok=True)
    paths.state.unlink(missing_ok=True)


__all__ = ["Lab", "LabError", "LabStatus", "MachineStatus", "faults_of", "images_in_use", "status", "stop"]
