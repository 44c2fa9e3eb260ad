"""What fio prints as JSON, and which metric each number is."""

import errno
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictFloat, StrictInt, model_validator

from shakedown.benchmarks.base.contract import JobSettings, NoneTwice, Output, Value
from shakedown.benchmarks.storage.job import CHECK, bytes_a_node, options
from shakedown.intent.software import AbsolutePath
from shakedown.records.base import Better, Record, shape
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import TextSource
from shakedown.records.wording import printable

Access = Literal["write", "read", "randread", "randwrite"]
_NAME = shape(r"^[a-z][a-z0-9_-]*$", "a short name in lower case", "scratch", max_length=40)
_TYPE = shape(r"^[a-z0-9_.-]+$", "a file system's type, as `stat -f` names it", "lustre", max_length=40)


def _deep(path: str) -> str:
    if not path.strip("/."):
        raise ValueError("a folder of its own below /, please")
    return path


class StoragePath(Record):
    """One folder that every node sees, on a disk of its own or on one file system for all."""

    name: Annotated[str, _NAME]  # in the cells
    # A folder that exists, in which the jobs' user may make one. Only files that the job makes are touched.
    path: Annotated[AbsolutePath, AfterValidator(_deep)]
    # One file system of all nodes: each node is also measured while the others rest.
    shared: bool = False
    # What the folder must lie on. Empty: of `shared`, a network's; else anything.
    filesystem: Annotated[str, _TYPE] | None = None
    # What is judged. Blocks are 1 MiB in sequence and 4 KiB at random.
    accesses: Annotated[tuple[Access, ...], NoneTwice] = Field(
        default=("write", "read", "randread", "randwrite"), min_length=1
    )
    processes: int = Field(default=4, ge=1, le=256)  # on each node, each with a file
    size_mib: int = Field(default=4096, ge=16, le=1 << 24)  # of each file
    depth: int = Field(default=16, ge=1, le=4096)  # requests of each process under way at once
    seconds: int = Field(default=30, ge=5, le=3600)  # that each access is measured
    fill_s: int = Field(default=120, ge=5, le=86400)  # longest that writing or checking all files may take
    # Past the page cache (O_DIRECT). false: for a file system that has it not; the files must then hold
    # twice the node's memory.
    direct: bool = True


class StorageSettings(JobSettings, StoragePath):
    """The site's options, and the nodes in the order of their turns."""

    turns: tuple[str, ...] = ()


class _Of(BaseModel):
    # fio prints a hundred more.
    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)


class _Latency(_Of):
    longest: float | None = Field(alias="max", default=None)
    percentile: dict[str, StrictFloat | StrictInt] = {}

    @model_validator(mode="after")
    def _in_order(self) -> "_Latency":
        told = [
            found for _, found in sorted((float(share), found) for share, found in self.percentile.items())
        ]
        # fio keeps them in bins of 1/64: the largest may be told a little above the longest.
        most = [] if self.longest is None else [1.02 * self.longest]
        if [*told, *most] != sorted([*told, *most]):
            raise ValueError("percentiles of the latencies that do not rise, or end above the longest")
        return self


class FioSide(_Of):
    """All that was read, or written, by all processes together."""

    io_bytes: int = Field(ge=0)
    bw_bytes: int = Field(ge=0)  # bytes a second
    iops: float = Field(ge=0)
    runtime_ms: int = Field(ge=0, alias="runtime")
    total_ios: int = Field(ge=0)
    short_ios: int = Field(ge=0)
    latency: _Latency = Field(alias="clat_ns", default=_Latency())

    @property
    def p99_us(self) -> float | None:
        """Of 99 in 100 requests, the longest, in microseconds."""
        found = self.latency.percentile.get("99.000000")
        return None if found is None else found / 1e3

    @model_validator(mode="after")
    def _rates_are_of_bytes_and_time(self) -> "FioSide":
        # A clock in milliseconds, and one request of each process may fall on either side of the ramp.
        seconds = self.runtime_ms / 1e3
        for rate, done, what in (
            (self.bw_bytes, self.io_bytes, "bytes"),
            (self.iops, self.total_ios, "requests"),
        ):
            timed = rate or seconds  # of what is only compared, what was once written is told again
            if timed and abs(rate * seconds - done) > 0.02 * done + 2 * rate / 1e3:
                raise ValueError(f"{done} {what} in {seconds} s are not {rate} a second")
        return self


class FioResult(_Of):
    """One run of fio, its processes reported as one group."""

    version: str
    ended_s: int  # when it wrote this, seconds since 1970 by the node's clock
    options: dict[str, str]
    error: int  # errno of the first process that failed; EILSEQ: data differ from what was written
    read: FioSide
    write: FioSide


def parse_fio(text: str, *, file: str | Path | None = None) -> FioResult:
    """Read fio's JSON of one group of processes, of fio 3.

    Raises BadInput: it is no such document, holds several groups, or a rate is not what its bytes and time
    give.
    """
    # "fio: multiple writers may overwrite blocks..." and the like stand before it.
    source = TextSource(text, file)
    document = source.json(by="fio --output-format=json")
    if not isinstance(document, dict) or not str(document.get("fio version")).startswith("fio-3"):
        source.refuse("not the JSON of fio 3", fix="capture `fio --group_reporting --output-format=json`")
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        source.refuse("not one group of processes", fix="run fio with --group_reporting and one job")
    said = [document.get("global options", {}), jobs[0].get("job options", {})]
    return source.validate(
        FioResult,
        {
            **{key: jobs[0].get(key) for key in ("error", "read", "write")},
            "version": str(document["fio version"]),
            "ended_s": document.get("timestamp"),
            "options": {k: str(v) for one in said if isinstance(one, dict) for k, v in one.items()},
        },
    )


def storage(output: Output[StorageSettings]) -> Iterator[Value]:
    """Yield rate and latency of an access, or whether the data are what was written.

    Raises BadInput: the output cannot be read, is of something else than ordered, or too short.
    """
    order, access, result = (
        output.order,
        output.record.params["access"],
        parse_fio(output.text, file=output.file),
    )
    for key, value in options(order.model_dump(), str(access)).items():
        if result.options.get(key) != value:
            told = result.options.get(key)
            _refuse(output, f"it ran with {key} {printable(str(told))[:40]}, {value} was ordered")
    ended, began = result.ended_s, datetime.fromisoformat(output.record.started).timestamp()
    if not began - 2 <= ended <= began + output.record.duration_s + 2:
        _refuse(output, f"fio ended {ended - began:.0f} s after it was started, by its own clock")
    if access == CHECK:
        yield from _checked(output, result)
        return
    if result.error:
        _refuse(output, f"fio ended with error {result.error}")
    side = result.write if "write" in str(access) else result.read
    if side.runtime_ms < 950 * order.seconds or side.short_ios:
        _refuse(
            output,
            f"{side.runtime_ms / 1e3:g} s and {side.short_ios} short requests, ordered {order.seconds} s",
        )
    told = f"{side.io_bytes / 1e9:.3g} GB in {side.runtime_ms / 1e3:g} s"
    if str(access).startswith("rand"):
        yield "iops", side.iops, "IO/s", Better.HIGHER, {}, told
        if side.p99_us is None:
            _refuse(output, "it does not tell the 99th percentile of its latencies")
        yield "latency_p99", side.p99_us, "us", Better.LOWER, {}, told
    else:
        yield "bandwidth", side.bw_bytes / 1e9, "GB/s", Better.HIGHER, {}, told


_DIFFERS = re.compile(r"verify failed at file \S+ offset \d+|verify: bad [^\n]*")


def _checked(output: Output[StorageSettings], result: FioResult) -> Iterator[Value]:
    wrote = bytes_a_node(output.order.model_dump())
    if result.error == errno.EILSEQ:
        words = output.folder.text(f"{Path(output.record.file).stem}.err")
        found = _DIFFERS.search(words)
        yield (
            "wrong",
            1.0,
            "1",
            Better.LOWER,
            {},
            f"differs from what was written: {found[0][:300] if found else ''}",
        )
        return
    if result.error or result.read.io_bytes < wrote:
        _refuse(
            output,
            f"{result.read.io_bytes} bytes were read back (error {result.error}), {wrote} were written",
        )
    yield "wrong", 0.0, "1", Better.LOWER, {}, f"{wrote / 1e9:.3g} GB read back as written"


def _refuse(output: Output[StorageSettings], what: str) -> NoReturn:
    raise BadInput(what, fix="run the test again", file=output.file)
