"""What nvidia-smi (`topo -m`, `--query-gpu=... --format=csv`) and nvbandwidth (`-j`, 0.4 to 0.8) print."""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Amount, Count, Line, TextSource, half_digit, quote

_LINK = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,3})\Z")
_DEVICE = re.compile(r"(?:GPU|NIC|mlx|bnxt|rdma|ib|roce|rocep|irdma|ionic|erdma)\w{0,32}\Z")
_NIC = re.compile(r"\s*(NIC[0-9]{1,4}): (\S+)\Z")
# Some fields have capitals within (fabric.cliqueId), some units a slash (W/s, since driver 610).
_FIELD = re.compile(r"(?P<name>[a-z][A-Za-z0-9_.]*)(?: \[(?P<unit>[A-Za-z%/]+)\])?\Z")
_FAILED = re.compile(
    r"NVIDIA-SMI has failed|No devices were found|Failed to initialize NVML|Unable to determine"
)
# Of one GPU that is gone, or hung, where it lists others still.
LOST = re.compile(r"Unable to determine the device handle|GPU is lost|[Rr]equires [Rr]eset")
# What nvidia-smi prints without a query: `-q`, its table, `-x`.
_REPORT = re.compile(r"=+NVSMI LOG=+|\| NVIDIA-SMI |<nvidia_smi_log>")

# Fields without a unit that are numbers all the same.
_NUMERIC = re.compile(
    r"(?:index|count|fan\.speed|temperature\.[a-z.]+|pcie\.link\.(?:gen|width)\.[a-z]+"
    r"|ecc\.errors\.[a-z0-9_.]+|retired_pages\.[a-z_]+\.count)\Z"
)
# What tells one GPU from another, and what tells the rows of one GPU apart.
_IDENTITY = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
_APART = ("timestamp", "pid", "retired_pages.cause", "retired_pages.address")
# A field that the driver knows and has nothing for, of this GPU or any more (display_mode, since driver 590).
_ABSENT = {
    *("[N/A]", "N/A", "[Not Supported]", "Not Supported"),
    "[Requested functionality has been deprecated]",
}
_ERROR = re.compile(r"\[[A-Z]|ERR!")  # of a GPU that does not answer: "[Unknown Error]"
# What a maker has written into the board, or has not: platform.chassis_serial_number.
_MAYBE_BLANK = "platform."

Value = int | float | str | None


class TopologyRow(Record):
    """A GPU or NIC: its link to every device, in the order of `TopologyResult.rows`."""

    device: str
    links: tuple[str, ...]  # X (itself), NV# (# NVLinks), PIX, PXB, PHB, NODE, SYS
    cpu_affinity: str | None
    numa_affinity: str | None
    nic: str | None  # the RDMA device behind NIC0, NIC1, ...


class TopologyResult(Record):
    """`nvidia-smi topo -m`."""

    tool: Literal["nvidia-smi topo"] = "nvidia-smi topo"
    rows: tuple[TopologyRow, ...] = Field(min_length=1)

    def link(self, one: str, other: str) -> str:
        """The link between two devices. Raises KeyError: there is no such device."""
        names = [row.device for row in self.rows]
        if one not in names or other not in names:
            raise KeyError(one if one not in names else other)
        return self.rows[names.index(one)].links[names.index(other)]


class QueryResult(Record):
    """`nvidia-smi --query-gpu`: one dictionary a GPU. None: the GPU does not have it ("[N/A]"), not 0."""

    tool: Literal["nvidia-smi query"] = "nvidia-smi query"
    units: dict[str, str]  # field: unit (MiB, W, MHz, %), of the fields whose unit is known
    gpus: tuple[dict[str, Value], ...]  # none only of lists that may be empty, as of processes
    warnings: tuple[str, ...] = ()  # what it says of a board beside the table, as of a corrupted infoROM


def parse_nvidia_smi(
    text: str, *, file: str | Path | None = None, fields: Sequence[str] = ()
) -> TopologyResult | QueryResult:
    """Parse either output, whichever it is; `fields` as for `parse_query`."""
    source = TextSource(text, file)
    _refuse_failure(source)
    first = next(line for line in source.lines if line.text.strip())
    if "\t" in first.text and first.text.split("\t", 1)[0].strip() == "":
        return _topology(source)
    for line in source.lines:
        if re.match(r"\s*GPU0\s.{0,2000}Affinity", line.text):
            what = (
                "a topology that is not as `nvidia-smi topo -m` prints it: its header has a tab before GPU0"
            )
            fix = "save the output itself, alone in its file (a copy from a terminal has lost its tabs)"
            source.refuse(what, line=line, fix=fix)
    return _query(source, fields)


def parse_topology(text: str, *, file: str | Path | None = None) -> TopologyResult:
    """Parse `nvidia-smi topo -m`.

    Raises BadInput: truncated (the legend closes it), rows and columns that differ, links that contradict.
    """
    source = TextSource(text, file)
    _refuse_failure(source)
    return _topology(source)


def parse_query(
    text: str,
    *,
    file: str | Path | None = None,
    fields: Sequence[str] = (),
    samples: bool = False,
    strict: bool = True,
) -> QueryResult:
    """Parse `nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]`.

    Args:
        text: the output.
        file: the name to quote when it is refused.
        fields: the fields asked for, in order; needed with `noheader`, checked against a header.
        samples: the query was repeated (--loop): a GPU may stand there more than once.
        strict: if not, an error in a cell ("[GPU requires reset]") is kept as the words that it is, and what
            it says of a GPU that is lost is a warning.

    Raises BadInput: a GPU twice, a row with other columns than the header, text where a number is due, an
    error in a cell, a last line that was cut off.
    """
    source = TextSource(text, file)
    _refuse_failure(source, strict)
    return _query(source, fields, samples=samples, strict=strict)


def _refuse_failure(source: TextSource, strict: bool = True) -> None:
    for line in source.lines:
        if _FAILED.search(line.text) and (strict or not LOST.search(line.text)):
            fix = "mend the driver, then capture it again"
            source.refuse(f"nvidia-smi failed: {quote(line.text.strip())}", line=line, fix=fix)
        if _REPORT.match(line.text.strip()):
            fix = "capture `nvidia-smi --query-gpu=FIELDS --format=csv` or `nvidia-smi topo -m`"
            source.refuse("a report for people or XML, not a query's table", line=line, fix=fix)


def _topology(source: TextSource) -> TopologyResult:
    lines = [line for line in source.lines if line.text.strip()]
    header = [cell.strip() for cell in lines[0].text.split("\t")]
    titles = [i for i, cell in enumerate(header) if cell in {"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"}]
    names = header[1 : titles[0] if titles else len(header)]
    if (
        header[0]
        or not names
        or not all(_DEVICE.match(name) for name in names)
        or len(set(names)) < len(names)
    ):
        source.refuse("not the header of `nvidia-smi topo -m`", line=lines[0])
    legend = next((i for i, line in enumerate(lines) if line.text.strip() == "Legend:"), None)
    if legend is None or not any(line.text.strip().startswith("NV#") for line in lines[legend:]):
        source.ends_before("its legend")
    if not source.terminated:
        source.ends_before("the end of its last line")
    nics = _nics(source, lines[legend:], names)
    if [line.text.split("\t", 1)[0].strip() for line in lines[1:legend]] != names:
        source.refuse(
            "the rows are not the devices of the header", line=lines[0], fix="capture it again, whole"
        )
    rows = [_row(source, line, names, nics) for line in lines[1:legend]]
    for i, row in enumerate(rows):
        for j, link in enumerate(row.links):
            if rows[j].links[i] != link or (link == "X") != (i == j):
                what = f"{names[i]} to {names[j]} is {link}, back it is {rows[j].links[i]}"
                source.refuse(what, line=lines[1 + i], fix="capture it again")
    return source.build(TopologyResult, rows=tuple(rows))


def _row(source: TextSource, line: Line, names: list[str], nics: dict[str, str]) -> TopologyRow:
    cells = [cell.strip() for cell in line.text.split("\t")]
    links, rest = cells[1 : 1 + len(names)], cells[1 + len(names) :]
    if len(links) != len(names):
        source.refuse(f"{cells[0]} has {len(links)} links, {len(names)} are due", line=line)
    for link in links:
        if not _LINK.match(link):
            source.refuse(f"unknown link {quote(link)}", line=line)
    affinity = [*rest, "", ""]
    return source.build(
        TopologyRow,
        line=line,
        device=cells[0],
        links=tuple(links),
        cpu_affinity=affinity[0] or None,
        numa_affinity=affinity[1] or None,
        nic=nics.get(cells[0]),
    )


def _nics(source: TextSource, lines: list[Line], names: list[str]) -> dict[str, str]:
    nics = {match[1]: match[2] for line in lines if (match := _NIC.match(line.text))}
    missing = [name for name in names if name.startswith("NIC") and name not in nics]
    if missing:
        source.ends_before(f"the line of its NIC legend for {missing[0]}")
    return nics


def _query(
    source: TextSource, fields: Sequence[str], *, samples: bool = False, strict: bool = True
) -> QueryResult:
    lines = [line for line in source.lines if line.text.strip()]
    aside = re.compile("WARNING: " if strict else "WARNING: |Unable to determine the device handle")
    warnings = [line.text.strip() for line in lines if aside.match(line.text)]
    lines = [line for line in lines if line.text.strip() not in warnings] or lines
    names, units = list(fields), {}
    # Only a header consists of field names alone: a row has a number, a capital or a bracket somewhere.
    header = [_FIELD.match(cell.strip()) for cell in lines[0].text.split(",")]
    if all(header):
        named = [match["name"] for match in header if match]
        units = {match["name"]: match["unit"] for match in header if match and match["unit"]}
        if fields and named != names:
            what = f"the header names {quote(', '.join(named))}, expected were {quote(', '.join(names))}"
            source.refuse(what, line=lines[0])
        names, lines = named, lines[1:]
    elif not fields:
        fix = "capture it with its header, or name the fields (--fields)"
        source.refuse("no header, so the columns are unknown", line=lines[0], fix=fix)
    if len(set(names)) < len(names):
        source.refuse("a field appears twice", fix="ask for every field once")
    # No GPU may run a process, or have rows to remap; what is asked of each GPU has a row for each.
    may_be_empty = not set(_IDENTITY).isdisjoint(names) and names[0].startswith(("gpu_", "pid"))
    if not source.terminated or not (lines or may_be_empty):
        source.ends_before("the end of the table", fix="capture it again")
    gpus = tuple(_gpu(source, line, names, units, strict) for line in lines)
    if not samples:
        _refuse_twice(source, lines, gpus)
    return source.build(QueryResult, units=units, gpus=gpus, warnings=tuple(warnings))


def _refuse_twice(source: TextSource, lines: list[Line], gpus: Sequence[dict[str, Value]]) -> None:
    """Refuse two rows of one GPU that nothing else of theirs tells apart."""
    seen: set[tuple[object, ...]] = set()
    for line, gpu in zip(lines, gpus, strict=True):
        for name in _IDENTITY:
            key = (name, gpu.get(name), *(gpu.get(other) for other in _APART))
            if key[1] is not None and key in seen:
                fix = "keep one query a file; see the node if nvidia-smi itself lists it twice"
                source.refuse(f"{name} {key[1]} appears twice", line=line, fix=fix)
            seen.add(key)


def _gpu(
    source: TextSource, line: Line, names: list[str], units: dict[str, str], strict: bool
) -> dict[str, Value]:
    cells = [cell.strip() for cell in line.text.split(",")]
    if len(cells) != len(names):
        source.refuse(f"a row of {len(cells)} columns, {len(names)} are due", line=line)
    row: dict[str, Value] = {}
    for name, cell in zip(names, cells, strict=True):
        error = not strict and _ERROR.match(cell) and cell not in _ABSENT
        row[name] = cell if error else _value(source, line, name, cell, units)
    return row


def _value(source: TextSource, line: Line, name: str, cell: str, units: dict[str, str]) -> Value:
    if cell in _ABSENT or (not cell and name.startswith(_MAYBE_BLANK)):
        return None
    if not cell or cell.startswith("["):
        source.refuse(
            f"{name} is {quote(cell)}", line=line, fix="look at this GPU; nvidia-smi cannot read it"
        )
    number, _, unit = cell.partition(" ")
    known = units.get(name)
    if known is None and not _NUMERIC.match(name):
        # Without a header only the unit in the cell shows that it is a number.
        if unit in {"MiB", "W", "MHz", "%", "us", "C"} and re.match(r"[0-9.]+\Z", number):
            units[name] = unit
        else:
            return cell
    elif unit and unit != known:
        source.refuse(f"{name} is in {quote(unit)}, the header says {quote(known)}", line=line)
    value = source.number(number, name, line=line)
    return int(value) if re.fullmatch(r"-?[0-9]+", number) else value


# nvbandwidth (0.4 to 0.8; read from json_output.cpp): bandwidths are GB/s = 10^9 byte/s, latencies
# nanoseconds; the tool names the unit at the end of a test's description. "N/A" is None, and no part of the
# sum: a GPU with itself, or with one that it could not reach.

Status = Literal["Passed", "Waived", "Not Found", "Error", "Running"]
Matrix = tuple[tuple[Amount | None, ...], ...]

_UNIT = re.compile(r"\((GB/s|ns)\)\Z")
_COPY_DEVICE = re.compile(
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

    Raises BadInput: not the tool's JSON, truncated, no test case, or a passed test without its numbers.
    """
    source = TextSource(text, file)
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


def _device(source: TextSource, text: str) -> NvbandwidthDevice:
    match = _COPY_DEVICE.match(text)
    if match is None:
        source.refuse(f"not a GPU and its address: {quote(text)}")
    index = source.integer(match["index"], "GPU number")
    return source.build(
        NvbandwidthDevice, index=index, name=match["name"], pci=match["pci"], host=match["host"]
    )


def _test(source: TextSource, case: _Case) -> NvbandwidthTest:
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


def _matrix(source: TextSource, case: _Case) -> Matrix:
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
    total, slack = 0.0, 0.0
    for value, word in zip(chain(*matrix), chain(*rows), strict=True):
        if value is not None:
            # Six significant digits, trailing zeros not printed: half a digit may be less than it seems.
            total, slack = total + value, slack + max(half_digit(word), abs(value) * 5e-6)
    if case.sum is None or not abs(case.sum - total) <= slack:
        source.refuse(f"{case.name}: the sum {case.sum} is not that of the matrix ({total:.6g})")
    return matrix
