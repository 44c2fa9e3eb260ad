"""A simulated fabric: leaves, spines, noise and planted faults, measured as if it were real, from a seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum

import numpy as np

from shakedown.judge.localise.model import Bools, Cabling, Element, Floats, Ints, Matrix
from shakedown.physics.ethernet import payload_ceiling_gbps


class Phase(IntEnum):
    """When noise acts."""

    NODE = 0  # what a node can do at all, before faults
    PATH = 1  # lowers the bottleneck of a flow
    RATE = 2  # scales rates, as a sum of logarithms
    OUTPUT = 3  # changes what was written down


@dataclass(eq=False)
class Scene:
    """A measurement in the making; noise changes it in place.

    Attributes:
        pod, spines: nodes on one leaf; spines of each rail's plane.
        fabric: cabling and the spine of every flow.
        rng: source of all chance.
        able: what a node's kind reaches of the usual rate. Shape (nodes,).
        factor: what the slowest part on a flow's way leaves of its rate. Shape (rails, nodes, nodes), as all.
        logs: sum of everything else that scales a rate.
        rates: in Gb/s, from phase OUTPUT on.
        failed: tried, but without a value.
        kept: what does not change when something is measured again; see `once`.
        at_the_end: everything is measured again, after the last slot.
        classes: number of the class (firmware, model) of each (rail, node), as the snapshot tells it.
    """

    pod: int
    spines: int
    fabric: Cabling
    rng: np.random.Generator
    able: Floats
    factor: Floats
    logs: Floats
    rates: Floats
    failed: Bools
    classes: Ints
    kept: dict[str, Floats] = field(default_factory=dict)
    at_the_end: bool = False

    def once(self, name: str, draw: Callable[[], Floats]) -> Floats:
        """Return what `draw` gave the first time: what a part is like stays when it is measured again."""
        if name not in self.kept:
            self.kept[name] = draw()
        return self.kept[name]

    @property
    def rails(self) -> int:
        """How many rails."""
        return int(self.factor.shape[0])

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return int(self.factor.shape[1])

    def rounds(self) -> tuple[Ints, int]:
        """Return the round in which two nodes meet, and how many rounds a rail takes (the circle method)."""
        places = self.nodes + self.nodes % 2
        last, turns = places - 1, places - 1
        i = np.arange(self.nodes)
        when = (i[:, None] + i[None, :]) % turns
        if last < self.nodes:  # the one that stays meets i where 2i falls
            when[last, :] = when[:, last] = (2 * i) % turns
        return when.astype(np.int64), turns

    def times(self) -> tuple[Ints, int]:
        """Return when each result is measured, in slots: rails one after another, two directions a round."""
        when, turns = self.rounds()
        i = np.arange(self.nodes)
        back = (i[:, None] > i[None, :]).astype(np.int64)
        rail = np.arange(self.rails)[:, None, None] * turns
        steps = self.rails * turns * 2
        times = (rail + when) * 2 + back
        return (np.full_like(times, steps - 1) if self.at_the_end else times), steps


@dataclass(frozen=True)
class Noise:
    """One kind of noise; several act together, each in its phase. Those of research/noise_models.py."""

    name: str
    phase: Phase
    act: Callable[[Scene], None]  # changes a scene
    cell: bool = False  # it is the noise of a single result, and takes the place of the shape's own


# Rail-optimised pods: NIC i of every node of a pod is on leaf i of the pod, and every leaf has one uplink to
# each spine of its rail's plane. A flow within a leaf crosses no spine; any other crosses one, by its hash.
#
# The rate of a flow is the payload ceiling of the link, times what hosts reach of it, times the worst factor
# on its way (a flow is as fast as its bottleneck, so factors do not multiply), times noise.

# ib_read_bw on 8 x H100 nodes reached 390.89 of 392.15 Gb/s (Tolly, May 2024); less leaves room for noise.
REACHED_OF_CEILING = 0.985
MTU_BYTES = 4096
# What TCP over the same NIC reaches, as a fraction: 3 against 489 GB/s when NCCL falls back to sockets.
TCP_FACTOR = 3 / 489
# PCIe Gen5 x8 under a 400G NIC: at most 233.8 Gb/s.
HALF_PCIE_FACTOR = 233.8 / 392.15
FLAPPING_SHARE = 0.3


class FaultKind(StrEnum):
    """What can be planted. The names are those of the command line."""

    NIC_TX = "nic-tx"
    NIC_RX = "nic-rx"
    HALF_PCIE = "half-pcie"
    MTU_1024 = "mtu-1024"
    LOSSY_CABLE = "lossy-cable"
    UPLINK = "uplink"
    SPINE = "spine"
    SLOW_NODE = "slow-node"
    TCP_FALLBACK = "tcp-fallback"
    FLAPPING = "flapping"
    PAIR = "pair"


@dataclass(frozen=True)
class Shape:
    """Size of a fabric and how it is measured."""

    nodes: int  # 2 to 4,096
    rails: int  # 1 to 8
    pod: int = 16  # nodes on one leaf
    spines: int = 4  # spines of each rail's plane
    link_gbps: float = 400.0  # speed of every link
    cv: float = 0.003  # coefficient of variation of one measurement
    spread: float = 0.0005  # healthy differences between NICs, as a standard deviation
    # Part of the measurements that is low for no reason (a neighbour's traffic), by 3 % on average.
    dips: float = 0.001

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names as in a cluster: n0001."""
        width = len(str(self.nodes))
        return tuple(f"n{i:0{width}d}" for i in range(1, self.nodes + 1))

    @property
    def rail_names(self) -> tuple[str, ...]:
        """rail0, rail1, ..."""
        return tuple(f"rail{r}" for r in range(self.rails))

    @property
    def pods(self) -> int:
        """How many leaves a rail has."""
        return -(-self.nodes // self.pod)


@dataclass(frozen=True)
class PlantedFault:
    """One planted fault. `size` is the part of the rate that is lost, where the kind does not fix it."""

    kind: FaultKind
    element: Element
    size: float


@dataclass(frozen=True, eq=False)
class Simulated:
    """A measured fabric and the truth about it."""

    shape: Shape
    matrix: Matrix
    fabric: Cabling
    faults: tuple[PlantedFault, ...]
    # (rails, nodes) of the NICs whose cable loses symbols, and whose link went down.
    lossy: tuple[tuple[int, int], ...]
    flapped: tuple[tuple[int, int], ...]
    # The whole matrix measured again at the end, as often as was asked; nan: no value.
    again: tuple[Floats, ...] = ()


def build_fabric(shape: Shape, rng: np.random.Generator) -> Cabling:
    """Return cabling and the spine of every flow."""
    leaves = tuple(f"leaf{p}-{r}" for r in range(shape.rails) for p in range(shape.pods))
    spines = tuple(f"spine{r}-{k}" for r in range(shape.rails) for k in range(shape.spines))
    pod = np.arange(shape.nodes) // shape.pod
    leaf = pod[None, :] + shape.pods * np.arange(shape.rails)[:, None]
    spine = np.full((shape.rails, shape.nodes, shape.nodes), -1, dtype=np.int16)
    across = pod[:, None] != pod[None, :]
    for r in range(shape.rails):
        spine[r][across] = shape.spines * r + rng.integers(0, shape.spines, int(across.sum()), dtype=np.int16)
    ports = {
        (node, rail): f"{leaves[leaf[r, i]]}:swp{1 + i % shape.pod}"
        for r, rail in enumerate(shape.rail_names)
        for i, node in enumerate(shape.node_names)
    }
    return Cabling(leaf.astype(np.int64), leaves, spine, spines, ports)


def draw_fault(
    kind: FaultKind, size: float, shape: Shape, fabric: Cabling, rng: np.random.Generator
) -> PlantedFault:
    """Return a fault of a kind at a random place."""
    node = shape.node_names[int(rng.integers(shape.nodes))]
    rail = shape.rail_names[int(rng.integers(shape.rails))]
    leaf = fabric.leaves[int(rng.integers(len(fabric.leaves)))]
    plane = fabric.leaves.index(leaf) // shape.pods
    spine = fabric.spines[plane * shape.spines + int(rng.integers(shape.spines))]
    match kind:
        case FaultKind.NIC_TX | FaultKind.NIC_RX:
            element = Element("nic", node=node, rail=rail, direction=kind.value[-2:])
        case FaultKind.UPLINK:
            element = Element("uplink", leaf=leaf, spine=spine)
        case FaultKind.SPINE:
            element = Element("spine", spine=spine)
        case FaultKind.SLOW_NODE | FaultKind.TCP_FALLBACK:
            element = Element("node", node=node)
        case FaultKind.PAIR:
            i = shape.node_names.index(node)
            j = (i + 1 + int(rng.integers(shape.nodes - 1))) % shape.nodes
            one, other = (shape.node_names[k] for k in sorted((i, j)))
            element = Element("pair", node=one, peer=other, rail=rail)
        case _:
            element = Element("nic", node=node, rail=rail)
    fixed = {
        FaultKind.HALF_PCIE: 1 - HALF_PCIE_FACTOR,
        FaultKind.MTU_1024: 1 - _ceiling(shape, 1024) / _ceiling(shape, MTU_BYTES),
        FaultKind.TCP_FALLBACK: 1 - TCP_FACTOR,
    }
    return PlantedFault(kind, element, fixed.get(kind, size))


def measure(
    shape: Shape,
    fabric: Cabling,
    faults: Sequence[PlantedFault],
    rng: np.random.Generator,
    noise: Sequence[Noise] = (),
    again: int = 0,
) -> Simulated:
    """Return every pair's bandwidth in Gb/s, on every rail and in both directions.

    The shape's own noise is there whatever is in `noise`, but for one that takes the place of its `cv`.
    `again`: how many times all of it is measured once more, after the last slot; faults and what healthy
    parts are like stay, chance is drawn anew.
    """
    scene = _scene(shape, fabric, rng)
    phases = {phase: [n for n in noise if n.phase is phase] for phase in Phase}
    _act(phases[Phase.NODE], scene)
    np.minimum(scene.able[:, None], scene.able[None, :], out=scene.factor[0])
    scene.factor[1:] = scene.factor[0]
    lossy: list[tuple[int, int]] = []
    flapped: list[tuple[int, int]] = []
    for fault in faults:
        _slow_down(scene, shape, fault)
        if fault.kind in (FaultKind.LOSSY_CABLE, FaultKind.FLAPPING):
            place = (shape.rail_names.index(fault.element.rail), shape.node_names.index(fault.element.node))
            (lossy if fault.kind is FaultKind.LOSSY_CABLE else flapped).append(place)
    able = scene.factor.copy() if again else scene.factor
    nic = _measured(scene, shape, phases, None)
    values, failed = scene.rates, scene.failed
    later: list[Floats] = []
    scene.at_the_end = True
    for _ in range(again):
        scene.factor, scene.failed = able.copy(), np.zeros_like(failed)
        _measured(scene, shape, phases, nic)
        later.append(scene.rates)
    if scene.classes.any():
        fabric = replace(fabric, classes=np.stack([scene.classes, scene.classes]))
    matrix = Matrix(
        label="ib_write_bw",
        higher=True,
        nodes=shape.node_names,
        rails=shape.rail_names,
        values=values,
        failed=failed,
        # The mesh measures round after round, all rails of a pair in one.
        when=np.broadcast_to(scene.rounds()[0].astype(np.float64), values.shape),
    )
    return Simulated(shape, matrix, fabric, tuple(faults), tuple(lossy), tuple(flapped), tuple(later))


def _measured(
    scene: Scene, shape: Shape, phases: Mapping[Phase, Sequence[Noise]], nic: Floats | None
) -> Floats:
    """Turn the scene's factors into its rates; `nic`: what healthy NICs are like, drawn if None, returned."""
    rng = scene.rng
    _act(phases[Phase.PATH], scene)
    if nic is None:
        nic = 1 + shape.spread * rng.standard_normal((2, shape.rails, shape.nodes))
    values = scene.factor
    values *= nic[0][:, :, None]
    values *= nic[1][:, None, :]
    cv = 0.0 if any(n.cell for noise in phases.values() for n in noise) else shape.cv
    for r in range(shape.rails):  # rail by rail, for the memory
        values[r] *= 1 + cv * rng.standard_normal(values[r].shape)
        low = rng.random(values[r].shape) < shape.dips
        values[r][low] *= np.exp(-rng.exponential(0.03, int(low.sum())))
    if phases[Phase.RATE]:
        scene.logs = np.zeros_like(values)
        _act(phases[Phase.RATE], scene)
        values *= np.exp(scene.logs)
    ceiling = _ceiling(shape, MTU_BYTES)
    values *= REACHED_OF_CEILING * ceiling
    np.minimum(values, ceiling, out=values)
    scene.rates = values
    _act(phases[Phase.OUTPUT], scene)
    itself = np.arange(shape.nodes)
    scene.failed[:, itself, itself] = False
    values[:, itself, itself] = np.nan
    values[scene.failed] = np.nan
    return nic


def _scene(shape: Shape, fabric: Cabling, rng: np.random.Generator) -> Scene:
    cells = (shape.rails, shape.nodes, shape.nodes)
    return Scene(
        pod=shape.pod,
        spines=shape.spines,
        fabric=fabric,
        rng=rng,
        able=np.ones(shape.nodes),
        factor=np.empty(cells),
        logs=np.zeros((0, 0, 0)),
        rates=np.zeros((0, 0, 0)),
        failed=np.zeros(cells, dtype=bool),
        classes=np.zeros(cells[:2], dtype=np.int64),
    )


def _act(noise: Sequence[Noise], scene: Scene) -> None:
    for one in noise:
        one.act(scene)


def _slow_down(scene: Scene, shape: Shape, fault: PlantedFault) -> None:
    """Lower the flows that a fault touches to what it leaves of their rate."""
    rest, element = 1 - fault.size, fault.element
    fabric, factor, rng = scene.fabric, scene.factor, scene.rng
    if element.kind in {"uplink", "spine"}:
        assert fabric.spine is not None
        touched = fabric.spine == fabric.spines.index(element.spine)
        if element.kind == "uplink":
            here = fabric.leaf == fabric.leaves.index(element.leaf)
            touched &= here[:, :, None] | here[:, None, :]
        factor[touched] = np.minimum(factor[touched], rest)
        return
    node = shape.node_names.index(element.node)
    rails = [shape.rail_names.index(element.rail)] if element.rail else list(range(shape.rails))
    if element.kind == "pair":
        peer = shape.node_names.index(element.peer)
        for ends in ((node, peer), (peer, node)):
            factor[rails, *ends] *= rest
        return
    rest *= float(scene.able[node])
    for r in rails:
        lines = []
        if element.direction in {"tx", "both"}:
            lines.append(factor[r, node, :])
        if element.direction in {"rx", "both"}:
            lines.append(factor[r, :, node])
        for line in lines:
            if fault.kind is FaultKind.FLAPPING:
                # The link is away for a part of the measurement, and only during some measurements.
                hit = rng.random(line.shape) < FLAPPING_SHARE
                line[hit] = np.minimum(line[hit], 1 - fault.size * rng.uniform(0.5, 1.0, int(hit.sum())))
            else:
                np.minimum(line, rest, out=line)


def _ceiling(shape: Shape, mtu_bytes: int) -> float:
    return float(payload_ceiling_gbps(shape.link_gbps, rdma_mtu_bytes=mtu_bytes))
