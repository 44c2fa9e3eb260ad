"""The way from the CPU to every GPU against the plan, copies over it, and what the report draws of both."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from shakedown.benchmarks.base.contract import JobSettings, Output, Value
from shakedown.benchmarks.base.output import of_documents
from shakedown.physics.host_links import TRANSFER_RATE_GT_PER_S
from shakedown.records.base import Better, Name, Params, Record
from shakedown.records.reading import BadInput
from shakedown.records.results import Measurement
from shakedown.topology.host_map import HostDevice, Topology, parse_topology

WHAT = ("hops", "speed", "width", "sharing", "numa")  # what is asked of the way to every GPU


class PlannedPath(Record):
    """The way from the root port to every GPU of a node, as the plan has it."""

    name: Name = "none"  # as the system's documentation numbers it: none, path1, ..., path4
    # None: not known as a figure; then all GPUs of the node must cross as many, and one at least unless the
    # path is called none.
    switch_hops: int | None = Field(default=0, ge=0, le=8)
    generation: Literal[3, 4, 5, 6]
    width: Literal[4, 8, 16] = 16
    # GPUs behind the busiest link of the way; None: not known, so what was read is shown and not judged.
    shared_by: int | None = Field(default=1, ge=1)
    numa_nodes: tuple[int, ...] | None = None  # to which node each GPU's processes are pinned, by GPU number

    def judged(self) -> tuple[str, ...]:
        """Return what of every GPU's way is held against this plan."""
        return tuple(what for what in WHAT if what != "sharing" or self.shared_by is not None)


class Copies(Record):
    """Copies between host and GPU. Defaults are nvbandwidth's."""

    at_once: tuple[int, ...] = (1,)
    size_mib: int = Field(default=512, gt=0)
    iterations: int = Field(default=16, gt=0)
    samples: int = Field(default=3, gt=0)
    far_pin: bool = False  # once more with host memory on another NUMA node


class Interconnect(Record):
    """The node stage's part: path of every GPU, and copy rates."""

    path: PlannedPath
    copies: Copies | None = None  # by software.pytorch; without it the path is read with the GPUs at rest


class PathSettings(JobSettings):
    """Read the way to every GPU of a node; PyTorch, where there is one, keeps the links awake meanwhile."""

    former = ("python", "pythonpath")
    gpus: int
    path: PlannedPath


class CopiesSettings(JobSettings):
    """Copy between host and GPUs: each alone and so many at once, with host memory near and far."""

    former = ("python", "pythonpath")
    size_mib: int
    iterations: int
    samples: int
    gpus: int
    at_once: tuple[int, ...]
    pins: tuple[Literal["near", "far"], ...]


# A PCIe switch is one upstream port and the downstream ports below it, so a way through a switch crosses two
# bridges (PCI Express Base Specification, 1.3.3). A link is described by what hangs at its lower end.

# Device/port types of the PCI Express capability (Base Specification, 7.5.3.2).
ROOT_PORT, UPSTREAM, DOWNSTREAM = 4, 5, 6


@dataclass(frozen=True)
class PcieLink:
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
    links: tuple[PcieLink, ...]

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


def _link(upper: str, device: HostDevice | None, bdf: str, shared_by: int, to_gpu: bool) -> PcieLink:
    return PcieLink(
        upper=upper,
        lower=bdf,
        speed_gt_s=device.speed_gt_s if device else None,
        max_speed_gt_s=device.max_speed_gt_s if device else None,
        width=device.width if device else None,
        shared_by=shared_by,
        to_gpu=to_gpu,
    )


def _ends_a_link(place: int, device: HostDevice | None, length: int) -> bool:
    """Upstream ports and the GPU end a link; root and downstream ports begin one."""
    if place == length - 1:
        return True
    if device is not None and device.port_type is not None:
        return device.port_type == UPSTREAM
    return place % 2 == 1  # root port, then pairs of upstream and downstream port


def _switches(bridges: Sequence[HostDevice | None]) -> int:
    """Count switches: by port type where the configuration space was readable, else two bridges a switch."""
    types = [bridge.port_type if bridge else None for bridge in bridges]
    if bridges and None not in types:
        return types.count(UPSTREAM)
    return max(0, len(bridges) - 1) // 2


def judge_paths(
    paths: Sequence[GpuPath],  # what was found
    plan: PlannedPath,  # what is planned for every GPU of the node
    *,
    gpus: int,  # how many GPUs the node must have
    loaded: bool,  # whether copies were under way: a GPU at rest may lower the speed of its link
) -> Iterator[tuple[int, str, bool, str]]:
    """Yield (GPU number, what, whether it differs from the plan, found and planned in words)."""
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


def pcie_path(output: Output[PathSettings]) -> Iterator[Value]:
    """Yield 0 or 1 for every GPU and question: whether what was found differs from the plan."""
    document = _document(output.text, output.file)
    order = output.order
    topology = parse_topology(json.dumps(document.get("topology")), file=str(output.file))
    judged = judge_paths(
        gpu_paths(topology), order.path, gpus=order.gpus, loaded=document.get("loaded") is True
    )
    for gpu, what, wrong, detail in judged:
        params: Params = {"gpu": gpu, "what": what}
        yield "wrong", float(wrong), "1", Better.LOWER, params, detail


def copies(output: Output[CopiesSettings]) -> Iterator[Value]:
    """Yield one direction's rates: of each GPU alone, of several at once, and what a wrong pin leaves."""
    rows = _rows(output.text, output.file)
    alone = {
        (row["pin"], row["gpus"][0], direction): median
        for row in rows
        if len(row["gpus"]) == 1
        for direction, median in _medians(row).items()
    }
    direction = output.record.direction or ""
    for row in rows:
        value = _medians(row).get(direction)
        if row["pin"] == "near" and value is not None:
            count = len(row["gpus"])
            params: Params = {"gpus": count, "gpu": row["gpus"][0]} if count == 1 else {"gpus": count}
            yield "bandwidth", value, "GB/s", Better.HIGHER, params
    for (pin, gpu, way), value in alone.items():
        near = alone.get(("near", gpu, way))
        if pin == "far" and way == direction and near:
            cost = f"the wrong NUMA pin costs {1 - value / near:.1%}: {value:.2f} of {near:.2f} GB/s"
            yield "far_pin", value / near, "x", Better.HIGHER, {"gpu": gpu}, cost


def _medians(row: dict[str, Any]) -> dict[str, float]:
    """Return the sum over the row's GPUs of each one's median rate, in GB/s, by direction."""
    duplex = "_duplex" if "+" in row["traffic"] else ""
    return {
        f"{direction}{duplex}": sum(statistics.median(samples) for samples in by_gpu.values())
        for direction, by_gpu in row["gb_per_s"].items()
    }


def _rows(text: str, file: Path) -> list[dict[str, Any]]:
    """Return the document's rows, each with a positive number for every sample of every GPU."""
    rows = _document(text, file).get("rows")
    try:
        assert isinstance(rows, list) and rows
        for row in rows:
            assert row["pin"] in {"near", "far"} and row["traffic"] in {"h2d", "d2h", "h2d+d2h"}
            gpus = [str(int(gpu)) for gpu in row["gpus"]]
            assert gpus and set(row["gb_per_s"]) == set(row["traffic"].split("+"))
            for by_gpu in row["gb_per_s"].values():
                assert sorted(by_gpu) == sorted(gpus)
                assert all(samples and all(float(s) > 0 for s in samples) for samples in by_gpu.values())
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput("not the document of the copies", fix="run the job again", file=file) from error
    return rows


def _document(text: str, file: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, ValidationError) as error:
        raise BadInput(f"no JSON: {error}", file=file) from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise BadInput("not a document of schema 1", file=file)
    return document


PATH_TEST = "pcie_path"


@dataclass(frozen=True)
class GpuWay:
    """One GPU's way from the root port, drawn in one line."""

    node: str
    gpu: int
    drawn: str


def read_ways(run: Path, measurements: Iterable[Measurement]) -> tuple[GpuWay, ...]:
    """Return the way of every GPU of the run; files that cannot be read are passed over."""
    return of_documents(run, measurements, PATH_TEST, _ways)


def _ways(m: Measurement, document: Any) -> Iterator[GpuWay]:  # noqa: ANN401  (JSON of the job)
    paths = gpu_paths(parse_topology(json.dumps(document["topology"])))
    return iter([GpuWay(m.nodes[0], path.index, path.drawn()) for path in paths])
