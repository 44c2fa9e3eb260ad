"""nvbandwidth's `-j` output (0.4 to 0.8; read from json_output.cpp).

Bandwidths are GB/s = 10^9 byte/s, latencies nanoseconds; the tool names the unit at the end of a test's
description. "N/A" (a GPU with itself) is None.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Source, half_digit, quote

Status = Literal["Passed", "Waived", "Not Found", "Error", "Running"]
Matrix = tuple[tuple[Amount | None, ...], ...]

_UNIT = re.compile(r"\((GB/s|ns)\)\Z")
_DEVICE = re.compile(
    r"(?P<index>\d{1,6}): (?P<name>.+?) \((?P<pci>[0-9a-fA-F:.]+)\)(?:: \((?P<host>[^()]*)\))?\Z"
)


class NvbandwidthTest(Record):
    """One test case. Rows and columns are GPUs, or the CPU as the only row; `description` says which."""

    name: str
    status: Status  # only Passed has values
    description: str | None
    bandwidth_gb_per_s: Matrix | None
    latency_ns: Matrix | None


class NvbandwidthDevice(Record):
    """A GPU as the tool numbers it."""

    index: Count
    name: str
    pci: str
    host: str | None


class NvbandwidthResult(Record):
    """One nvbandwidth run."""

    tool: Literal["nvbandwidth"] = "nvbandwidth"
    version: str
    cuda_runtime: Count
    driver: str
    devices: tuple[NvbandwidthDevice, ...]
    tests: tuple[NvbandwidthTest, ...] = Field(min_length=1)
    error: str | None
    warning: str | None


class _Loose(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Case(_Loose):
    name: str
    status: Status
    bandwidth_description: str | None = None
    bandwidth_matrix: list[list[str]] | None = None
    sum: float | int | None = None


class _Run(_Loose):
    version: str
    cuda: Annotated[int, Field(ge=0, alias="CUDA Runtime Version")]
    driver: str = Field(alias="Driver Version")
    devices: list[str] = Field(alias="GPU Device list", default=[])
    testcases: list[_Case]
    error: str | None = None
    warning: str | None = None


def parse_nvbandwidth(text: str, *, file: str | Path | None = None) -> NvbandwidthResult:
    """Parse the output of `nvbandwidth -j`.

    Raises:
        BadInput: not the tool's JSON, truncated, no test case, or a passed test without its numbers.
    """
    source = Source(text, file)
    document = source.json(by="nvbandwidth -j")
    if not isinstance(document, dict) or not isinstance(document.get("nvbandwidth"), dict):
        source.refuse("not the JSON that nvbandwidth -j writes")
    inner = document["nvbandwidth"]
    if inner.get("error") and not inner.get("testcases"):
        fix = "mend the cause and run the test again"
        source.refuse(f"the tool reported an error: {quote(inner['error'])}", fix=fix)
    run = source.validate(_Run, inner)
    devices = tuple(_device(source, device) for device in run.devices)
    columns = max((len(row) for case in run.testcases for row in case.bandwidth_matrix or []), default=0)
    if devices and ([x.index for x in devices] != list(range(len(devices))) or columns > len(devices)):
        source.refuse("the list of GPUs is not complete, or not in order", fix="run the test again")
    return source.build(
        NvbandwidthResult,
        version=run.version,
        cuda_runtime=run.cuda,
        driver=run.driver,
        devices=devices,
        tests=tuple(_test(source, case) for case in run.testcases),
        error=run.error,
        warning=run.warning,
    )


def _device(source: Source, text: str) -> NvbandwidthDevice:
    match = _DEVICE.match(text)
    if match is None:
        source.refuse(f"not a GPU and its address: {quote(text)}")
    index = source.integer(match["index"], "GPU number")
    return source.build(
        NvbandwidthDevice, index=index, name=match["name"], pci=match["pci"], host=match["host"]
    )


def _test(source: Source, case: _Case) -> NvbandwidthTest:
    matrix, unit = None, None
    if case.status == "Passed":
        unit = _UNIT.search(case.bandwidth_description or "")
        if unit is None or not case.bandwidth_matrix:
            source.refuse(f"{case.name} passed but has no numbers or no unit", fix="run the test again")
        matrix = _matrix(source, case)
    return source.build(
        NvbandwidthTest,
        name=case.name,
        status=case.status,
        description=case.bandwidth_description,
        bandwidth_gb_per_s=matrix if unit and unit[1] == "GB/s" else None,
        latency_ns=matrix if unit and unit[1] == "ns" else None,
    )


def _matrix(source: Source, case: _Case) -> Matrix:
    """Read the matrix; its sum must be the one that the tool states."""
    rows = case.bandwidth_matrix or []
    # Of GPUs that copy both ways at once the tool gives one way, the other and both, one matrix below the
    # other; description and sum are the last one's (0.4 to 0.8: json_output.cpp, addTestcaseResults).
    if case.name.startswith("device_to_device_bidirectional") and rows and len(rows) == 3 * len(rows[0]):
        rows = rows[-len(rows[0]) :]
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        source.refuse(f"{case.name}: the rows of the matrix differ in length")
    matrix = tuple(
        tuple(None if word == "N/A" else source.number(word, case.name) for word in row) for row in rows
    )
    # "N/A" is a GPU with itself: the diagonal of a square, and nothing else.
    absent = [(i, j) for i, row in enumerate(rows) for j, word in enumerate(row) if word == "N/A"]
    if absent and absent != [(i, i) for i in range(len(rows))]:
        source.refuse(f"{case.name}: N/A beside the diagonal of the matrix")
    total, slack = 0.0, 0.0
    for value, word in zip(chain(*matrix), chain(*rows), strict=True):
        if value is not None:
            # Six significant digits, trailing zeros not printed: half a digit may be less than it seems.
            total, slack = total + value, slack + max(half_digit(word), abs(value) * 5e-6)
    if case.sum is None or not abs(case.sum - total) <= slack:
        source.refuse(f"{case.name}: the sum {case.sum} is not that of the matrix ({total:.6g})")
    return matrix
