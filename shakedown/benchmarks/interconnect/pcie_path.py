"""The way from the CPU's root port to every GPU: switches, links, who shares them; against the plan.

A PCIe switch is one upstream port and the downstream ports below it, so a way through a switch crosses two
bridges (PCI Express Base Specification, 1.3.3). A link is described by what hangs at its lower end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shakedown.benchmarks.interconnect.options import PlannedPath
from shakedown.physics.pcie import TRANSFER_RATE_GT_PER_S
from shakedown.topology.host_map import Device, Topology

# Device/port types of the PCI Express capability (Base Specification, 7.5.3.2).
ROOT_PORT, UPSTREAM, DOWNSTREAM = 4, 5, 6


@dataclass(frozen=True)
class Link:
    """One PCIe link; `upper` is empty where the GPU hangs on the root bus itself, as in virtual machines."""

    upper: str
    lower: str
    speed_gt_s: float | None
    max_speed_gt_s: float | None
    width: int | None
    shared_by: int
    to_gpu: bool

    @property
    def generation(self) -> int | None:
        """The PCIe generation of the speed that the link runs at."""
        return next((g for g, rate in TRANSFER_RATE_GT_PER_S.items() if rate == self.speed_gt_s), None)


@dataclass(frozen=True)
class GpuPath:
    """The way to one GPU, from the root down."""

    index: int
    bdf: str
    numa_node: int | None
    switch_hops: int
    links: tuple[Link, ...]

    def drawn(self) -> str:
        """The way in one line: `0000:15:01.0 =x16 Gen5= 0000:16:00.0 [switch] ...`."""
        parts = [self.links[0].upper or "root bus"]
        for place, link in enumerate(self.links):
            shared = f" shared by {link.shared_by}" if link.shared_by > 1 else ""
            parts.append(f"=x{link.width or '?'} Gen{link.generation or '?'}{shared}=>")
            # A switch's ports have an internal link between them: drawn as one switch.
            parts.append(link.lower if not link.to_gpu else f"GPU {self.index} {link.lower}")
            if not link.to_gpu:
                parts.append(f"[switch {place + 1}]")
                parts.append(self.links[place + 1].upper)
        return " ".join(parts)


def gpu_paths(topology: Topology) -> list[GpuPath]:
    """Return the way to every GPU, in the order of the GPUs' numbers."""
    devices = {device.bdf: device for device in topology.devices}
    gpus = topology.gpu_devices()
    chains = [[*gpu.path, gpu.bdf] for gpu in gpus]
    below = Counter(bdf for chain in chains for bdf in chain)
    found = []
    for index, (gpu, chain) in enumerate(zip(gpus, chains, strict=True)):
        bridges = [devices.get(bdf) for bdf in gpu.path]
        links = [
            _link(chain[place - 1] if place else "", devices.get(bdf), bdf, below[bdf], bdf == gpu.bdf)
            for place, bdf in enumerate(chain)
            if _ends_a_link(place, devices.get(bdf), len(chain))
        ]
        found.append(GpuPath(index, gpu.bdf, topology.node_of(gpu), _switches(bridges), tuple(links)))
    return found


def _link(upper: str, device: Device | None, bdf: str, shared_by: int, to_gpu: bool) -> Link:
    return Link(
        upper=upper,
        lower=bdf,
        speed_gt_s=device.speed_gt_s if device else None,
        max_speed_gt_s=device.max_speed_gt_s if device else None,
        width=device.width if device else None,
        shared_by=shared_by,
        to_gpu=to_gpu,
    )


def _ends_a_link(place: int, device: Device | None, length: int) -> bool:
    """Upstream ports and the GPU end a link; root and downstream ports begin one."""
    if place == length - 1:
        return True
    if device is not None and device.port_type is not None:
        return device.port_type == UPSTREAM
    return place % 2 == 1  # root port, then pairs of upstream and downstream port


def _switches(bridges: Sequence[Device | None]) -> int:
    """Count switches: by port type where the configuration space was readable, else two bridges a switch."""
    types = [bridge.port_type if bridge else None for bridge in bridges]
    if bridges and None not in types:
        return types.count(UPSTREAM)
    return max(0, len(bridges) - 1) // 2


def judge_paths(
    paths: Sequence[GpuPath], plan: PlannedPath, *, gpus: int, loaded: bool
) -> Iterator[tuple[int, str, bool, str]]:
    """Yield (GPU number, what, whether it differs from the plan, found and planned in words).

    Args:
        paths: what was found.
        plan: what is planned for every GPU of the node.
        gpus: how many GPUs the node must have.
        loaded: whether copies were under way: a GPU at rest may lower the speed of its link.
    """
    # The number that most GPUs have; of two as frequent ones the smaller.
    frequent = Counter(sorted(path.switch_hops for path in paths)).most_common(1)
    usual_hops = frequent[0][0] if frequent else 0
    for index in range(gpus):
        if index >= len(paths):
            for what in plan.judged():
                yield index, what, True, f"GPU {index} is not there, {len(paths)} of {gpus} GPUs found"
            continue
        path = paths[index]
        judged = _judged(path, plan, loaded) | {"hops": _hops(path.switch_hops, plan, usual_hops)}
        for what in plan.judged():
            wrong, detail = judged[what]
            yield index, what, wrong, f"GPU {index} ({path.bdf}): {detail}"


def _hops(found: int, plan: PlannedPath, usual: int) -> tuple[bool, str]:
    """Return whether a number of switches differs from the plan, or from what the other GPUs have."""
    if plan.switch_hops is not None:
        return found != plan.switch_hops, f"{found} switch hops, planned {plan.switch_hops}"
    if plan.name != "none" and not found:
        return True, f"no switch on the way, planned is {plan.name}, which has one at least"
    return found != usual, f"{found} switch hops, most GPUs of the node have {usual}"


def _judged(path: GpuPath, plan: PlannedPath, loaded: bool) -> dict[str, tuple[bool, str]]:
    wanted_gt_s = TRANSFER_RATE_GT_PER_S[plan.generation]
    slow, narrow = [], []
    for link in path.links:
        place = f"link {link.upper or 'root bus'} to {link.lower}"
        speed = link.max_speed_gt_s if link.to_gpu and not loaded else link.speed_gt_s
        if speed is None or speed < wanted_gt_s:
            slow.append(f"{place} runs at {_text(speed)} GT/s")
        if link.width is None or link.width < plan.width:
            narrow.append(f"{place} is x{_text(link.width)}")
    shared = max(link.shared_by for link in path.links)
    pin = plan.numa_nodes[path.index] if plan.numa_nodes and path.index < len(plan.numa_nodes) else None
    numa_wrong = path.numa_node is None or (pin is not None and pin != path.numa_node)
    if plan.numa_nodes is not None and pin is None:
        numa_wrong = True
    where = (
        "on no NUMA node that the kernel knows"
        if path.numa_node is None
        else f"on NUMA node {path.numa_node}"
    )
    return {
        "speed": (bool(slow), f"{'; '.join(slow) or 'all links fast enough'}, planned {wanted_gt_s:g} GT/s"),
        "width": (bool(narrow), f"{'; '.join(narrow) or 'all links wide enough'}, planned x{plan.width}"),
        "sharing": (
            shared != plan.shared_by,
            f"its busiest link carries {shared} GPUs, planned {plan.shared_by}",
        ),
        "numa": (numa_wrong, f"{where}, pinned to {'wherever it is' if pin is None else f'node {pin}'}"),
    }


def _text(number: float | None) -> str:
    return "?" if number is None else f"{number:g}"
