"""Planting faults in a running lab, and clearing them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lab import faults, node_faults, processes
from lab.errors import LabError
from lab.machines import Machines
from lab.topology import LEAF

_MISWIRED = "{node} {other} {rail}"


def port_fault(lab: Machines, node: str, rail: str, fault: faults.PortFault) -> str:
    """Put loss, rate or delay on the leaf port toward ``node``; says what was planted where."""
    link = lab.topology.link(node, rail)
    _on_leaf(lab, faults.plant_argv(link.port, fault), f"planting {fault.description}")
    lab.state.faults[f"{node} {rail}"] = fault.description
    lab.save_state()
    return f"{fault.description} on {LEAF} {link.port}, into {node} {link.netdev}"


def setting_fault(lab: Machines, node: str, rail: str, fault: faults.SettingFault) -> str:
    """Spoil a setting of the leaf port toward ``node``; says what was planted where."""
    link = lab.topology.link(node, rail)
    _on_leaf(lab, faults.setting_argv(link.port, fault), f"planting {fault.description}")
    lab.state.faults[f"{node} {rail}"] = fault.description
    lab.save_state()
    return f"{fault.description} on {LEAF} {link.port}, the port of {node} {link.netdev}"


def miswire(lab: Machines, node: str, other: str, rail: str) -> str:
    """Swap the cables of two nodes on one rail at the leaf."""
    links = [lab.topology.link(name, rail) for name in (node, other)]
    key = _MISWIRED.format(node=node, other=other, rail=rail)
    if node == other or any(fault == faults.MISWIRED for fault in lab.state.faults.values()):
        raise LabError(
            f"{node} and {other}: one pair of cables can change places", fix="clear, then name two nodes"
        )
    _on_leaf(lab, faults.swap_argv(links[0].port, links[1].port), "swapping two cables")
    lab.state.faults[key] = faults.MISWIRED
    lab.save_state()
    return f"{node} {rail} is on {LEAF} {links[1].port}, {other} {rail} on {links[0].port}"


def link_down(lab: Machines, node: str, rail: str) -> str:
    """Unplug the cable at the node: no carrier, RDMA port down."""
    link = lab.topology.link(node, rail)
    _set_link(lab, link.node, link.netdev, up=False)
    lab.state.faults[f"{node} {rail}"] = faults.LINK_DOWN
    lab.save_state()
    return f"{node} {link.netdev} ({rail}) has no carrier"


def kill(lab: Machines, name: str) -> str:
    """Take a machine's power away at once."""
    guest = lab.guest(name)
    if not guest.process.alive():
        raise LabError(f"{name} is off already", fix="python -m lab fault clear boots it")
    if processes.end([guest.process], at_once=True):
        raise LabError(f"{name}'s QEMU (process {guest.process.pid}) does not end", fix="see what holds it")
    lab.state.faults[name] = faults.NO_POWER
    lab.save_state()
    return f"{name} has no power"


def clear(lab: Machines) -> list[str]:
    """Undo every fault: boot what has no power, free the leaf's ports, plug the cables; says what it did."""
    done = [f"{name} booted" for name in lab.boot_what_is_off()]
    done += node_faults.clear(lab)
    for key in [key for key, fault in lab.state.faults.items() if fault == faults.MISWIRED]:
        node, other, rail = key.split()
        pair = [lab.topology.link(name, rail).port for name in (node, other)]
        _on_leaf(lab, faults.swap_argv(*pair), "swapping two cables back")
        del lab.state.faults[key]
        lab.save_state()
        done.append(f"{node} and {other} {rail} back in place")
    ports = [link.port for link in lab.topology.links]
    freed = _on_leaf(lab, faults.clear_argv(ports), "clearing faults").split()
    restored = _on_leaf(lab, faults.restore_argv(ports), "restoring the switch's settings")
    if restored and json.loads(restored).get("changed"):
        done.append(f"{LEAF} has its settings back")
    for link in lab.topology.links:
        if link.port in freed:
            done.append(f"{LEAF} {link.port} freed (into {link.node} {link.rail})")
        if lab.state.faults.get(f"{link.node} {link.rail}") == faults.LINK_DOWN:
            done.append(f"{link.node} {link.rail} plugged in")
        _set_link(lab, link.node, link.netdev, up=True)
    lab.state.faults.clear()
    lab.save_state()
    return done


def _set_link(lab: Machines, node: str, netdev: str, *, up: bool) -> None:
    with lab.monitor(node) as monitor:
        monitor.command("set_link", name=f"nic-{netdev}", up=up)


def _on_leaf(lab: Machines, command: Sequence[str], what: str) -> str:
    done = lab.ssh(LEAF, command, timeout_s=120)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LabError(f"{what} on {LEAF} failed: {last}")
    return done.stdout
