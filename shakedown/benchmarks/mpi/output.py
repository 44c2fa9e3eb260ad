"""What mpi4py's ping-pong, our all-reduce and UCX's log say: the numbers, and which way the messages went."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from shakedown.benchmarks.base.contract import Moved, Output, TcpPaths, Value, steps
from shakedown.benchmarks.base.output import Deviation, contradicted, judge_pinning
from shakedown.physics.collectives import Collective
from shakedown.records.base import Better, Params, Record, shape
from shakedown.records.reading import BadInput
from shakedown.records.tool_text import Amount, Count, Line, TextSource
from shakedown.records.wording import count

# How UCX carries messages: reliable, unreliable or dynamically connected queue pairs of verbs, or TCP.
Transport = Literal["rc", "ud", "dc", "tcp"]
# What steers the communication libraries, and nothing that loads code; the value stands in a job's script.
_VARIABLE = shape(
    r"^(UCX|OMPI_MCA|PMIX_MCA|PRTE_MCA)_[A-Za-z0-9_]+$",
    "a variable of UCX_, OMPI_MCA_, PMIX_MCA_ or PRTE_MCA_",
    "UCX_TLS",
    max_length=80,
)
Variable = Annotated[str, _VARIABLE]
_VALUE = shape(r"^[A-Za-z0-9_.,:/^+=@-]+$", "a value without blanks or quotes", "rc,self", max_length=200)
VariableValue = Annotated[str, _VALUE]


class SizeSweep(Record):
    """Message sizes of an MPI benchmark; each needs a reference."""

    min_bytes: int = Field(gt=0, multiple_of=4)
    max_bytes: int = Field(gt=0, multiple_of=4)
    factor: int = Field(default=2, ge=2)
    iterations: int = Field(default=10, gt=0)

    def steps(self) -> tuple[int, ...]:
        """Return the sizes of the all-reduce in bytes: from the smallest on, each by the factor larger."""
        return steps(self.min_bytes, self.max_bytes, self.factor)

    def powers_of_two(self) -> tuple[int, ...]:
        """Return the powers of two between the bounds, in bytes: the sizes of mpi4py's ping-pong."""
        return tuple(1 << i for i in range(33) if self.min_bytes <= 1 << i <= self.max_bytes)


class Mpi(Record):
    """The MPI benchmarks of the collective stage."""

    pingpong: SizeSweep | None = None
    allreduce: SizeSweep | None = None
    transport: Transport = "rc"  # what UCX's own log must name for every connection between nodes
    pinned: bool = False  # every rank must run on the CPUs of its node's rank file (roles/numa_pinning)
    # Environment of the MPI jobs where site.yml writes no /etc/shakedown/mpi.env, which is then not read.
    variables: dict[Variable, VariableValue] = Field(default_factory=dict, max_length=40)


class MpiSettings(SizeSweep):
    """One benchmark on one group of nodes."""

    transport: Transport | None = None  # what UCX must choose; None: ordered by a release that did not look
    # By node, the devices that it may use: RDMA devices, or for TCP interfaces.
    devices: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    pinned: bool = False  # whether every rank must run where its node's rank file says
    # The environment of the job; none: what the node's own file sets.
    variables: dict[Variable, VariableValue] = Field(default_factory=dict)
    # What is looked at before anything is measured over TCP, by node.
    paths: TcpPaths = Field(default_factory=dict)
    # Whether the ping-pong prints times and samples beside its bandwidths; not of older releases.
    timed: bool = False


_PINGPONG_HEADING = ["#", "Size", "[B]", "Bandwidth", "[MB/s]"]
# Size and bandwidth (10^6 byte/s); since mpi4py 4 also mean time and its deviation in s, and samples.
_PINGPONG_ROW = re.compile(
    r"\s*(?P<size>\d+)\s+(?P<bandwidth>\S+)"
    r"(?: \| (?P<seconds>\S+) \S+ \S+\s+(?P<samples>\d+))?\s*\Z"
)


class PingpongRow(Record):
    """One message size. The time is half the round trip."""

    size_bytes: Count
    bandwidth_gb_per_s: Amount
    # None: printed without statistics (--no-stats), as older releases ordered.
    time_us: Amount | None
    samples: Count | None


def parse_pingpong(
    text: str, *, sizes: tuple[int, ...], file: str | Path | None = None
) -> tuple[PingpongRow, ...]:
    """Read `python -m mpi4py.bench pingpong`. It has no closing line, so the planned sizes are needed.

    Raises BadInput: a size is missing or out of turn, a token is not a number, or a bandwidth is not that of
    its time.
    """
    source = TextSource(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    headings = [i for i, x in enumerate(lines) if x.text.split()[:5] == _PINGPONG_HEADING]
    source.refuse_alone(len(headings))
    heading = headings[0] if headings else None
    if heading is None:
        source.ends_before("the table of results")
    # The heading promises times or none; a row that lost them is not the tool's.
    timed = "Samples" in lines[heading].text.split()
    rows = tuple(_pingpong_row(source, line, timed=timed) for line in lines[heading + 1 :])
    if not source.terminated or tuple(row.size_bytes for row in rows) != sizes:
        got = ", ".join(str(row.size_bytes) for row in rows) or "none"
        source.refuse(f"sizes measured are {got}, expected were {sizes[0]} to {sizes[-1]} by doubling")
    return rows


def _pingpong_row(source: TextSource, line: Line, *, timed: bool) -> PingpongRow:
    match = _PINGPONG_ROW.match(line.text)
    if not match or timed is (match["seconds"] is None):
        source.refuse(f"not a row of the ping-pong table: {line.text[:80]!r}", line=line)
    row = source.build(
        PingpongRow,
        line=line,
        size_bytes=source.integer(match["size"], "size", line=line),
        bandwidth_gb_per_s=source.number(match["bandwidth"], "bandwidth", line=line) / 1e3,
        time_us=source.number(match["seconds"], "mean time", line=line) * 1e6 if timed else None,
        samples=source.integer(match["samples"], "samples", line=line) if timed else None,
    )
    if row.time_us is not None:
        due = row.size_bytes / row.time_us / 1e3 if row.time_us else math.inf
        # Printed are two decimals of MB/s, and eight digits of the time.
        if not math.isclose(row.bandwidth_gb_per_s, due, rel_tol=1e-6, abs_tol=0.0051e-3):
            source.refuse("bandwidth contradicts size and mean time", line=line)
    return row


class AllreduceRow(Record):
    """One message size of `shakedown.benchmarks.mpi.allreduce`."""

    type: Literal["row"]
    size_bytes: Count
    time_us: Amount
    algbw_gb_per_s: Amount
    busbw_gb_per_s: Amount
    wrong: Count


class AllreduceHeader(Record):
    """Its first line."""

    type: Literal["header"]
    mpi: str
    hosts: tuple[str, ...]
    sizes: tuple[Count, ...]
    # None: written by a release that did not say.
    iterations: Count | None = None
    warmup: Count | None = None


class AllreduceResult(Record):
    """One run: as many rows as the header promised."""

    header: AllreduceHeader
    rows: tuple[AllreduceRow, ...]


def parse_allreduce(text: str, *, file: str | Path | None = None) -> AllreduceResult:
    """Read the JSON lines of `shakedown.benchmarks.mpi.allreduce`.

    Raises:
        BadInput: a line is not what the program writes, rows are missing, or a rate is not that of its time.
    """
    source = TextSource(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    if not lines:
        source.ends_before("the header")
    source.refuse_alone(sum('"type": "header"' in line.text for line in lines))
    header = source.validate(AllreduceHeader, source.json(lines[0].text, line=lines[0]), line=lines[0])
    rows = tuple(
        source.validate(AllreduceRow, source.json(line.text, line=line), line=line) for line in lines[1:]
    )
    if tuple(row.size_bytes for row in rows) != header.sizes or not source.terminated:
        source.ends_before(f"all {len(header.sizes)} sizes are measured")
    for row, line in zip(rows, lines[1:], strict=True):
        if rate := contradicted(
            Collective.ALL_REDUCE,
            ranks=len(header.hosts),
            moved_bytes=row.size_bytes,
            time_us=row.time_us,
            algbw_gb_per_s=row.algbw_gb_per_s,
            busbw_gb_per_s=row.busbw_gb_per_s,
        ):
            source.refuse(f"{rate} contradicts size, time and number of ranks", line=line)
    return AllreduceResult(header=header, rows=rows)


# UCX's own log (UCX_LOG_LEVEL=info): which transport and device every connection between ranks has.
#
# UCX tells each configuration of connections once (ucp_worker_print_used_tls in ucp_worker.c). Up to 1.13:
#
#     [1566814148.941358] [n1:3473 :0]  ucp_worker.c:1689 UCX  INFO  ep_cfg[1]: tag(rc_verbs/rxe0:1);
#
# and since 1.14, with whom:
#
#     [1701292112.829711] [n1:162239:0] ucp_worker.c:1855 UCX  INFO  0x1 inter-node cfg#3
# tag(rc_mlx5/mlx5_0:1)

_LINE = re.compile(
    r"\[[0-9.]+\] \[(?P<host>[^\s:\]]+):\d+\s*:\d+\]\s+\S+\s+UCX\s+(?P<level>[A-Z]+)\s+(?P<text>.*)\Z"
)
_CONFIGURATION = re.compile(
    r"(?:ep_cfg\[\d+\]:|(?:\S+ )?(?P<way>self|intra-node|inter-node) cfg#\d+) ?(?P<features>.*)\Z"
)
_FEATURE = re.compile(r"(?<!\w)(\w+)\(([^()]*)\)")
# MPI's messages go over these: tag matching, or active messages where OpenMPI was built for them.
_MESSAGES = ("tag", "am")
_LANE = re.compile(r"(?P<transport>[a-z0-9_]+)/(?P<device>[^\s/]+)\Z")
# Transports that cannot leave a node (UCX's ucx_info -d: loopback, shared memory, GPU copies).
_WITHIN_A_NODE = re.compile(r"self|sysv|posix|mm|cma|knem|xpmem|(cuda|rocm|ze)_\w+|gdr_copy")
_LAYER = re.compile(r"\] (?:select: component (?P<a>\w+) selected|selected (?P<b>\w+) best priority)")


class Lane(Record):
    """A way between nodes: the host that tells it, UCX's transport, and the device without its port."""

    host: str
    transport: str
    device: str


class UcxLog(Record):
    """The logs of all ranks: lanes that leave a node, each once, hosts heard of, OpenMPI's message layers."""

    lanes: tuple[Lane, ...]
    hosts: tuple[str, ...]
    layers: tuple[str, ...]


def parse_ucx_log(text: str, *, file: str | Path | None = None) -> UcxLog:
    """Read the joined log of all ranks; lines of anything else are passed over.

    Raises BadInput: a connection's configuration cannot be read, so that a way would be overlooked.
    """
    lanes: dict[Lane, None] = {}
    hosts: dict[str, None] = {}
    layers: dict[str, None] = {}
    # An empty log is no damage: OpenMPI need not have used UCX at all.
    for line in TextSource(text, file, apart=False).lines if text.strip() else ():
        if layer := _LAYER.search(line.text):
            layers[layer["a"] or layer["b"]] = None
        told = _LINE.match(line.text)
        if told is None:
            continue
        hosts[told["host"]] = None
        found = _CONFIGURATION.match(told["text"]) if told["level"] == "INFO" else None
        if found is None or found["way"] in ("self", "intra-node"):
            continue
        for feature, words in _FEATURE.findall(found["features"]):
            for word in words.split() if feature in _MESSAGES else ():
                lane = _LANE.match(word)
                if lane is None:
                    source = TextSource(text, file)
                    source.refuse(f"not a transport and a device: {word[:80]!r}", line=line)
                if not _WITHIN_A_NODE.fullmatch(lane["transport"]):
                    device = lane["device"].partition(":")[0]
                    lanes[Lane(host=told["host"], transport=lane["transport"], device=device)] = None
    return UcxLog(lanes=tuple(lanes), hosts=tuple(hosts), layers=tuple(layers))


# Names that UCX gives the transports of each kind (ucx_info -d): by plain verbs, and by mlx5's own interface.
FAMILIES: Mapping[str, Transport] = {
    "rc_verbs": "rc",
    "rc_mlx5": "rc",
    "ud_verbs": "ud",
    "ud_mlx5": "ud",
    "dc_mlx5": "dc",
    "tcp": "tcp",
}


def judge_way(
    log: UcxLog,  # the joined log of all ranks
    wanted: Transport,  # the transport that is planned
    nodes: int,  # how many nodes there are; each must have told its way
    devices: Mapping[str, Sequence[str]],  # by node, the planned devices: RDMA devices, or for TCP interfaces
) -> Iterator[Deviation]:
    """Yield the two checks of a run over several nodes."""
    told = {lane.host for lane in log.lanes}
    if not told:
        yield _without_ucx(log, wanted)
        yield Deviation("nics", None, "UCX's log names no connection between nodes")
        return
    other = [lane for lane in log.lanes if FAMILIES.get(lane.transport, wanted) != wanted]
    later = [lane for lane in log.lanes if lane.transport not in FAMILIES]
    few = f"; {len(told)} of {nodes} nodes told their way" if len(told) < nodes else ""
    if other:
        hint = ": TCP fallback, no RDMA" if any(lane.transport == "tcp" for lane in other) else ""
        yield Deviation("network", 1, f"UCX chose {_ways(other)}, {wanted} wanted{hint}{few}"[:900])
    elif later:
        yield Deviation("network", None, f"UCX chose {_ways(later)}, which is not known here{few}"[:900])
    else:
        yield Deviation("network", None if few else 0, f"UCX chose {_ways(log.lanes)}{few}"[:900])
    every = {name for mine in devices.values() for name in mine}
    strange = [lane for lane in log.lanes if lane.device not in devices.get(lane.host, every)]
    if strange:
        yield Deviation("nics", 1, f"UCX uses {_ways(strange)}, no planned device of the fabric"[:900])
    else:
        yield Deviation("nics", None if few else 0, f"UCX uses {_ways(log.lanes)}{few}"[:900])


def _without_ucx(log: UcxLog, wanted: Transport) -> Deviation:
    chosen = [layer for layer in log.layers if layer != "ucx"]
    if chosen and wanted != "tcp":
        text = f"OpenMPI chose its layer {', '.join(chosen)} and not UCX, {wanted} wanted: no proof of RDMA"
        return Deviation("network", 1, f"{text}; set OMPI_MCA_pml=ucx in openmpi_transport")
    why = f"OpenMPI chose {', '.join(chosen)}" if chosen else "is OpenMPI built with UCX, and is its pml ucx?"
    return Deviation("network", None, f"UCX's log names no connection between nodes: {why}")


def _ways(lanes: Iterable[Lane]) -> str:
    """Write lanes by host: `rc_verbs/rxe0 on n1 and n2`."""
    hosts: dict[str, list[str]] = {}
    for lane in lanes:
        hosts.setdefault(f"{lane.transport}/{lane.device}", []).append(lane.host)
    return "; ".join(f"{way} on {', '.join(sorted(on))}" for way, on in sorted(hosts.items()))


def mpi(output: Output[MpiSettings]) -> Iterator[Value]:
    """Yield time, busbw and wrong elements of an all-reduce, or the bandwidth of a ping-pong."""
    if output.record.test == "mpi_allreduce":
        result = _allreduce(output)
        for row in result.rows:
            params: Params = {"size_bytes": row.size_bytes}
            yield "time", row.time_us, "us", Better.LOWER, params
            if row.size_bytes == max(result.header.sizes):
                yield "busbw", row.busbw_gb_per_s, "GB/s", Better.HIGHER, params
            yield "wrong", float(row.wrong), "1", Better.LOWER, params
    else:
        for pingpong in _pingpong(output):
            params = {"size_bytes": pingpong.size_bytes}
            yield "bandwidth", pingpong.bandwidth_gb_per_s, "GB/s", Better.HIGHER, params


def mpi_log(output: Output[MpiSettings]) -> Iterator[Value]:
    """Yield 0 or 1 for each check of the way that messages went, and of where ranks ran. Raises BadInput."""
    order, nodes = output.order, output.record.nodes
    found: list[Deviation] = []
    if order.transport is not None and len(nodes) > 1:
        log = parse_ucx_log(output.text, file=output.file)
        found.extend(judge_way(log, order.transport, len(nodes), order.devices))
    if order.pinned:
        found.append(judge_pinning(output.folder, dict.fromkeys(nodes, 1)))
    yield from (one.read({}) for one in found)


def moved(output: Output[MpiSettings]) -> Iterator[Moved]:
    """Yield what each node must have sent and received, in bytes. Raises as `mpi` does.

    One rank a node: for an all-reduce each must at least give away its own message and learn the sum of the
    others', whatever the algorithm; of a ping-pong each message goes both ways. Warm-up comes on top.
    """
    order, nodes = output.order, output.record.nodes
    if len(nodes) < 2:
        return
    if output.record.test == "mpi_allreduce":
        sizes = [row.size_bytes for row in _allreduce(output).rows]
        payload = float(sum(sizes) * order.iterations)
    else:
        payload = float(sum(row.size_bytes for row in _pingpong(output)) * order.iterations)
    for node in nodes:
        yield Moved(node, None, payload, payload)


def moved_over(output: Output[MpiSettings]) -> Iterator[Moved]:
    """Yield what must have gone over the one NIC that UCX's log names on a node, in bytes.

    A log that names several says not which message went over which. Raises BadInput.
    """
    order, nodes = output.order, output.record.nodes
    if order.transport is None or len(nodes) < 2:
        return
    named: dict[str, set[str]] = {}
    for lane in parse_ucx_log(output.text, file=output.file).lanes:
        named.setdefault(lane.host, set()).add(lane.device)
    allreduce = output.record.test.startswith("mpi_allreduce")
    payload = float(sum(order.steps() if allreduce else order.powers_of_two()) * order.iterations)
    for node in nodes:
        if len(devices := named.get(node, ())) == 1:
            yield Moved(node, next(iter(devices)), payload, payload)


def _pingpong(output: Output[MpiSettings]) -> tuple[PingpongRow, ...]:
    """Return the rows of the ping-pong, if it is the one that was ordered. Raises BadInput."""
    order, fix = output.order, "run it as planned"
    rows = parse_pingpong(output.text, sizes=order.powers_of_two(), file=output.file)
    for row in rows:
        if row.samples is None:
            if order.timed:
                what = f"{row.size_bytes} bytes: no time beside the bandwidth, which nothing else confirms"
                raise BadInput(what, fix=fix, file=output.file)
        elif row.samples != order.iterations:
            what = f"{row.size_bytes} bytes: {count(row.samples, 'sample')}, planned were {order.iterations}"
            raise BadInput(what, fix=fix, file=output.file)
    return rows


def _allreduce(output: Output[MpiSettings]) -> AllreduceResult:
    """Return the all-reduce, if it is the one that was ordered. Raises BadInput."""
    result, order = parse_allreduce(output.text, file=output.file), output.order
    header, fix = result.header, "run it as planned"
    # The program rounds to whole numbers of its type; the planner's sizes are whole already.
    if header.sizes != order.steps():
        sizes = ", ".join(map(str, header.sizes))
        raise BadInput(f"sizes are {sizes}, planned were {order.steps()}", fix=fix, file=output.file)
    if len(header.hosts) != len(output.record.nodes) or len(set(header.hosts)) != len(header.hosts):
        nodes = len(output.record.nodes)
        ranks, hosts = count(len(header.hosts), "rank"), count(len(set(header.hosts)), "host name")
        what = f"{ranks} told {hosts}, planned was one rank on each of {nodes} nodes"
        alike = "look whether two nodes have one host name, or both ranks ran on one node"
        raise BadInput(what, fix=alike if len(header.hosts) == nodes else fix, file=output.file)
    if header.iterations not in (None, order.iterations):
        what = f"it ran {header.iterations} iterations, {order.iterations} were planned"
        raise BadInput(what, fix=fix, file=output.file)
    return result
