"""Nodes whose kernel gave up the TSC while it booted, as on a busy host that emulates them.

perftest reads the TSC and takes its frequency from the kernel: where the kernel found another than it is, no
figure counts, and a healthy run is INCONCLUSIVE. Such a node is booted once more. A guest under KVM has the
host's clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab import qemu
from lab.machines import Machines, cut_power
from lab.topology import Machine

# Documentation/ABI/testing/sysfs-devices-system-clocksource of the kernel.
_CURRENT = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_GOOD = "tsc"


def settle(lab: Machines, booted: Sequence[str]) -> None:
    """Boot the nodes among these once more whose kernel does not go by the TSC; say so of one that stays so.

    Raises:
        LabError: a node's QEMU does not end, or it does not boot again.
    """
    for machine, found in off_the_tsc(lab, booted):
        lab.progress(f"{machine.name}'s kernel goes by {found} and not by the TSC; booting it once more")
        lab.ssh(machine.name, ["sync"], timeout_s=60)
        cut_power(lab, machine.name)
        lab.start(machine, lab.guest(machine.name).ssh_port)
        lab.wait_for_ssh([machine])
        for _, still in off_the_tsc(lab, [machine.name]):
            lab.progress(
                f"{machine.name}'s kernel goes by {still} again: perftest cannot time there and decides "
                "nothing. End what keeps this machine busy, then python -m lab down and up"
            )


def off_the_tsc(lab: Machines, names: Sequence[str]) -> list[tuple[Machine, str]]:
    """Return the nodes among these with another clock source, and which."""
    nodes = [lab.topology.machine(name) for name in names if name in lab.topology.compute_names]
    if not nodes or lab.state.accelerator == qemu.KVM.name:
        return []
    found = []
    for node in nodes:
        done = lab.ssh(node.name, ["cat", _CURRENT], timeout_s=60)
        if done.returncode == 0 and done.stdout.strip() != _GOOD:
            found.append((node, done.stdout.strip()))
    return found
