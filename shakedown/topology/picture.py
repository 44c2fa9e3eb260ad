"""The map of a host as a picture (SVG), in the manner of lstopo: boxes inside boxes.

NUMA nodes contain host bridges, these contain PCIe switches, and those the GPUs and NICs. The NIC that a GPU
should use has the GPU's number; a device whose link trained down has a red edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from shakedown.topology.distance import Distance
from shakedown.topology.host_map import HostDevice, Pair, Topology, pairs

_LINE, _CHAR, _PAD, _GAP = 16, 7.2, 8, 8  # pixels, for 12 px text
_FILL = {"numa": "#f4f4f1", "bridge": "#e9edf2", "switch": "#ffffff", "gpu": "#d8ead2", "nic": "#d6e4f5"}
_EDGE, _BAD = "#555555", "#c0392b"


@dataclass
class Box:
    """A box with text and boxes in it; sizes and places in pixels."""

    kind: str
    lines: list[str]
    inner: list[Box] = field(default_factory=list)
    upright: bool = False  # inner boxes one above the other
    bad: bool = False
    width: float = 0
    height: float = 0

    def measure(self) -> None:
        """Work out the size, inner boxes first."""
        for box in self.inner:
            box.measure()
        widths, heights = [b.width for b in self.inner], [b.height for b in self.inner]
        gaps = _GAP * max(0, len(self.inner) - 1)
        across = max(widths, default=0) if self.upright else sum(widths) + gaps
        down = sum(heights) + gaps if self.upright else max(heights, default=0)
        words = max((len(line) for line in self.lines), default=0) * _CHAR
        self.width = max(across, words) + 2 * _PAD
        self.height = len(self.lines) * _LINE + down + 2 * _PAD + (_GAP if self.lines and self.inner else 0)

    def draw(self, x: float, y: float) -> list[str]:
        """Return the SVG elements of the box at a place."""
        edge, stroke = (_BAD, 3) if self.bad else (_EDGE, 1)
        elements = [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{self.width:.0f}" height="{self.height:.0f}" rx="4" '
            f'fill="{_FILL[self.kind]}" stroke="{edge}" stroke-width="{stroke}"/>'
        ]
        place = y + _PAD
        for line in self.lines:
            place += _LINE
            elements.append(f'<text x="{x + _PAD:.0f}" y="{place - 4:.0f}">{escape(line)}</text>')
        across = x + _PAD
        place += _GAP if self.lines and self.inner else 0
        for box in self.inner:
            elements += box.draw(across, place)
            if self.upright:
                place += box.height + _GAP
            else:
                across += box.width + _GAP
        return elements


def picture(topology: Topology) -> str:
    """Return the picture as one SVG document."""
    numbers = {gpu.bdf: number for number, gpu in enumerate(topology.gpu_devices())}
    best = pairs(topology)
    nodes = [
        Box(
            "numa",
            [f"NUMA node {numa.node}", f"CPUs {_short(numa.cpus)}"],
            _bridges(topology, numa.node, numbers, best),
        )
        for numa in topology.numa
    ]
    lost = _bridges(topology, None, numbers, best)
    if lost:
        nodes.append(Box("numa", ["NUMA node unknown"], lost, bad=True))
    whole = Box("switch", [topology.host], nodes, upright=True)
    whole.measure()
    size = f'width="{whole.width + 2:.0f}" height="{whole.height + 2:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">',
            f"<title>GPUs and NICs of {escape(topology.host)}</title>",
            *whole.draw(1, 1),
            "</svg>\n",
        ]
    )


def _bridges(topology: Topology, node: int | None, numbers: dict[str, int], best: list[Pair]) -> list[Box]:
    """One box for each host bridge of a NUMA node that has GPUs or fabric NICs."""
    here = [d for d in (*topology.gpu_devices(), *topology.fabric_nics()) if topology.node_of(d) == node]
    boxes = []
    for root in sorted({d.root for d in here}):
        mine = [d for d in here if d.root == root]
        boxes.append(
            Box("bridge", [f"host bridge {root.removeprefix('pci')}"], _below(mine, 0, numbers, best))
        )
    return boxes


def _below(devices: list[HostDevice], depth: int, numbers: dict[str, int], best: list[Pair]) -> list[Box]:
    """Boxes for what hangs below a point of the tree; bridges with a single thing below are left out."""
    boxes = [_device(d, numbers, best) for d in devices if len(d.path) == depth]
    deeper = [d for d in devices if len(d.path) > depth]
    for bdf in sorted({d.path[depth] for d in deeper}):
        branch = [d for d in deeper if d.path[depth] == bdf]
        inner = _below(branch, depth + 1, numbers, best)
        if len(inner) == 1:
            boxes += inner
        else:
            boxes.append(Box("switch", [f"PCIe switch {bdf}"], inner))
    return boxes


def _device(device: HostDevice, numbers: dict[str, int], best: list[Pair]) -> Box:
    lines = [device.label if device.is_nic else f"GPU {numbers[device.bdf]}"]
    for pair in best:
        if pair.nic.bdf == device.bdf:
            lines.append(f"for GPU {numbers[pair.gpu.bdf]}: {pair.distance}")
        if pair.gpu.bdf == device.bdf:
            lines.append(f"uses {pair.nic.label}: {pair.distance}")
    lines.append(device.bdf)
    slow = False
    if device.width and device.speed_gt_s:
        lines.append(f"x{device.width} {device.speed_gt_s:g} GT/s")
        slow = bool(device.max_width and device.width < device.max_width)
        if device.is_nic and device.max_speed_gt_s:
            slow = slow or device.speed_gt_s < device.max_speed_gt_s
    far = any(
        pair.distance in (Distance.PHB, Distance.NODE, Distance.SYS)
        for pair in best
        if pair.gpu.bdf == device.bdf
    )
    return Box("gpu" if device.is_gpu else "nic", lines, bad=slow or far)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
