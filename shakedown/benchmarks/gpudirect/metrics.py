"""What a NIC carries of each memory, its share of what host memory gives, and which memory it really was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field, ValidationError

from shakedown.benchmarks.base.metrics import Moved, Output, Read, Value
from shakedown.benchmarks.gpudirect.names import HOST, gpus_name, perftests_of
from shakedown.benchmarks.gpudirect.order import GpuDirectOrder
from shakedown.benchmarks.gpudirect.proof import Used, used
from shakedown.benchmarks.perftest.mesh.schedule import client_and_server, nic_rail
from shakedown.benchmarks.perftest.metrics import moved as moved_by_perftest
from shakedown.benchmarks.perftest.metrics import perftest
from shakedown.records.base import Better, Record
from shakedown.records.errors import BadInput
from shakedown.records.refusals import refusal
from shakedown.records.results import Problem

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


def gpudirect(output: Output[GpuDirectOrder]) -> Iterator[Value]:
    """Yield the bandwidth; of GPU memory also its share of host memory's and what was wrong with the memory.

    Raises:
        BadInput: an output or a node's note cannot be read, or is of something else than ordered.
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
        why = Problem(kind="setup", message="; ".join(wrong)[:2000])
        yield Read(metric, None, unit, better, {}, problem=why)
        yield Read("share_of_host", None, "%", Better.HIGHER, {}, problem=why)
        return
    yield metric, value, unit, better, {}, told
    try:
        beside = _bandwidth(_of_host(output))[1]
    except (BadInput, OSError) as refused:
        nothing = Problem(kind="other", message=f"host memory gave no value beside it: {refused}"[:2000])
        yield Read("share_of_host", None, "%", Better.HIGHER, {}, problem=nothing)
        return
    text = f"{value:.6g} {unit} of GPU memory, {beside:.6g} of host memory on the same NICs; {told}"
    yield "share_of_host", 100 * value / beside, "%", Better.HIGHER, {}, text


def moved(output: Output[GpuDirectOrder]) -> Iterator[Moved]:
    """Yield the payload that perftest says it moved, in bytes. Raises BadInput."""
    yield from moved_by_perftest(_as_perftests(output))


def _as_perftests(output: Output[GpuDirectOrder]) -> Output[GpuDirectOrder]:
    record = output.record.model_copy(update={"test": perftests_of(output.record.test)})
    return replace(output, record=record)


def _bandwidth(output: Output[GpuDirectOrder]) -> tuple[str, float, str, Better]:
    found = [value[:4] for value in perftest(_as_perftests(output))]
    for metric, value, unit, better in found:
        if value is not None and value > 0:
            return metric, value, unit, better
    raise BadInput("holds no bandwidth of the ordered size", fix=_AGAIN, file=output.file)


def _of_host(output: Output[GpuDirectOrder]) -> Output[GpuDirectOrder]:
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


def _memory(output: Output[GpuDirectOrder], memory: str) -> tuple[list[str], str]:
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


def _gpu(output: Output[GpuDirectOrder], node: str, rail: str, memory: str) -> _Gpu:
    name = gpus_name(node)
    file = output.folder.path / name
    try:
        found = _Found.model_validate_json(output.folder.text(name))
    except ValidationError as error:
        about = "no note of GPUs near and far"
        raise refusal(error, _Found, file=file, about=about, fix=_AGAIN) from None
    gpus = [gpu for gpu in found.gpus if (gpu.rail, gpu.memory) == (rail, memory)]
    if found.node != node or len(gpus) != 1:
        raise BadInput(f"does not name exactly one {memory} GPU of {node}/{rail}", fix=_AGAIN, file=file)
    return gpus[0]
