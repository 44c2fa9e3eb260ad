"""A lab of namespaces as an object, with the words of :class:`lab.cluster.Lab`.

::

    lab = SpaceLab.up(nodes=2, gpus="1")
    lab.ssh("n1", ["nvidia-smi", "-L"]).stdout
    lab.fault_rate("n2", "rail1", 2000)
    lab.down()
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import host, processes, remote
from lab.cluster import LabStatus, MachineStatus, faults_of
from lab.errors import LabError
from lab.image import Progress
from lab.machines import exclusive, silent
from lab.paths import LabPaths, default_name, lab_paths
from lab.spaces import faults, layer, mps, state, wiring
from lab.topology import DEFAULT_NODES, LEAF, Machine, Topology

PROGRAMS = ("unshare", "nsenter", "ip", "tc", "mount", "pivot_root", "tar")
SHARED_AT = "/shared"
_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 60.0


class SpaceLab:
    """A running lab of namespaces.  Get one from :meth:`up` or :meth:`open`.

    Every method raises :class:`LabError`, which says in one line what is wrong and how to mend it.
    """

    def __init__(self, paths: LabPaths, current: state.State, progress: Progress) -> None:
        self.paths = paths
        self.name = paths.name
        self.state = current
        self.progress = progress
        self.topology = Topology(current.nodes)

    # -- starting and stopping ------------------------------------------------------------------------------

    @classmethod
    def up(
        cls, nodes: int | None, gpus: str, name: str | None = None, *, progress: Progress = silent
    ) -> SpaceLab:
        """Start the lab, or return it when it is up already.  Whatever goes wrong, no process is left."""
        paths = lab_paths(name or default_name())
        if nodes is not None:
            Topology(nodes)  # what was asked for is judged before this machine is
        _require_root()
        host.require(PROGRAMS)
        paths.create()
        if paths.state.exists():
            raise LabError(f"lab {paths.name} is up as virtual machines", fix="run python -m lab down first")
        with exclusive(paths, progress):
            current = state.load(state.path_of(paths))
            count = nodes or (current.nodes if current else DEFAULT_NODES)
            topology = Topology(count)
            shares = wiring.gpus_of_nodes(gpus, count, host_gpus())
            wanted = dict(zip(topology.compute_names, shares, strict=True))
            if current is not None and current.ready and all(p.alive() for p in current.spaces.values()):
                if current.gpus != wanted:
                    raise LabError(
                        f"lab {paths.name} is up with {current.nodes} nodes and other GPUs",
                        fix="run python -m lab down first",
                    )
                progress(f"lab {paths.name} is up already")
                return cls(paths, current, progress)
            if current is not None:
                progress("cleaning up after a lab that did not end well")
                _stop(paths, current)
            cpus = wiring.cpus_of_nodes(count, sorted(os.sched_getaffinity(0)))
            current = state.State(paths.name, wanted, dict(zip(topology.compute_names, cpus, strict=True)))
            lab = cls(paths, current, progress)
            try:
                lab._start()
            except BaseException:
                _stop(paths, current)
                raise
            return lab

    @classmethod
    def open(cls, name: str | None = None, *, progress: Progress = silent) -> SpaceLab:
        """The running lab of that name."""
        paths = lab_paths(name or default_name())
        current = state.load(state.path_of(paths))
        if current is None or not current.ready or not any(p.alive() for p in current.spaces.values()):
            raise LabError(f"lab {paths.name} is not up", fix="run python -m lab up")
        return cls(paths, current, progress)

    def down(self) -> None:
        """End every process of the lab; what its machines wrote is gone."""
        stop(self.name)

    def _start(self) -> None:
        if self.state.shared:
            mps.program()  # refused before anything is made
        archive = layer.ensure(self.progress)
        shared(self.paths).mkdir(parents=True, exist_ok=True)
        self.progress(f"starting {len(self.topology.machines)} machines as namespaces of this host")
        self.state.verbs = has_rxe()
        _write_way_in(self.paths)
        for machine in self.topology.machines:
            self._boot(machine, archive)
        self._await(self.topology.machines)
        pids = {name: process.pid for name, process in self.state.spaces.items()}
        for argv in wiring.make(self.topology, pids):
            host.run(argv, "laying a cable")
        for machine in self.topology.machines:
            self._network(machine)
        if self.state.shared:
            self.state.mps = mps.start(shared(self.paths) / mps.FOLDER, mps.log_of(self.paths))
            self.save_state()
            mps.wait(self.state.mps, shared(self.paths) / mps.FOLDER, mps.log_of(self.paths))
        self.state.ready = True
        self.save_state()

    def _boot(self, machine: Machine, archive: Path | None) -> None:
        scratch = self.paths.run / machine.name
        scratch.mkdir(exist_ok=True)
        _mark(self.paths, machine.name).unlink(missing_ok=True)
        lines = [f"{address} {name}" for name, address in self.topology.hosts.items()]
        spec = {
            "name": machine.name,
            "scratch": str(scratch),
            "layer": str(archive or ""),
            "shared": str(shared(self.paths)),
            "shared_at": SHARED_AT,
            "gpus": self.state.gpus.get(machine.name, []),
            "mps": f"{SHARED_AT}/{mps.FOLDER}" if self.state.shared else "",
            "hosts": "\n".join(["127.0.0.1 localhost", "::1 localhost", *lines, ""]),
        }
        file = self.paths.run / f"{machine.name}.json"
        file.write_text(json.dumps(spec))
        log = self.paths.run / f"{machine.name}.log"
        log.unlink(missing_ok=True)
        own = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
        words = [sys.executable, str(_HERE / "init.py"), str(file)]
        outer = processes.start(["unshare", *own, *words], log)
        # Its one child is the machine's first process; by that the others are found and ended.
        deadline = time.monotonic() + _PATIENCE_S
        while (inner := processes.child_of(outer)) is None:
            if not outer.alive() or time.monotonic() > deadline:
                raise LabError(f"{machine.name} did not start: {_last(log)}", fix=f"see {log}")
            time.sleep(0.02)
        self.state.spaces[machine.name] = inner
        self.save_state()

    def _await(self, machines: Sequence[Machine]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        for machine in machines:
            log = self.paths.run / f"{machine.name}.log"
            while not _mark(self.paths, machine.name).exists():
                if not self.state.spaces[machine.name].alive():
                    raise LabError(f"{machine.name} did not start: {_last(log)}", fix=f"see {log}")
                if time.monotonic() > deadline:
                    raise LabError(f"{machine.name} was not up within {_PATIENCE_S:.0f} s", fix=f"see {log}")
                time.sleep(0.05)
            self.progress(f"{machine.name} is up")

    def _network(self, machine: Machine) -> None:
        links = [link for link in self.topology.links if link.node == machine.name]
        verbs = [(link.rdma_device, link.netdev) for link in links if self.state.verbs]
        script = (
            wiring.leaf_script(self.topology)
            if machine.name == LEAF
            else wiring.node_script(machine, verbs=verbs)
        )
        self.run(machine.name, ["sh", "-c", script], f"the network of {machine.name}")

    # -- using ----------------------------------------------------------------------------------------------

    def save_state(self) -> None:
        """Write the state file."""
        self.state.save(state.path_of(self.paths))

    def ssh_argv(self, machine: str, command: Sequence[str] = ()) -> list[str]:
        """The command line that leads into a machine, for interactive use."""
        self.topology.machine(machine)
        argv = [str(way_in(self.paths)), machine]
        return argv + ([shlex.join(command)] if command else [])

    def ssh(
        self, machine: str, command: Sequence[str], *, timeout_s: float = 120.0, input_text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine as root; see :meth:`lab.cluster.Lab.ssh`."""
        return remote.run(machine, command, self.ssh_argv, timeout_s=timeout_s, input_text=input_text)

    def run(self, machine: str, command: Sequence[str], what: str) -> str:
        """Run a command on a machine and return its output; :class:`LabError` when it fails."""
        done = self.ssh(machine, command)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise LabError(f"{what} failed: {last}")
        return done.stdout

    # -- faults ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Iterator[SpaceLab]:
        with exclusive(self.paths, self.progress):
            current = state.load(state.path_of(self.paths))
            if current is None:
                raise LabError(f"lab {self.name} is not up any more", fix="run python -m lab up")
            self.state = current
            yield self

    def fault(self, kind: str, *words: str | float) -> str:
        """Plant a fault by its word on the command line; says what was planted where."""
        with self._changing():
            return faults.plant(self, kind, *words)

    def fault_clear(self) -> list[str]:
        """Undo every fault; a machine without power starts again, empty."""
        with self._changing():
            return faults.clear(self)

    def reboot(self, machine: Machine) -> None:
        """Start a machine that has ended, with its cables; what it had is gone."""
        self._boot(machine, layer.ensure(self.progress))
        self._await([machine])
        pids = {name: process.pid for name, process in self.state.spaces.items()}
        for argv in wiring.make(self.topology, pids):
            # The other machines' cables are still there.
            if str(self.state.spaces[machine.name].pid) in argv:
                host.run(argv, "laying a cable")
        for port, bridge, mtu in wiring.ports_of(self.topology, machine.name):
            script = f"ip link set {port} mtu {mtu} master {bridge} up"
            self.run(LEAF, ["sh", "-c", script], "plugging a cable")
        self._network(machine)


def shared(paths: LabPaths) -> Path:
    """The host's folder that all machines share."""
    return paths.disks / "shared"


def way_in(paths: LabPaths) -> Path:
    """The program that leads into the lab's machines, with the command line of ssh."""
    return paths.run / "ssh"


def _write_way_in(paths: LabPaths) -> None:
    words = [sys.executable, str(_HERE / "ssh"), "-F", str(state.path_of(paths))]
    way_in(paths).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    way_in(paths).chmod(0o700)


def _mark(paths: LabPaths, machine: str) -> Path:
    return shared(paths) / f".up.{machine}"


def host_gpus() -> list[int]:
    """The NVIDIA GPUs of this host, by the number of their device files."""
    found = (re.fullmatch(r"nvidia(\d+)", device.name) for device in Path("/dev").glob("nvidia*"))
    return sorted(int(match[1]) for match in found if match)


def has_rxe() -> bool:
    """Whether this kernel makes Soft-RoCE devices, found out by making one in a network of its own."""
    if shutil.which("rdma", path="/usr/sbin:/sbin:/usr/bin") is None:
        return False
    script = (
        "ip link add p0 type veth peer name p1 && ip link set p0 up && rdma link add probe type rxe netdev p0"
    )
    done = subprocess.run(
        [host.program("unshare"), "--net", "sh", "-c", script],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode == 0


def status(name: str | None = None) -> LabStatus | None:
    """What is known of a lab of namespaces; None where there is none of that name."""
    paths = lab_paths(name or default_name())
    current = state.load(state.path_of(paths))
    if current is None:
        return None
    machines = []
    for machine in Topology(current.nodes).machines:
        process = current.spaces.get(machine.name)
        if process is None:
            continue
        gpus = current.gpus.get(machine.name)
        machines.append(
            MachineStatus(
                name=machine.name,
                role=machine.role + (f", {len(gpus)} GPU" if gpus else ""),
                running=process.alive(),
                mgmt_ip=machine.mgmt_ip,
                ssh_port=0,
                pid=process.pid,
                memory_mib=process.rss_bytes() >> 20,
                fault=faults_of(machine.name, current.faults),
            )
        )
    return LabStatus(
        name=paths.name,
        up=current.ready and any(m.running for m in machines),
        nodes=current.nodes,
        accelerator=f"namespaces, {'Soft-RoCE' if current.verbs else 'TCP alone (no rdma_rxe here)'}",
        run_folder=str(paths.run),
        disk_folder=str(paths.disks),
        snapshots=(),
        machines=tuple(machines),
    )


def stop(name: str | None = None, progress: Progress = silent) -> bool:
    """End every process of a lab of namespaces; false when there was none."""
    paths = lab_paths(name or default_name())
    if not state.path_of(paths).exists():
        return False
    with exclusive(paths, progress):
        current = state.load(state.path_of(paths))
        if current is None:
            return False
        _stop(paths, current)
    return True


def _stop(paths: LabPaths, current: state.State) -> None:
    left = processes.end(current.spaces.values())
    left += mps.end(current.mps, mps.log_of(paths))
    if left:
        raise LabError(f"process {left[0].pid} of lab {paths.name} does not end", fix="see what holds it")
    # Mounts and networks went with the namespaces; these are plain folders again.
    for machine in Topology(current.nodes).machines:
        with contextlib.suppress(FileNotFoundError):
            (paths.run / machine.name).rmdir()
        for suffix in ("json", "log"):
            (paths.run / f"{machine.name}.{suffix}").unlink(missing_ok=True)
    way_in(paths).unlink(missing_ok=True)
    shutil.rmtree(shared(paths), ignore_errors=True)
    state.path_of(paths).unlink(missing_ok=True)


def _require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("namespaces with devices need root", fix="run it as root, or leave --gpus out (QEMU)")


def _last(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it ended without a word"
