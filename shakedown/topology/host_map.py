"""The map of one host: which GPU is how near to which NIC, and what follows for Slurm and MPI."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shakedown.records.base import Name
from shakedown.records.reading import BadInput, refusal
from shakedown.topology.distance import NEAREST_FIRST, Distance, between, common, is_gpu

# The input is the document of `onnode/topology_probe.py`. Distances are those of `nvidia-smi topo -m` and
# NCCL: PIX, PXB, PHB, NODE, SYS, from near to far.

_Bdf = Annotated[str, Field(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]
_CpuList = Annotated[str, Field(pattern=r"^[0-9,-]{0,4000}$")]
_Word = Annotated[str, Field(max_length=128, pattern=r"^[\w .:+()/-]*$")]
_Hex = Annotated[str, Field(pattern=r"^(0x[0-9a-f]{1,8})?$")]


# NCCL uses GPUDirect RDMA up to this distance unless told otherwise (NCCL_NET_GDR_LEVEL).
GDR_LIMIT = Distance.PXB
_ORDER = NEAREST_FIRST


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class NumaNode(_Part):
    """A NUMA node."""

    node: int = Field(ge=0)
    cpus: _CpuList


class Core(_Part):
    """A physical core with its hardware threads."""

    package: int | None
    core: int | None
    threads: _CpuList


class HostDevice(_Part):
    """A PCI function; `path` are the bridges above it, from the root down."""

    bdf: _Bdf
    class_: _Hex = Field(alias="class")
    vendor: _Hex
    device: _Hex
    driver: _Word | None
    root: Annotated[str, Field(pattern=r"^(pci[0-9a-f]{4,8}:[0-9a-f]{2})?$")]
    path: tuple[_Bdf, ...]
    numa_node: int | None
    speed_gt_s: float | None
    max_speed_gt_s: float | None
    width: int | None
    max_width: int | None
    largest_bar_bytes: int = 0
    max_payload_bytes: int | None = None
    max_payload_supported_bytes: int | None = None
    max_read_request_bytes: int | None = None
    relaxed_ordering: bool | None = None
    acs_control: int | None = None
    port_type: int | None = None  # of the PCI Express capability; None where it was not readable
    netdevs: tuple[_Word, ...] = ()
    rdma: tuple[_Word, ...] = ()

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @property
    def is_gpu(self) -> bool:
        """A display controller or accelerator of NVIDIA or AMD; a server's own VGA chip is none."""
        return is_gpu(self.class_, self.vendor)

    @property
    def is_nic(self) -> bool:
        """A network controller."""
        return self.class_.startswith("0x02")

    @property
    def label(self) -> str:
        """The name that people use for it."""
        return "+".join((*self.rdma, *self.netdevs)) or self.bdf


class GpuName(_Part):
    """A GPU's number and name according to its driver."""

    index: Annotated[str, Field(pattern=r"^[0-9]{1,4}$")]
    bdf: _Bdf
    name: _Word


class Topology(_Part):
    """One host."""

    schema_: Literal[1] = Field(alias="schema")
    host: Name
    virtual: bool
    numa: tuple[NumaNode, ...]
    cores: tuple[Core, ...]
    devices: tuple[HostDevice, ...]
    gpus: tuple[GpuName, ...] = ()

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    def gpu_devices(self) -> list[HostDevice]:
        """The GPUs in the order of their numbers, else of their addresses."""
        number = {gpu.bdf: int(gpu.index) for gpu in self.gpus}
        found = [device for device in self.devices if device.is_gpu]
        return sorted(found, key=lambda d: (number.get(d.bdf, len(number)), d.bdf))

    def fabric_nics(self) -> list[HostDevice]:
        """The NICs with an RDMA device, in the order of their addresses."""
        return [device for device in self.devices if device.is_nic and device.rdma]

    def node_of(self, device: HostDevice) -> int | None:
        """The NUMA node of a device; on a host with one node every device is on it."""
        if device.numa_node is not None and device.numa_node >= 0:
            return device.numa_node
        return self.numa[0].node if len(self.numa) == 1 else None


def parse_topology(text: str | bytes, *, file: str | None = None) -> Topology:
    """Read a probe's document. Raises BadInput."""
    try:
        return TypeAdapter(Topology).validate_json(text)
    except ValidationError as error:
        raise refusal(
            error, Topology, file=file, about="no host topology", fix="print it with the probe"
        ) from None


def distance(topology: Topology, a: HostDevice, b: HostDevice) -> Distance:
    """How the path between two devices runs."""
    node = topology.node_of(a)
    return between(
        a.path,
        b.path,
        one_root=bool(a.root) and a.root == b.root,
        one_numa_node=node is not None and node == topology.node_of(b),
    )


class Pair(_Part):
    """A GPU with the NIC that it should use."""

    gpu: HostDevice
    nic: HostDevice
    distance: Distance


def pairs(topology: Topology) -> list[Pair]:
    """Give every GPU a NIC: near ones first, and no NIC twice while another as near is free."""
    gpus, nics = topology.gpu_devices(), topology.fabric_nics()
    used: dict[str, int] = {}
    chosen: dict[str, Pair] = {}
    options = sorted(
        (_ORDER.index(distance(topology, gpu, nic)), g, n)
        for g, gpu in enumerate(gpus)
        for n, nic in enumerate(nics)
    )
    # All pairs of one distance are served before any of the next, the least used NIC first.
    for far, group in groupby(options, key=lambda option: option[0]):
        waiting = [(g, n) for _, g, n in group]
        while open_ := [(used.get(nics[n].bdf, 0), g, n) for g, n in waiting if gpus[g].bdf not in chosen]:
            _, g, n = min(open_)
            chosen[gpus[g].bdf] = Pair(gpu=gpus[g], nic=nics[n], distance=_ORDER[far])
            used[nics[n].bdf] = used.get(nics[n].bdf, 0) + 1
    return [chosen[gpu.bdf] for gpu in gpus if gpu.bdf in chosen]


def acs_bridges(topology: Topology) -> list[str]:
    """Return the bridges between a GPU and its NIC that can send their traffic up to the host bridge (ACS).

    Only bridges below a common one matter: a pair that has none goes through the host bridge anyway.
    """
    controlled = {device.bdf for device in topology.devices if device.acs_control is not None}
    found: set[str] = set()
    for pair in pairs(topology):
        above = len(list(common(pair.gpu.path, pair.nic.path)))
        if above:
            found.update(pair.gpu.path[above:], pair.nic.path[above:])
    return sorted(found & controlled)


def problems(topology: Topology) -> list[str]:
    """What is wrong with the host as it is: one sentence each, with device, value found and value wanted."""
    found = list(_placement(topology)) + list(_links(topology))
    for pair in pairs(topology):
        if _ORDER.index(pair.distance) > _ORDER.index(GDR_LIMIT):
            found.append(
                f"GPU {pair.gpu.bdf}: its nearest NIC {pair.nic.label} is {pair.distance}; NCCL uses "
                f"GPUDirect only up to {GDR_LIMIT} unless NCCL_NET_GDR_LEVEL says otherwise"
            )
    return found


def _placement(topology: Topology) -> Iterator[str]:
    for device in (*topology.gpu_devices(), *topology.fabric_nics()):
        if topology.node_of(device) is None:
            nodes = len(topology.numa)
            yield f"{device.label}: numa_node is -1 on a host with {nodes} NUMA nodes; see the BIOS"
    if topology.gpu_devices() and not topology.fabric_nics():
        yield "there are GPUs and no NIC with an RDMA device"


def _links(topology: Topology) -> Iterator[str]:
    for device in (*topology.gpu_devices(), *topology.fabric_nics()):
        if device.width and device.max_width and device.width < device.max_width:
            yield f"{device.label} ({device.bdf}): PCIe link is x{device.width}, can be x{device.max_width}"
        # GPUs at rest lower their link's speed, so only NICs are held to it.
        if (
            device.is_nic
            and device.speed_gt_s
            and device.max_speed_gt_s
            and device.speed_gt_s < device.max_speed_gt_s
        ):
            yield (
                f"{device.label} ({device.bdf}): PCIe link runs at {device.speed_gt_s:g} GT/s, "
                f"can run at {device.max_speed_gt_s:g} GT/s"
            )


def cpu_numbers(cpus: str) -> list[int]:
    """The numbers in a kernel CPU list such as `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, cpus.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise BadInput(f"{cpus!r} is no list of CPUs", fix="write it like 0-3,8")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def number_list(numbers: Iterable[int]) -> str:
    """The kernel's way of writing CPU numbers: `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def core_indices(topology: Topology, node: int) -> list[int]:
    """Slurm's abstract numbers of a NUMA node's cores, counted package by package (gres.conf(5))."""
    [numa] = [n for n in topology.numa if n.node == node]
    cpus = set(cpu_numbers(numa.cpus))
    ordered = sorted(topology.cores, key=lambda c: (c.package or 0, c.core or 0))
    return [i for i, core in enumerate(ordered) if cpus & set(cpu_numbers(core.threads))]


def gres_conf(topology: Topology) -> str:
    """gres.conf lines for one node, for sites where Slurm has no NVML (`AutoDetect=nvml` otherwise).

    Raises BadInput: a GPU's NUMA node is unknown.
    """
    lines = []
    for number, gpu in enumerate(topology.gpu_devices()):
        node = topology.node_of(gpu)
        if node is None:
            raise BadInput(
                f"{topology.host}: GPU {gpu.bdf} has no NUMA node", fix="mend the BIOS setting first"
            )
        file = f"/dev/nvidia{number}" if gpu.vendor == "0x10de" else f"/dev/dri/renderD{128 + number}"
        cores = number_list(core_indices(topology, node))
        lines.append(f"NodeName={topology.host} Name=gpu File={file} Cores={cores}\n")
    return "".join(lines)


def mpi_options(topology: Topology) -> list[str]:
    """mpirun options that put one rank beside each GPU; without GPUs, one beside each NIC.

    Raises BadInput: the devices are not spread evenly over the NUMA nodes, so that a rank file is needed.
    """
    devices = topology.gpu_devices() or topology.fabric_nics()
    by_node: dict[int | None, int] = {}
    for device in devices:
        by_node[topology.node_of(device)] = by_node.get(topology.node_of(device), 0) + 1
    if len(set(by_node.values())) != 1 or len(by_node) != len(topology.numa):
        raise BadInput(
            f"{topology.host}: devices by NUMA node: {by_node or 'none'}", fix="use the rank file instead"
        )
    return ["--map-by", f"ppr:{next(iter(by_node.values()))}:numa", "--bind-to", "core"]


def rank_file(topology: Topology) -> str:
    """An Open MPI rank file: rank i on the cores nearest to GPU (or NIC) i, each core used once."""
    devices = topology.gpu_devices() or topology.fabric_nics()
    ordered = sorted(topology.cores, key=lambda c: (c.package or 0, c.core or 0))
    lines: list[str] = []
    sharers: dict[int | None, list[str]] = {}
    for device in devices:
        sharers.setdefault(topology.node_of(device), []).append(device.bdf)
    for rank, device in enumerate(devices):
        node = topology.node_of(device)
        if node is None:
            raise BadInput(
                f"{topology.host}: {device.label} has no NUMA node", fix="mend the BIOS setting first"
            )
        cores = core_indices(topology, node)
        share, place = len(cores) // len(sharers[node]), sharers[node].index(device.bdf)
        mine = cores[place * share : (place + 1) * share] or cores
        threads = [cpu_numbers(ordered[core].threads)[0] for core in mine]
        lines.append(f"rank {rank}={topology.host} slot={number_list(threads)}\n")
    return "".join(lines)


def slurm_topology(leaves_of: Mapping[str, Sequence[str]]) -> str:
    """topology.conf for a rail-optimised fabric: one logical switch for each group of nodes.

    Every node reaches every leaf of its group, so the group, not the leaf, is what is near. `leaves_of` gives
    each node's leaves in the order of rails. A single group needs no switch above it.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, leaves in leaves_of.items():
        groups.setdefault(tuple(leaves), []).append(node)
    names = {leaves: f"group{i}" for i, leaves in enumerate(sorted(groups))}
    lines = [
        f"SwitchName={names[leaves]} Nodes={','.join(sorted(groups[leaves]))}\n" for leaves in sorted(groups)
    ]
    if len(groups) > 1:
        lines.append(f"SwitchName=top Switches={','.join(names[leaves] for leaves in sorted(groups))}\n")
    return "".join(lines)
