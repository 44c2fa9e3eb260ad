"""CPUs and interrupts: governor, NUMA balancing, irqbalance, and each NIC's interrupts on its NUMA node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host_settings.desired import NETDEV, BadDesired
from host_settings.model import Action, Item, NotApplicable, Run, Setting, Value, Write, attribute_writer
from host_settings.system import System

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"


@dataclass(frozen=True)
class Pinning:
    """The wanted state."""

    nics: tuple[str, ...]
    governor: str
    numa_balancing: int
    irqbalance: str  # "off" or "keep"
    numa_nodes: int  # 0: any number
    max_idle_latency_us: int  # 0: idle states stay as they are


def parse(data: Mapping[str, Any]) -> Pinning:
    """The wanted state. Raises BadDesired, naming the key and the fix."""
    nics, numbers = data.get("nics"), {}
    if not isinstance(nics, list) or not all(isinstance(n, str) and NETDEV.match(n) for n in nics):
        raise BadDesired(f"nics is {nics!r} -- list the names of fabric NICs")
    for key, high in (("numa_balancing", 1), ("numa_nodes", 64), ("max_idle_latency_us", 1000000)):
        value = data.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
            raise BadDesired(f"{key} is {value!r} -- use a whole number from 0 to {high}")
        numbers[key] = value
    governor, irqbalance = data.get("governor"), data.get("irqbalance")
    if governor not in ("performance", "keep"):
        raise BadDesired(f"governor is {governor!r} -- use performance or keep")
    if irqbalance not in ("off", "keep"):
        raise BadDesired(f"irqbalance is {irqbalance!r} -- use off or keep")
    return Pinning(nics=tuple(nics), governor=governor, irqbalance=irqbalance, **numbers)


def cpu_numbers(cpus: str) -> list[int]:
    """The numbers in a kernel CPU list such as `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, cpus.split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def read(system: System, wanted: Pinning) -> dict[str, Any]:
    """What is set now."""
    cpus = [name for name in system.names(_CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    governors = {f"{_CPUS}/{c}/cpufreq/scaling_governor": "" for c in cpus}
    states = {
        f"{_CPUS}/{c}/cpuidle/{s}": system.read_int(f"{_CPUS}/{c}/cpuidle/{s}/latency")
        for c in cpus
        for s in system.names(f"{_CPUS}/{c}/cpuidle")
    }
    return {
        "governors": {path: text for path in governors if (text := system.read(path)) is not None},
        "idle": {
            path: system.read_int(f"{path}/disable")
            for path, latency in states.items()
            if latency is not None and latency > wanted.max_idle_latency_us
        },
        "numa_balancing": system.read_int("/proc/sys/kernel/numa_balancing"),
        "numa_nodes": len([n for n in system.names(_NODES) if n[:4] == "node" and n[4:].isdigit()]),
        "irqbalance": _irqbalance(system),
        "nics": {netdev: _interrupts(system, netdev) for netdev in wanted.nics},
    }


def _irqbalance(system: System) -> str | None:
    """on, off, or None if it is not installed."""
    enabled = system.run("systemctl", "is-enabled", "irqbalance.service").out.strip()
    active = system.run("systemctl", "is-active", "irqbalance.service").out.strip()
    if enabled in ("", "not-found") and active != "active":
        return None
    return "on" if active == "active" or enabled == "enabled" else "off"


def _interrupts(system: System, netdev: str) -> dict[str, Any]:
    """A NIC's NUMA node, the CPUs there, and where its interrupts go."""
    device = f"/sys/class/net/{netdev}/device"
    # A virtio NIC's interrupts are its transport's, one folder up.
    for folder in (device, f"{device}/.."):
        irqs = [name for name in system.names(f"{folder}/msi_irqs") if name.isdigit()]
        if irqs:
            break
    places = {int(irq): system.read(f"/proc/irq/{irq}/smp_affinity_list") for irq in irqs}
    return {
        "numa_node": system.read_int(f"{folder}/numa_node"),
        "local_cpus": system.read(f"{folder}/local_cpulist") or "",
        "irqs": {irq: cpus for irq, cpus in sorted(places.items()) if cpus is not None},
    }


def items(found: dict[str, Any], wanted: Pinning) -> list[Item]:
    """What should be, beside what is."""
    list_: list[Item] = [
        _governor(found["governors"], wanted),
        _idle_states(found["idle"], wanted),
        _numa_balancing(found["numa_balancing"], wanted),
        _balancer(found["irqbalance"], wanted),
    ]
    if wanted.numa_nodes:
        list_.append(Setting("numa.nodes", found["numa_nodes"], wanted.numa_nodes))
    neighbours: dict[str, int] = {}
    for netdev, nic in found["nics"].items():
        if found["numa_nodes"] > 1:
            node = nic["numa_node"]
            known = node is not None and node >= 0
            list_.append(Setting(f"numa.node.{netdev}", node, node if known else "a node, see the BIOS"))
        list_.append(_affinity(netdev, nic, neighbours))
    return list_


def _governor(governors: Mapping[str, str], wanted: Pinning) -> Item:
    if wanted.governor == "keep" or not governors:
        why = "the role leaves it" if governors else "the CPUs' frequency is not Linux's to set here"
        return NotApplicable("cpu.governor", why)

    def write(value: Value) -> tuple[Action, ...]:
        # Before may have been several values; a rollback then restores the first.
        text = str(value).split()[0]
        return tuple(Write(path, text) for path, now in governors.items() if now != text)

    return Setting("cpu.governor", " ".join(sorted(set(governors.values()))), wanted.governor, write)


def _idle_states(disabled: Mapping[str, Any], wanted: Pinning) -> Item:
    if not wanted.max_idle_latency_us or not disabled:
        return NotApplicable(
            "cpu.idle_states", "the role leaves them" if disabled else "there are no deeper ones"
        )

    def write(value: Value) -> tuple[Action, ...]:
        flag = "1" if value == "off" else "0"
        return tuple(Write(f"{path}/disable", flag) for path, now in disabled.items() if str(now) != flag)

    return Setting("cpu.idle_states", "off" if all(disabled.values()) else "on", "off", write)


def _numa_balancing(now: int | None, wanted: Pinning) -> Item:
    path = "/proc/sys/kernel/numa_balancing"
    if now is None:
        return NotApplicable("numa.balancing", "this kernel has none")
    return Setting("numa.balancing", now, wanted.numa_balancing, attribute_writer(path))


def _balancer(now: str | None, wanted: Pinning) -> Item:
    if now is None or wanted.irqbalance == "keep":
        return NotApplicable("irqbalance", "it is not installed" if now is None else "the role leaves it")

    def switch(value: Value) -> tuple[Action, ...]:
        verb = "disable" if value == "off" else "enable"
        return (Run(("systemctl", "--quiet", verb, "--now", "irqbalance.service")),)

    return Setting("irqbalance", now, "off", switch)


def _affinity(netdev: str, nic: Mapping[str, Any], neighbours: dict[str, int]) -> Item:
    """One CPU of the NIC's NUMA node for each interrupt; NICs of one node take turns."""
    cpus = cpu_numbers(nic["local_cpus"])
    if not nic["irqs"] or not cpus:
        return NotApplicable(f"irq.{netdev}", "the NIC has no interrupts of its own")
    first = neighbours.get(nic["local_cpus"], 0)
    neighbours[nic["local_cpus"]] = first + len(nic["irqs"])
    target = {irq: str(cpus[(first + i) % len(cpus)]) for i, irq in enumerate(nic["irqs"])}

    def place(value: Value) -> tuple[Action, ...]:
        wanted = dict(part.split("=", 1) for part in str(value).split())
        return tuple(
            Write(f"/proc/irq/{irq}/smp_affinity_list", wanted[str(irq)])
            for irq, now in nic["irqs"].items()
            if str(irq) in wanted and wanted[str(irq)] != now
        )

    def as_text(places: Mapping[int, str]) -> str:
        return " ".join(f"{irq}={cpu}" for irq, cpu in places.items())

    return Setting(f"irq.{netdev}", as_text(nic["irqs"]), as_text(target), place)
