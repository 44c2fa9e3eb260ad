"""What a NIC carries of each memory, its share of what host memory gives, and which memory it really was."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from shakedown.benchmarks.base.contract import Moved, NoneTwice, Output, Read, Value
from shakedown.benchmarks.gpudirect.job import HOST, gpus_name, perftests_of
from shakedown.benchmarks.perftest.mesh.schedule import client_and_server, nic_rail
from shakedown.benchmarks.perftest.metrics import moved as moved_by_perftest
from shakedown.benchmarks.perftest.metrics import perftest
from shakedown.benchmarks.perftest.settings import MeshSettings
from shakedown.records.base import Better, Record
from shakedown.records.reading import BadInput, read_as
from shakedown.records.results import RunProblem

Operation = Literal["write", "read", "send"]
Gpu = Literal["near", "far"]
# CUDA's options are --use_cuda and --use_cuda_dmabuf, ROCm's --use_rocm and --use_rocm_dmabuf.
Interface = Literal["cuda", "rocm"]
# How the NIC reaches the GPU's memory: by dma-buf, or by a peer-memory module (nvidia_peermem,
# ib_peer_mem, amdgpu's own).
Path = Literal["dma-buf", "peer-mem"]


class GpuDirect(Record):
    """perftest from GPU memory to GPU memory over every NIC, and from host memory beside it."""

    # What perftest runs: ib_write_bw, ib_read_bw, ib_send_bw.
    operations: Annotated[tuple[Operation, ...], NoneTwice] = Field(
        default=("write", "read", "send"), min_length=1
    )
    # Of which GPU the memory is: the nearest to the NIC, and one of the farthest.
    gpus: Annotated[tuple[Gpu, ...], NoneTwice] = Field(default=("near", "far"), min_length=1)
    interface: Interface = "cuda"  # perftest must be built with it
    path: Path = "dma-buf"  # what is ordered of perftest, and proved by what it prints
    size_bytes: int = Field(default=1048576, ge=65536, le=1 << 30)  # of one message, in bytes
    # Seconds of each measurement; perftest counts the middle of it.
    duration_s: int = Field(default=4, ge=2, le=600)
    bidirectional: bool = False  # also both ways at once (perftest -b); the value is the sum of both


class Memory(Record):
    """How perftest reaches GPU memory."""

    interface: Interface  # what allocates it
    path: Path  # how NICs reach it
    gpus: int  # how many the job has on each node


class GpuDirectSettings(MeshSettings):
    """The mesh's own order, and how GPU memory is reached."""

    memory: Memory


# Lines are those of perftest's sources, 4.5 to 26.x: cuda_memory.c and rocm_memory.c, before 24.01
# perftest_resources.c (pp_init_gpu, pp_init_rocm).

_LISTED = re.compile(r"CUDA device (\d{1,3}): PCIe address is ([0-9A-Fa-f]{2,4}):([0-9A-Fa-f]{2})\s*\Z")
_PICKED = re.compile(r"Picking device No\. (\d{1,3})\s*\Z")
_ROCM = re.compile(r"Using ROCm Device with ID: \d{1,3}, Name: .{0,200}, PCI Bus ID: 0x([0-9a-fA-F]{1,4}), ")
_BUFFER = re.compile(r"allocated (?:\d+ bytes of )?GPU buffer ")
_DMABUF = "using DMA-BUF for GPU buffer address at "


@dataclass(frozen=True)
class Used:
    """What one side of perftest printed of its memory."""

    gpu: bool  # whether its buffer is a GPU's
    # Of a GPU's buffer, dma-buf or peer-mem: perftest registers the GPU's address itself where it names no
    # dma-buf, which only a peer-memory module makes possible.
    path: str
    address: str  # of the GPU, as far as it was printed: `18:00`, ROCm's `18`; empty: not printed

    def is_of(self, bdf: str) -> bool:
        """Whether the GPU is the one with this PCI address."""
        bus_and_device = bdf.partition(":")[2].partition(".")[0]
        return bool(self.address) and bus_and_device.startswith(self.address)


def used(text: str) -> Used:
    """Return what an output says of its memory."""
    listed: dict[str, str] = {}
    picked = address = ""
    gpu = dmabuf = False
    for raw in text.splitlines():
        line = raw.strip()
        if found := _LISTED.match(line):
            listed[found[1]] = f"{found[2]}:{found[3]}".lower()
        elif found := _PICKED.match(line):
            picked = found[1]
        elif found := _ROCM.match(line):
            address = f"{int(found[1], 16):02x}"
        gpu = gpu or _BUFFER.match(line) is not None
        dmabuf = dmabuf or line.startswith(_DMABUF)
    return Used(gpu or dmabuf, "dma-buf" if dmabuf else "peer-mem", listed.get(picked, "") or address)


_AGAIN = "measure the cell again"


class _Gpu(Record):
    rail: str
    memory: str
    index: int
    bdf: str
    distance: str


class _Found(Record):
    """Which GPUs a node found near and far of its NICs (nearest.py)."""

    schema_: Literal[1] = Field(alias="schema")
    node: str
    gpus: tuple[_Gpu, ...]


def gpudirect(output: Output[GpuDirectSettings]) -> Iterator[Value]:
    """Yield the bandwidth; of GPU memory also its share of host memory's and what was wrong with the memory.

    Raises BadInput: an output or a node's note cannot be read, or is of something else than ordered.
    """
    memory = output.record.params.get("memory")
    metric, value, unit, better = _bandwidth(output)
    if memory == HOST:
        if used(output.text).gpu:
            raise BadInput("perftest used GPU memory, host memory was ordered", fix=_AGAIN, file=output.file)
        yield metric, value, unit, better, {}
        return
    wrong, told = _memory(output, str(memory))
    yield "wrong_memory", float(len(wrong)), "1", Better.LOWER, {}, "; ".join(wrong)[:900] or told
    if wrong:
        # What was measured is no GPUDirect of this NIC and GPU.
        why = RunProblem(kind="setup", message="; ".join(wrong)[:2000])
        yield Read(metric, None, unit, better, {}, problem=why)
        yield Read("share_of_host", None, "%", Better.HIGHER, {}, problem=why)
        return
    yield metric, value, unit, better, {}, told
    try:
        beside = _bandwidth(_of_host(output))[1]
    except (BadInput, OSError) as refused:
        nothing = RunProblem(kind="other", message=f"host memory gave no value beside it: {refused}"[:2000])
        yield Read("share_of_host", None, "%", Better.HIGHER, {}, problem=nothing)
        return
    text = f"{value:.6g} {unit} of GPU memory, {beside:.6g} of host memory on the same NICs; {told}"
    yield "share_of_host", 100 * value / beside, "%", Better.HIGHER, {}, text


def moved(output: Output[GpuDirectSettings]) -> Iterator[Moved]:
    """Yield the payload that perftest says it moved, in bytes. Raises BadInput."""
    yield from moved_by_perftest(_as_perftests(output))


def _as_perftests(output: Output[GpuDirectSettings]) -> Output[GpuDirectSettings]:
    record = output.record.model_copy(update={"test": perftests_of(output.record.test)})
    return replace(output, record=record)


def _bandwidth(output: Output[GpuDirectSettings]) -> tuple[str, float, str, Better]:
    found = [value[:4] for value in perftest(_as_perftests(output))]
    for metric, value, unit, better in found:
        if value is not None and value > 0:
            return metric, value, unit, better
    raise BadInput("holds no bandwidth of the ordered size", fix=_AGAIN, file=output.file)


def _of_host(output: Output[GpuDirectSettings]) -> Output[GpuDirectSettings]:
    """Return the output of the same cell with host memory, which was measured before this one."""
    params = {**output.record.params, "memory": HOST}
    size, memory = output.record.params.get("size_bytes"), output.record.params.get("memory")
    name = output.record.file.replace(f".{size}.{memory}.", f".{size}.{HOST}.")
    first = name.replace(f".a{output.record.attempt}.txt", ".txt")
    name = name if output.folder.holds(name) else first
    if name == output.record.file or not output.folder.holds(name):
        raise BadInput(f"{name} is missing", fix=_AGAIN, file=output.file)
    record = output.record.model_copy(update={"file": name, "params": params})
    beside = replace(output, text=output.folder.text(name), record=record)
    if used(beside.text).gpu:
        raise BadInput(f"{name} is of GPU memory", fix=_AGAIN, file=beside.file)
    return beside


def _memory(output: Output[GpuDirectSettings], memory: str) -> tuple[list[str], str]:
    """Return what is wrong with the memory of either end, and what it was. Raises BadInput."""
    record, wanted = output.record, output.order.memory
    pair = (record.nodes[0], record.nodes[1])
    client, server = client_and_server(perftests_of(record.test), pair, record.direction or "")
    stem = record.file.removesuffix(".txt")
    texts = {client: output.text, server: output.folder.text(f"{stem}.server.txt")}
    wrong, told = [], []
    for node in pair:
        gpu = _gpu(output, node, nic_rail(node, pair, record.direction or "", record.rail or ""), memory)
        had = used(texts[node])
        if fault := _fault(had, wanted.path, gpu):
            wrong.append(f"{node}: {fault}")
        told.append(f"{node} GPU {gpu.index} ({gpu.bdf}, {gpu.distance}) by {had.path}")
    return wrong, ", ".join(told)


def _fault(had: Used, path: str, gpu: _Gpu) -> str:
    if not had.gpu:
        return f"perftest used host memory, that of GPU {gpu.index} ({gpu.bdf}) was ordered"
    if had.path != path:
        return f"perftest reached the GPU by {had.path}, {path} was ordered"
    if not had.is_of(gpu.bdf):
        return f"perftest used the GPU at {had.address or 'an address it did not print'}, not {gpu.bdf}"
    return ""


def _gpu(output: Output[GpuDirectSettings], node: str, rail: str, memory: str) -> _Gpu:
    name = gpus_name(node)
    file = output.folder.path / name
    about = "no note of GPUs near and far"
    found = read_as(_Found, output.folder.text(name), file=file, about=about, fix=_AGAIN)
    gpus = [gpu for gpu in found.gpus if (gpu.rail, gpu.memory) == (rail, memory)]
    if found.node != node or len(gpus) != 1:
        raise BadInput(f"does not name exactly one {memory} GPU of {node}/{rail}", fix=_AGAIN, file=file)
    return gpus[0]
