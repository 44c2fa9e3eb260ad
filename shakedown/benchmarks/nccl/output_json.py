"""The file that nccl-tests programs write with -J (2.17 to 2.19, schema versions 1 to 3).

It holds the whole environment of the job, secrets included: `env` is dropped before anything else is looked
at. A program that fails still closes its brackets, so the file is complete only with its last keys.
"""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shakedown.benchmarks.nccl.output_model import (
    Digits,
    NcclDevice,
    NcclResult,
    NcclRow,
    NcclTiming,
    check,
    checked,
    nccl_version,
    operation_of,
)
from shakedown.records.tool_text import Amount, Count, TextSource, quote

_HALF = 0.5e-6  # six decimals (%lf)


class _Loose(BaseModel):
    # Later versions may add keys; those that we need must be there and right.
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Timing(_Loose):
    time: Amount | None = None
    cpu_time: Amount | None = None
    alg_bw: Amount
    bus_bw: Amount
    nwrong: Amount | None


class _Spread(_Loose):
    iteration_min_us: Amount = Field(alias="min_us")
    iteration_max_us: Amount = Field(alias="max_us")
    iteration_p99_us: Amount = Field(alias="p99_us")
    iteration_cv_percent: Amount = Field(alias="cv_pct")


class _Row(_Loose):
    size: Count
    count: Count
    type: str
    redop: str
    root: str
    out_of_place: _Timing | None
    in_place: _Timing
    out_of_place_per_iter: _Spread | None = None
    in_place_per_iter: _Spread | None = None


class _Device(_Loose):
    rank: Count
    group: Count
    pid: Count
    host: str = Field(alias="hostname")
    device: Count
    pci: str = Field(alias="device_hex")
    name: str = Field(alias="device_info")


class _Config(_Loose):
    threads: Count = Field(alias="nthreads")
    gpus_per_thread: Count = Field(alias="ngpus")
    min_bytes: Count = Field(alias="minimum_bytes")
    max_bytes: Count = Field(alias="maximum_bytes")
    step_factor: Count | None = None
    step_bytes: Count | None = None
    warmup_iterations: Count = Field(alias="warmup_iters")
    iterations: Count
    aggregated_iterations: Count
    validation: Count
    cuda_graph: Count = Field(alias="graph")
    devices: Annotated[list[_Device], Field(min_length=1)]


class _OutOfBounds(_Loose):
    count: Count
    okay: Literal["true", "false"]


class _Average(_Loose):
    bandwidth: Amount


class _File(_Loose):
    version: Annotated[int, Field(ge=1, le=3)]
    args: Annotated[list[str], Field(min_length=1)]
    nccl_version: Count
    config: _Config
    results: Annotated[list[_Row], Field(min_length=1)]
    out_of_bounds: _OutOfBounds
    average_bus_bandwidth: _Average
    errors: list[str]
    end_time: str


def parse(source: TextSource) -> NcclResult:
    """Parse the file; see `shakedown.benchmarks.nccl.output.parse_nccl`."""
    document = source.json()
    if not isinstance(document, dict):
        source.refuse("not the JSON that nccl-tests -J writes")
    document.pop("env", None)
    for key in _File.model_fields:
        if key not in document:
            source.ends_before(f"the key {key}", fix="run the test again; it failed or was killed")
    data = source.validate(_File, document)
    config = data.config
    if (config.step_factor is None) == (config.step_bytes is None):
        source.refuse("config: exactly one of step_factor and step_bytes is due")
    if data.out_of_bounds.count == 0 and data.out_of_bounds.okay != "true":
        source.refuse("out_of_bounds contradicts itself")
    rows = tuple(_row(source, row) for row in data.results)
    operation = operation_of(PurePosixPath(data.args[0]).name)
    timings = [t for row in data.results for t in (row.out_of_place, row.in_place) if t is not None]
    result = source.build(
        NcclResult,
        operation=operation,
        version=None,
        nccl_version=nccl_version(data.nccl_version),
        ranks=len(config.devices) * config.threads * config.gpus_per_thread,
        hosts=tuple(dict.fromkeys(device.host for device in config.devices)),
        devices=tuple(_device(source, device) for device in config.devices),
        **config.model_dump(exclude={"step_factor", "step_bytes", "devices"}),
        reduced_max_bytes=None,
        step=config.step_bytes if config.step_factor is None else config.step_factor,
        step_is_factor=config.step_factor is not None,
        cpu_time=timings[0].time is None,
        per_iteration=data.results[0].in_place_per_iter is not None,
        rows=rows,
        data_checked=checked(rows, operation),
        out_of_bounds=data.out_of_bounds.count,
        average_busbw_gb_per_s=data.average_bus_bandwidth.bandwidth,
        last_error=" ".join(error for error in data.errors if error) or None,
    )
    precision = Digits(time_us=_HALF, algbw=_HALF, busbw=_HALF)
    check(source, result, [(None, [precision] * (2 if row.out_of_place else 1)) for row in rows])
    return result


def _row(source: TextSource, row: _Row) -> NcclRow:
    out = row.out_of_place
    return source.build(
        NcclRow,
        size_bytes=row.size,
        count=row.count,
        dtype=row.type,
        redop=row.redop,
        root=source.integer(row.root.strip(), "root"),
        out_of_place=None if out is None else _timing(source, row, out, row.out_of_place_per_iter),
        in_place=_timing(source, row, row.in_place, row.in_place_per_iter),
    )


def _timing(source: TextSource, row: _Row, timing: _Timing, spread: _Spread | None) -> NcclTiming:
    if (timing.time is None) == (timing.cpu_time is None):
        source.refuse(f"the row of {row.size} bytes: exactly one of time and cpu_time is due")
    wrong = timing.nwrong
    if wrong is not None and wrong != int(wrong):
        source.refuse(f"nwrong should be a whole number but is {wrong}")
    return source.build(
        NcclTiming,
        time_us=timing.cpu_time if timing.time is None else timing.time,
        algbw_gb_per_s=timing.alg_bw,
        busbw_gb_per_s=timing.bus_bw,
        wrong=None if wrong is None else int(wrong),
        **(spread.model_dump() if spread else {}),
    )


def _device(source: TextSource, device: _Device) -> NcclDevice:
    if not re.fullmatch(r"[0-9a-fA-Fx:.]+", device.pci):
        source.refuse(f"device_hex should be a PCI address but is {quote(device.pci)}")
    return source.build(NcclDevice, **device.model_dump())
