"""What follows from a host's map for Slurm and MPI: gres.conf, ranks beside GPUs, rail groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shakedown.records.errors import BadInput
from shakedown.topology.host_map import Topology


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

    Raises:
        BadInput: a GPU's NUMA node is unknown.
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

    Raises:
        BadInput: the devices are not spread evenly over the NUMA nodes, so that a rank file is needed.
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
