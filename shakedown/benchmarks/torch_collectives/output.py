"""What `program.py` prints, JSON lines, as values, and what must have been sent between nodes for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from shakedown.benchmarks.base.contract import JobSettings, Moved, Output, Read, TcpPaths, Value, steps
from shakedown.benchmarks.base.output import contradicted, longer_than_recorded
from shakedown.benchmarks.gpu.state import disturbed
from shakedown.benchmarks.nccl.log_model import without_rdma
from shakedown.benchmarks.nccl.metrics import crossing, node_of
from shakedown.benchmarks.nccl.settings import Variable
from shakedown.benchmarks.torch_collectives.program import burst_iterations
from shakedown.physics.collectives import Collective
from shakedown.records.base import Better, Params, Record
from shakedown.records.reading import BadInput, refusal

TorchOperation = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast"]


class TorchCollectives(Record):
    """The second opinion: the same collectives through PyTorch, which needs nothing but PyTorch."""

    backend: Literal["nccl", "gloo"] = "nccl"
    nodes: int | None = Field(default=None, ge=1)  # how many at once; None: all
    # Empty: only one large message against many, without a sweep of sizes.
    operations: tuple[TorchOperation, ...] = ("all_reduce",)
    min_bytes: int = Field(default=64, gt=0, multiple_of=64)
    max_bytes: int = Field(default=64, gt=0, multiple_of=64)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=20, gt=0)
    # One message of the first size against `many` of the second: what a framework's small buckets cost.
    large_bytes: int = Field(default=4_000_000_000, gt=0, multiple_of=64)
    many: int = Field(default=0, ge=0)  # 0: not compared
    # Nodes that compare them at once; none means as many as the sweep.
    many_nodes: int | None = Field(default=None, ge=1)
    variables: dict[Variable, str] = Field(default_factory=dict)
    timeout_s: int = Field(default=300, gt=0)

    @model_validator(mode="after")
    def _asks_for_something(self) -> TorchCollectives:
        if not self.operations and not self.many:
            raise ValueError("neither operations nor many: nothing to run")
        if self.many == 1:
            raise ValueError("many: 1 compares one large message with itself, give 2 or more")
        if self.operations and not {"min_bytes", "max_bytes"} <= self.model_fields_set:
            raise ValueError("operations need min_bytes and max_bytes")
        return self

    def sweep_sizes(self) -> tuple[int, ...]:
        """Return the sizes in bytes."""
        return steps(self.min_bytes, self.max_bytes, self.factor)


class TorchSettings(JobSettings, TorchCollectives):
    """The site's options, the sizes in bytes that they mean, ranks by node, and its cells' own parameters."""

    former = ("python",)
    sizes: tuple[int, ...]
    ranks: dict[str, int]
    shared_gpus: tuple[str, ...] = ()
    # What is looked at before anything is measured over TCP, by node.
    paths: TcpPaths = Field(default_factory=dict)
    params: Params
    # As the plan has them: what a run is compared by is read even if a site could not ask for it today.
    variables: dict[str, str]


_CONTRADICTIONS = {
    "algbw": "algbw contradicts size and time",
    "busbw": "busbw contradicts algbw and the number of ranks",
}
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Header(Record):
    """What ran, on which hosts (one entry a rank)."""

    type: Literal["header"]
    torch: str
    library: str
    backend: Literal["nccl", "gloo"]
    ranks: int = Field(ge=1)
    hosts: tuple[str, ...]
    # What CUDA calls the GPU of each rank, and its UUID. None: of the CPU, or of a release that did not say.
    gpus: tuple[Annotated[str, Field(max_length=100)], ...] | None = None
    uuids: tuple[Annotated[str, Field(max_length=64)], ...] | None = None
    iterations: int | None = Field(default=None, ge=1)  # None: written by a release that did not say


class TorchRow(Record):
    """One size. `wrong` None: not checked, which is so of the one large message and the many small ones."""

    type: Literal["row"]
    operation: TorchOperation
    size_bytes: int = Field(gt=0)
    messages: int = Field(ge=1)
    time_us: Rate
    algbw_gb_per_s: Rate
    busbw_gb_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    wrong: int | None = Field(ge=0)

    @property
    def checked(self) -> bool:
        """Whether it is of the sweep, whose elements are compared."""
        return self.wrong is not None


class TorchResult(Record):
    """One run."""

    tool: Literal["torch-collectives"] = "torch-collectives"
    header: Header
    rows: tuple[TorchRow, ...] = Field(min_length=1)


def parse_torch_collectives(text: str, *, file: str | Path | None = None) -> TorchResult:
    """Parse one run's output; other lines, such as a library's warnings, are passed over.

    Raises BadInput: no header, no row, a damaged line, a row twice, or a rate that contradicts size and time.
    """
    header: Header | None = None
    rows: list[TorchRow] = []
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.startswith("{"):
            continue
        try:
            if header is None:
                header = Header.model_validate_json(line)
            else:
                rows.append(TorchRow.model_validate_json(line))
        except ValidationError as error:
            raise refusal(
                error, TorchRow if header else Header, file=file, line=number, fix="run it again"
            ) from None
        if rows and header:
            if {len(each) for each in (header.hosts, header.gpus, header.uuids) if each} != {header.ranks}:
                raise BadInput("as many hosts and GPUs as ranks are due", file=file, line=number)
            if what := _contradiction(rows[-1], header.ranks):
                raise BadInput(what, fix="run it again", file=file, line=number)
            if (what := _which(rows[-1])) in seen:
                raise BadInput(f"{what} once more", fix="run it again", file=file, line=number)
            seen.add(what)
    if header is None or not rows:
        raise BadInput("the output ends before its first row", fix="run it again", file=file)
    return TorchResult(header=header, rows=tuple(rows))


def _which(row: TorchRow) -> str:
    kind = "" if row.checked else ", unchecked"
    return f"{row.operation} of {row.messages} x {row.size_bytes} bytes{kind}"


def _contradiction(row: TorchRow, ranks: int) -> str:
    """Return what a row says of its rate and its own size and time do not give; empty if nothing."""
    rate = contradicted(
        Collective(row.operation),
        ranks=ranks,
        moved_bytes=row.size_bytes * row.messages,
        time_us=row.time_us,
        algbw_gb_per_s=row.algbw_gb_per_s,
        busbw_gb_per_s=row.busbw_gb_per_s,
    )
    return _CONTRADICTIONS[rate] if rate else ""


def torch_collectives(output: Output[TorchSettings]) -> Iterator[Value]:
    """Yield one operation's busbw and wrong elements by size, and what many small messages cost."""
    order, operation = output.order, output.record.test.removeprefix("torch_")
    found = [row for row in as_set(output).rows if row.operation == operation]
    # The comparison may have a message of a size of the sweep.
    sweep = {row.size_bytes: row for row in found if row.checked and row.messages == 1}
    busy = disturbed(output.folder, {node: range(count) for node, count in order.ranks.items()})
    for size in order.sizes if operation in order.operations else ():
        if row := sweep.get(size):
            params: Params = {"size_bytes": size}
            yield Read("busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params, disturbed=busy)
            yield "wrong", float(row.wrong or 0), "1", Better.LOWER, params
    many, large = order.many, order.large_bytes
    if operation != "all_reduce" or not many:
        return
    rows = {(row.size_bytes, row.messages): row for row in found if not row.checked}
    one, small = rows.get((large, 1)), rows.get((large // many, many))
    for messages, row in ((1, one), (many, small)):
        if row:
            params = {"messages": messages, "size_bytes": row.size_bytes}
            yield Read("busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params, disturbed=busy)
    if one and small:
        ratio = one.busbw_gb_per_s / small.busbw_gb_per_s
        yield Read("large_over_small", ratio, "x", Better.LOWER, {"messages": many}, disturbed=busy)


def as_set(output: Output[TorchSettings]) -> TorchResult:
    """Return the result, if it is of the ranks, hosts and backend that were ordered. Raises BadInput."""
    result, order = parse_torch_collectives(output.text, file=output.file), output.order
    ranks = sum(order.ranks.values())
    if result.header.ranks != ranks or result.header.backend != order.backend:
        found = f"{result.header.ranks} ranks over {result.header.backend}"
        raise BadInput(f"{found}, planned were {ranks} over {order.backend}", file=output.file)
    # Ranks by host, whatever the hosts call themselves.
    on_hosts = sorted(Counter(result.header.hosts).values())
    if on_hosts != sorted(order.ranks.values()):
        found = f"{' + '.join(map(str, on_hosts))} ranks by host"
        planned = " + ".join(map(str, sorted(order.ranks.values())))
        raise BadInput(f"{found}, planned were {planned}", fix="run it as planned", file=output.file)
    uuids = zip(result.header.hosts, result.header.uuids or (), strict=False)
    shared = next((uuid for (_, uuid), many in Counter(uuids).items() if uuid and many > 1), "")
    if shared:
        raise BadInput(f"several ranks ran on {shared}", fix="give each its own GPU", file=output.file)
    if result.header.iterations not in (None, order.iterations):
        found = f"{result.header.iterations} iterations"
        raise BadInput(f"{found}, planned were {order.iterations}", fix="run it as planned", file=output.file)
    times = {True: order.iterations, False: burst_iterations(order.iterations)}
    counted_s = sum(row.time_us * times[row.checked] for row in result.rows) / 1e6
    if too_long := longer_than_recorded(counted_s, output.record):
        raise BadInput(too_long, fix="run it again", file=output.file)
    return result


def ran_on(output: Output[TorchSettings]) -> Iterator[str]:
    """Yield what CUDA calls each rank's GPU, and its UUID."""
    header = parse_torch_collectives(output.text, file=output.file).header
    yield from filter(None, (*(header.gpus or ()), *(header.uuids or ())))


def moved(output: Output[TorchSettings]) -> Iterator[Moved]:
    """Yield the least that each node must have sent and received over its NICs under test, in bytes.

    Nothing is said of one node, of gloo, which has a network of its own choice, and of a run that was told to
    leave RDMA out. Warm-up and checks come on top. Raises BadInput as `torch_collectives` does.
    """
    order, nodes = output.order, tuple(output.order.ranks)
    if len(nodes) < 2 or order.backend != "nccl" or without_rdma(order.variables):
        return
    operation = Collective(output.record.test.removeprefix("torch_"))
    result = as_set(output)
    root_at = node_of(result.header.hosts[0], nodes)  # rank 0 is the root of all that have one
    times = {True: order.iterations, False: burst_iterations(order.iterations)}
    calls = [
        (r.size_bytes, root_at, r.messages * times[r.checked])
        for r in result.rows
        if r.operation == operation
    ]
    yield from crossing(operation, calls, order.ranks)
