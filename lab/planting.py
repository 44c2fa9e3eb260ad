"""Planting faults in a running lab, and clearing them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from lab import clocks, faults, node_faults
from lab.errors import LabError
from lab.machines import Machines, cut_power
from lab.topology import Port

_MOST_FLAP_S = 60.0
_MISWIRED = "{node} {other} {rail}"


def port_fault(lab: Machines, node: str, rail: str, fault: faults.PortFault) -> str:
    """Put loss, rate or delay on the port toward ``node``; says what was planted where.

    Here and below ``node`` and ``rail`` may be a switch and its port to another switch.
    """
    port = lab.topology.port(node, rail)
    _on(lab, port.switch, faults.plant_argv(port.name, fault), f"planting {fault.description}")
    _note(lab, f"{node} {rail}", fault.description)
    return f"{fault.description} on {port.switch} {port.name}, into {port.toward}"


def setting_fault(lab: Machines, node: str, rail: str, fault: faults.SettingFault) -> str:
    """Spoil a setting of the port toward ``node``; says what was planted where."""
    port = lab.topology.port(node, rail)
    _on(lab, port.switch, faults.setting_argv(port.name, fault), f"planting {fault.description}")
    _note(lab, f"{node} {rail}", fault.description)
    return f"{fault.description} on {port.switch} {port.name}, the port of {port.toward}"


def miswire(lab: Machines, node: str, other: str, rail: str) -> str:
    """Swap the cables of two nodes on one rail at their leaf, or of a switch and two of its ports."""
    if any(fault == faults.MISWIRED for fault in lab.state.faults.values()):
        raise LabError("one pair of cables can change places", fix="run python -m lab fault clear")
    one, two = _pair(lab, node, other, rail)
    _on(lab, one.switch, faults.swap_argv(one.name, two.name), "swapping two cables")
    _note(lab, _MISWIRED.format(node=node, other=other, rail=rail), faults.MISWIRED)
    return f"{one.toward} is on {one.switch} {two.name}, {two.toward} on {one.name}"


def _pair(lab: Machines, node: str, other: str, rail: str) -> tuple[Port, Port]:
    if node in lab.topology.switches:
        pair = lab.topology.port(node, other), lab.topology.port(node, rail)
    else:
        pair = lab.topology.port(node, rail), lab.topology.port(other, rail)
    if pair[0] == pair[1] or pair[0].switch != pair[1].switch:
        raise LabError(
            f"{node} {other} {rail}: no two cables of one switch",
            fix="name two nodes of one leaf and a rail, or a switch and two ports",
        )
    return pair


def link_down(lab: Machines, node: str, rail: str) -> str:
    """Unplug the cable: no carrier at either end that is asked, RDMA port down."""
    port = lab.topology.port(node, rail)
    _set_link(lab, port, up=False)
    _note(lab, f"{node} {rail}", faults.LINK_DOWN)
    return f"{' and '.join(' '.join(end) for end in port.pulled)} ({rail}) has no carrier"


def flap(lab: Machines, node: str, rail: str, seconds: float) -> str:
    """Unplug the cable and plug it in again after so many seconds; nothing of it is left to clear."""
    if not 0 < seconds <= _MOST_FLAP_S:
        raise LabError(f"{seconds:g} s is out of range", fix=f"give more than 0 and at most {_MOST_FLAP_S:g}")
    port, key = lab.topology.port(node, rail), f"{node} {rail}"
    _set_link(lab, port, up=False)
    _note(lab, key, faults.LINK_DOWN)  # whatever ends the wait, clearing plugs it in
    time.sleep(seconds)
    _set_link(lab, port, up=True)
    del lab.state.faults[key]
    lab.save_state()
    return f"{' and '.join(' '.join(end) for end in port.pulled)} ({rail}) had no carrier for {seconds:g} s"


def kill(lab: Machines, name: str) -> str:
    """Take a machine's power away at once."""
    guest = lab.guest(name)
    if not guest.process.alive():
        raise LabError(f"{name} is off already", fix="python -m lab fault clear boots it")
    cut_power(lab, name)
    lab.state.faults[name] = faults.NO_POWER
    lab.save_state()
    return f"{name} has no power"


def clear(lab: Machines) -> list[str]:
    """Undo every fault: boot what has no power, free the leaf's ports, plug the cables; says what it did."""
    booted = lab.boot_what_is_off()
    clocks.settle(lab, booted)
    done = [f"{name} booted" for name in booted]
    done += node_faults.clear(lab)
    for key in [key for key, fault in lab.state.faults.items() if fault == faults.MISWIRED]:
        node, other, rail = key.split()
        one, two = _pair(lab, node, other, rail)
        _on(lab, one.switch, faults.swap_argv(one.name, two.name), "swapping two cables back")
        del lab.state.faults[key]
        lab.save_state()
        done.append(f"{node} and {other} {rail} back in place")
    for key in [key for key, fault in lab.state.faults.items() if fault == faults.LINK_DOWN]:
        done.append(f"{key} plugged in")
    for switch in lab.topology.switches:
        done += _clear_switch(lab, switch)
    for link in lab.topology.links:
        _set_link(lab, lab.topology.port(link.node, link.rail), up=True)
    for trunk in lab.topology.trunks:
        _set_link(lab, lab.topology.port(trunk.leaf, trunk.leaf_port), up=True)
    lab.state.faults.clear()
    lab.save_state()
    return done


def _clear_switch(lab: Machines, switch: str) -> list[str]:
    ports = lab.topology.ports_of(switch)
    freed = _on(lab, switch, faults.clear_argv(ports), "clearing faults").split()
    restored = _on(lab, switch, faults.restore_argv(ports), "restoring the switch's settings")
    done = [f"{switch} {port} freed" for port in freed]
    if restored and json.loads(restored).get("changed"):
        done.append(f"{switch} has its settings back")
    return done


def _set_link(lab: Machines, port: Port, *, up: bool) -> None:
    for machine, nic in port.pulled:
        with lab.monitor(machine) as monitor:
            monitor.command("set_link", name=f"nic-{nic}", up=up)


def _note(lab: Machines, key: str, fault: str) -> None:
    lab.state.faults[key] = fault
    lab.save_state()


def _on(lab: Machines, machine: str, command: Sequence[str], what: str) -> str:
    done = lab.ssh(machine, command, timeout_s=120)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LabError(f"{what} on {machine} failed: {last}")
    return done.stdout
