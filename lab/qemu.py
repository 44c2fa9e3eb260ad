"""QEMU command lines and the guests' kernel command line.  Pure: nothing is started here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.image import Image
from lab.paths import LabPaths
from lab.topology import Machine, Topology

# COMMAND_LINE_SIZE on x86, arch/x86/include/asm/setup.h, less room for what QEMU adds.
_CMDLINE_MAX = 2000
# MiB. The head also runs slurmctld and ReFrame, switches only forward.
_MEMORY_MIB = {"head": 1024, "compute": 768, "leaf": 384, "spine": 320}
HUB = "hub"

# All of this saves time under emulation; no test relies on the security settings it turns off.
_KERNEL_WORDS = (
    "console=ttyS0",
    "quiet",
    "loglevel=4",
    "net.ifnames=0",
    "mitigations=off",
    "audit=0",
    "lsm=capability",
    # Without address randomisation the emulator finds its translation of a program again at the next start:
    # an SSH login costs a third.
    "norandmaps",
    "raid=noautodetect",
    "panic=5",
    "systemd.show_status=auto",
    "systemd.gpt_auto=0",
)


@dataclass(frozen=True)
class Accelerator:
    """How guests execute; :mod:`lab.accelerator` finds out which one works."""

    name: str

    @property
    def argv(self) -> list[str]:
        """Accelerator and CPU model."""
        if self.name == "kvm":
            return ["-accel", "kvm", "-cpu", "host"]
        # Nehalem boots and moves RDMA traffic faster under emulation than a CPU with wider vectors.
        return ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "Nehalem"]


KVM = Accelerator("kvm")
TCG = Accelerator("tcg")


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name, as a lab's state records it."""
    return KVM if name == KVM.name else TCG


# The parts that decide whether a guest runs under an accelerator, shared by the probe and the lab.
MACHINE_ARGV = ("-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none")


def machine_id(lab: str, machine: str) -> str:
    """A stable machine-id(5), different for every machine of every lab."""
    return hashlib.sha256(f"shakedown lab {lab} {machine}".encode()).hexdigest()[:32]


def kernel_words(lab: str, topology: Topology, machine: Machine) -> str:
    """The guest's kernel command line: boot options and its identity (read by shakedown-identity)."""
    words = [
        *_KERNEL_WORDS,
        f"systemd.hostname={machine.name}",
        f"systemd.machine_id={machine_id(lab, machine.name)}",
        f"shakedown.role={machine.role}",
        "shakedown.hosts=" + ",".join(f"{name}/{ip}" for name, ip in topology.hosts.items()),
    ]
    words += [
        "shakedown.nic=" + f"{n.name},{n.mac},{n.mtu},{n.address},{n.gateway}".rstrip(",")
        for n in machine.nics
    ]
    mtu = machine.nics[-1].mtu
    words += [
        f"shakedown.bridge={name},{mtu},{'+'.join(ports)}"
        for name, ports in topology.bridges_of(machine.name).items()
    ]
    words += topology.words_of(machine)
    line = " ".join(words)
    if len(line) > _CMDLINE_MAX:
        raise LabError(
            f"{machine.name}'s kernel command line would be {len(line)} bytes", fix="use fewer --nodes"
        )
    return line


def _peer(topology: Topology, machine: Machine, nic: str) -> tuple[str, str]:
    """The two socket names of a point-to-point cable, this end first."""
    here = f"{machine.name}.{nic}"
    if nic == "mgmt0":
        return here, f"{HUB}.{machine.name}"
    for link in topology.links:
        if (link.node, link.netdev) == (machine.name, nic):
            return here, f"{link.leaf}.{link.port}"
        if (link.leaf, link.port) == (machine.name, nic):
            return here, f"{link.node}.{link.netdev}"
    for end in topology.trunk_ends:
        if (end.switch, end.port) == (machine.name, nic):
            return here, f"{end.other}.{end.other_port}"
    raise LabError(f"{here} is not cabled")


def _dgram(paths: LabPaths, ident: str, here: str, there: str) -> str:
    local, remote = paths.socket(here), paths.socket(there)
    return (
        f"dgram,id={ident},local.type=unix,local.path={_escaped(local)},"
        f"remote.type=unix,remote.path={_escaped(remote)}"
    )


def _escaped(path: Path) -> str:
    """A path inside a QEMU option: a comma is written twice."""
    return str(path).replace(",", ",,")


def guest_argv(
    paths: LabPaths,
    topology: Topology,
    machine: Machine,
    image: Image,
    *,
    ssh_port: int,
    accelerator: Accelerator,
    load: str = "",
) -> list[str]:
    """QEMU's arguments for one machine; ``load`` names a snapshot to start from, paused."""
    overlay = _escaped(paths.overlay(machine.name))
    console_log = _escaped(paths.console_log(machine.name))

    def server(use: str) -> str:
        path = _escaped(paths.socket(f"{machine.name}.{use}"))
        return f"socket,id={use},path={path},server=on,wait=off"

    argv = [
        "qemu-system-x86_64",
        *("-name", f"shakedown-{paths.name}-{machine.name}"),
        *MACHINE_ARGV,
        *accelerator.argv,
        *("-smp", "1", "-m", f"{_MEMORY_MIB[machine.role]}M"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
        *("-append", kernel_words(paths.name, topology, machine)),
        *("-drive", f"file={overlay},if=none,id=disk,format=qcow2,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=disk"),
        *("-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"),
        *("-rtc", "base=utc,clock=host"),
        *("-chardev", f"{server('console')},logfile={console_log},logappend=on"),
        *("-serial", "chardev:console"),
        *("-chardev", server("clock"), "-serial", "chardev:clock"),
        *("-chardev", server("qmp")),
        *("-mon", "chardev=qmp,mode=control"),
    ]
    for nic in machine.nics:
        if nic.name == "adm0":
            network = nic.gateway.rpartition(".")[0]
            backend = (
                f"user,id=adm0,ipv6=off,net={network}.0/24,host={network}.2,dns={network}.3,dhcpstart={network}.15,"
                f"hostfwd=tcp:127.0.0.1:{ssh_port}-{nic.ip}:22"
            )
        else:
            backend = _dgram(paths, nic.name, *_peer(topology, machine, nic.name))
        device = f"virtio-net-pci,netdev={nic.name},id=nic-{nic.name},mac={nic.mac},romfile="
        device += f",host_mtu={nic.mtu}"
        argv += ["-netdev", backend, "-device", device]
    if load:
        argv += ["-S", "-loadvm", load]
    return argv


def hub_argv(paths: LabPaths, topology: Topology) -> list[str]:
    """The management LAN: a QEMU without a guest that joins one cable from every machine."""
    argv = ["qemu-system-x86_64", "-name", f"shakedown-{paths.name}-{HUB}", "-machine", "none"]
    argv += ["-nodefaults", "-no-user-config", "-display", "none"]
    for machine in topology.machines:
        here, there = f"{HUB}.{machine.name}", f"{machine.name}.mgmt0"
        argv += ["-netdev", _dgram(paths, f"link-{machine.name}", here, there)]
        argv += ["-netdev", f"hubport,id=port-{machine.name},hubid=0,netdev=link-{machine.name}"]
    return argv


def sockets(topology: Topology) -> list[str]:
    """Names of every socket file that QEMU makes; stale ones must go before a start."""
    names = [f"{HUB}.{machine.name}" for machine in topology.machines]
    for machine in topology.machines:
        names += [f"{machine.name}.{use}" for use in ("console", "clock", "qmp")]
        names += [f"{machine.name}.{nic.name}" for nic in machine.nics if nic.name != "adm0"]
    return names
