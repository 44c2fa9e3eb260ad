"""Faults of a lab of namespaces: planted on the leaf's ports and the nodes' interfaces, and cleared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lab import faults, processes
from lab.errors import LabError
from lab.topology import FABRIC_MTU, LEAF

if TYPE_CHECKING:
    from lab.spaces.cluster import SpaceLab

_MTU, _ADDRESS = "MTU", "address"
# What needs a switch with RoCE's classes, a clock of a machine's own or a machine's memory.
_NOT_HERE = (
    "needs the lab of virtual machines: namespaces share the host's clock, and their leaf is a plain bridge"
)


def plant(lab: SpaceLab, kind: str, *words: str | float) -> str:
    """Plant the fault; says what was planted where.

    Raises:
        LabError: this lab cannot have such a fault, or a word is out of range.
    """
    if kind not in _PLANTS:
        raise LabError(f"fault {kind} {_NOT_HERE}", fix=f"use one of {', '.join(sorted(_PLANTS))}")
    key, fault, said = _PLANTS[kind](lab, *words)
    lab.state.faults[key] = fault
    lab.save_state()
    return said


def _port(lab: SpaceLab, node: str, rail: str, fault: faults.PortFault) -> tuple[str, str, str]:
    link = lab.topology.link(node, rail)
    lab.run(LEAF, faults.plant_argv(link.port, fault), f"planting {fault.description} on {LEAF}")
    said = f"{fault.description} on {LEAF} {link.port}, into {node} {link.netdev}"
    return f"{node} {rail}", fault.description, said


def _loss(lab: SpaceLab, node: str, rail: str, percent: float) -> tuple[str, str, str]:
    return _port(lab, node, rail, faults.loss(percent))


def _rate(lab: SpaceLab, node: str, rail: str, mbit: float) -> tuple[str, str, str]:
    return _port(lab, node, rail, faults.rate(mbit))


def _delay(lab: SpaceLab, node: str, rail: str, ms: float) -> tuple[str, str, str]:
    return _port(lab, node, rail, faults.delay(ms))


def _port_mtu(lab: SpaceLab, node: str, rail: str, mtu_bytes: float) -> tuple[str, str, str]:
    link = lab.topology.link(node, rail)
    description = faults.port_mtu(int(mtu_bytes)).description
    lab.run(LEAF, ["ip", "link", "set", link.port, "mtu", str(int(mtu_bytes))], f"planting {description}")
    return f"{node} {rail}", description, f"{description} on {LEAF} {link.port}, the port of {node}"


def _link_down(lab: SpaceLab, node: str, rail: str) -> tuple[str, str, str]:
    link = lab.topology.link(node, rail)
    lab.run(LEAF, ["ip", "link", "set", link.port, "down"], "unplugging the cable")
    return f"{node} {rail}", faults.LINK_DOWN, f"{node} {link.netdev} ({rail}) has no carrier"


def _wrong_address(lab: SpaceLab, node: str, rail: str) -> tuple[str, str, str]:
    link = lab.topology.link(node, rail)
    wrong = _wrong(link.ipv4)
    lab.run(node, ["sh", "-c", _readdress(link.netdev, wrong)], "changing the address")
    return f"{node} {rail}", f"{_ADDRESS} {wrong}", f"{node} {link.netdev} has {wrong}, not {link.ipv4}"


def _readdress(netdev: str, ipv4: str) -> str:
    return f"ip address flush dev {netdev} scope global; ip address add {ipv4} dev {netdev}"


def _wrong(ipv4: str) -> str:
    """The same host in a subnet that no rail has."""
    network, host = ipv4.rsplit(".", 1)
    return f"{network.rsplit('.', 1)[0]}.99.{host}"


def _kill(lab: SpaceLab, name: str) -> tuple[str, str, str]:
    lab.topology.machine(name)
    process = lab.state.spaces[name]
    if not process.alive():
        raise LabError(f"{name} is off already", fix="python -m lab fault clear starts it")
    if processes.end([process], at_once=True):
        raise LabError(f"{name}'s first process ({process.pid}) does not end", fix="see what holds it")
    return name, faults.NO_POWER, f"{name} has no power"


_PLANTS: dict[str, Callable[..., tuple[str, str, str]]] = {
    "loss": _loss,
    "rate": _rate,
    "delay": _delay,
    "port-mtu": _port_mtu,
    "link-down": _link_down,
    "port-down": _link_down,
    "wrong-address": _wrong_address,
    "kill": _kill,
}


def clear(lab: SpaceLab) -> list[str]:
    """Undo every fault; says what it did."""
    done = []
    for machine in lab.topology.machines:
        if not lab.state.spaces[machine.name].alive():
            lab.reboot(machine)
            done.append(f"{machine.name} started, empty: run site.yml again")
    ports = [link.port for link in lab.topology.links]
    freed = lab.run(LEAF, faults.clear_argv(ports), "clearing faults").split()
    for link in lab.topology.links:
        fault = lab.state.faults.get(f"{link.node} {link.rail}", "")
        if link.port in freed:
            done.append(f"{LEAF} {link.port} freed (into {link.node} {link.rail})")
        if fault == faults.LINK_DOWN or fault.startswith(_MTU):
            lab.run(
                LEAF, ["ip", "link", "set", link.port, "mtu", str(FABRIC_MTU), "up"], "restoring the port"
            )
            done.append(f"{LEAF} {link.port} as it was (into {link.node} {link.rail})")
        if fault.startswith(_ADDRESS):
            lab.run(link.node, ["sh", "-c", _readdress(link.netdev, link.ipv4)], "restoring the address")
            done.append(f"{link.node} {link.netdev} has {link.ipv4} again")
    lab.state.faults.clear()
    lab.save_state()
    return done
