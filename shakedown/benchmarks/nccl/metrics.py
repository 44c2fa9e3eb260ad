"""nccl-tests' numbers, and NCCL's logs against the way that the data had to go.

Also what must have left a node, and what the servers drew."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from shakedown.benchmarks.base.contract import Moved, Output, Read, Value
from shakedown.benchmarks.base.output import Deviation, judge_pinning, longer_than_recorded
from shakedown.benchmarks.gpu.metrics import power
from shakedown.benchmarks.gpu.state import at_end, disturbed, sysfs_address
from shakedown.benchmarks.nccl.log import parse_nccl_log
from shakedown.benchmarks.nccl.log_model import (
    BY_VERBS,
    TRANSPORTS,
    NcclChannel,
    NcclChoice,
    NcclIbDevice,
    NcclLog,
    without_rdma,
)
from shakedown.benchmarks.nccl.output import WHOLE_PCI, parse_nccl
from shakedown.benchmarks.nccl.output_model import (
    NcclResult,
    NcclRow,
    NcclTiming,
    checked,
    precise_busbw_gb_per_s,
)
from shakedown.benchmarks.nccl.settings import ExpectedWay, NcclSettings
from shakedown.physics.collectives import Collective, least_crossing_bytes
from shakedown.records.base import Better, Params
from shakedown.records.reading import BadInput
from shakedown.records.results import RunProblem
from shakedown.records.tool_text import OF_SETTINGS
from shakedown.run.server_power import power_during
from shakedown.statistics.robust import median

# What NCCL calls the link of an RDMA device (src/transport/net_ib), and people do.
_LINKS = {"roce": ("RoCE", "RoCE"), "ib": ("IB", "InfiniBand")}


def judge_log(
    log: NcclLog,  # the joined log of all ranks
    expect: ExpectedWay,  # which way was planned
    gpus: Mapping[str, int],  # how many GPUs each node has
) -> Iterator[Deviation]:
    """Yield every check of one run."""
    used: dict[str, set[str]] = {}
    for rank in log.ranks:
        used.setdefault(rank.host, set()).add(rank.bus_id)
    many, planned = sorted(len(buses) for buses in used.values()), sorted(gpus.values())
    yield Deviation("ranks", int(many != planned), f"GPUs by host: {many}, {planned} planned")
    yield _intra_node(log, expect.intra_node, len(gpus), max(planned))
    yield _nvls(log.nvls_channels, expect.nvls)
    if len(gpus) > 1:
        if expect.network == "nvlink" and not expect.interfaces:
            yield _nvlink(log)
        else:
            yield from _tcp(log, expect.interfaces) if expect.interfaces else _network(log, expect)


def _intra_node(log: NcclLog, wanted: str, nodes: int, per_node: int) -> Deviation:
    across = {id(channel) for channel in _over_nvlink(log)}  # a rack has thousands
    local = [c.transport for c in log.channels if c.transport != "NET" and id(c) not in across]
    net = [c.network for c in log.channels if c.transport == "NET"]
    if per_node == 1:
        return Deviation("intra_node", int(bool(local)), "one GPU a node")
    if not log.channels:
        return Deviation("intra_node", None, "the log names no connection")
    if later := sorted({*local} - {*TRANSPORTS}):
        return Deviation("intra_node", None, f"connections by {', '.join(later)}, which is not known here")
    other = [t for t in local if t != wanted]
    if nodes == 1 and net:
        ways = ", ".join(sorted({str(name) for name in net}))
        text = f"{len(net)} connections inside the node go over the network ({ways})"
        return Deviation("intra_node", 1, f"{text}, {wanted} wanted: P2P and shared memory are off")
    if other or not local:
        ways = ", ".join(f"{other.count(way)} by {way}" for way in sorted(set(other))) or "none"
        cause = {
            "SHM": "data go through host memory: P2P is off (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL), or ACS or "
            "the IOMMU keeps the GPUs from reaching each other"
        }.get(next(iter(set(other)), ""), "")
        text = f"connections inside the node: {ways}, {wanted} wanted"
        return Deviation("intra_node", 1, f"{text}: {cause}" if cause else text)
    return Deviation("intra_node", 0, f"{len(local)} connections by {wanted}")


def _nvls(channels: int | None, wanted: bool) -> Deviation:
    if channels is None:
        return Deviation("nvls", None, "the log does not tell whether NVLink SHARP is used")
    has = channels > 0
    text = f"NVLink SHARP is {'on' if has else 'off'}, {'on' if wanted else 'off'} wanted"
    cause = ": NCCL_NVLS_ENABLE=0, no fabric manager, or a driver without multicast" if wanted else ""
    return Deviation("nvls", int(has is not wanted), text + (cause if wanted and not has else ""))


def _over_nvlink(log: NcclLog) -> list[NcclChannel]:
    """Return the connections between nodes that go over NVLink (MNNVL), as in racks of GB200."""
    host = {rank.rank: rank.host for rank in log.ranks}
    across = [c for c in log.channels if c.transport == "P2P" and c.detail.startswith("MNNVL")]
    return [c for c in across if host.get(c.sender) != host.get(c.receiver)]


def _nvlink(log: NcclLog) -> Deviation:
    over = len(_over_nvlink(log))
    ways = sorted({f"NET/{c.network}" for c in log.channels if c.transport == "NET"})
    text = f"{over} connections between nodes go over NVLink" + (
        f", others by {', '.join(ways)}" if ways else ""
    )
    return Deviation("network", int(bool(ways)) if over or ways else None, f"{text}, all of them wanted")


def _network(log: NcclLog, expect: ExpectedWay) -> Iterator[Deviation]:
    net = [c for c in log.channels if c.transport == "NET"]
    if not net:
        over = len(_over_nvlink(log))
        said = f"{over} connections between nodes go over NVLink (MNNVL), none over a NIC" if over else ""
        for check in ("network", "gdr", "nics"):
            wrong = 1 if over and check == "network" else None
            yield Deviation(check, wrong, said or "the log names no connection between nodes")
        return
    sockets = [c for c in net if c.network == "Socket"]
    strange = {str(c.network) for c in net if not BY_VERBS.fullmatch(str(c.network))}
    strange |= {c.transport for c in log.channels if c.transport not in TRANSPORTS}
    unknown = sorted(strange - {"Socket", *expect.plugins})
    names = {(d.host, d.index): d for d in log.ib_devices}
    links = {names[c.host, c.net_device].link for c in net if (c.host, c.net_device) in names} - {"unknown"}  # type: ignore[index]
    if sockets:
        text = f"{len(sockets)} of {len(net)} connections between nodes go by Socket: TCP fallback, no RDMA"
        yield Deviation("network", 1, text)
    elif unknown:
        text = f"connections between nodes go by {', '.join(unknown)}: whether that is RDMA is not known here"
        text += " (acceptance.nccl.expect.plugins)"
        yield Deviation("network", None, text)
    else:
        by = ", ".join(sorted({str(c.network) for c in net} - {"IB"})) or "IB verbs"
        text = f"{len(net)} connections by {by} over {', '.join(sorted(links)) or 'an unknown link'}"
        link, name = _LINKS[expect.network]
        yield Deviation("network", int(links != {link}) if links else None, f"{text}, {name} wanted")
    without = [c for c in net if not c.gdr]
    why = f": {log.gdr_refusals[0]}" if without and log.gdr_refusals else ""
    text = f"{len(without)} of {len(net)} connections without GPUDirect RDMA{why}"
    yield Deviation("gdr", int(bool(without) and expect.gdr), text)
    yield _nics(net, names, expect.nics)


def _tcp(log: NcclLog, planned: Mapping[str, Sequence[str]]) -> Iterator[Deviation]:
    """Yield the checks of a network that is measured by TCP, over the interfaces that are planned."""
    net = [c for c in log.channels if c.transport == "NET"]
    if not net:
        for check in ("network", "nics"):
            yield Deviation(check, None, "the log names no connection between nodes")
        return
    other = [c for c in net if c.network != "Socket"]
    text = f"{len(net) - len(other)} of {len(net)} connections between nodes go by TCP, all of them wanted"
    ways = f"; {', '.join(sorted({str(c.network) for c in other}))} carries the others" if other else ""
    yield Deviation("network", int(bool(other)), text + ways)
    used: dict[str, set[str]] = {}
    for device in log.socket_devices:
        used.setdefault(device.host, set()).add(device.name)
    has = sorted(sorted(names) for names in used.values())
    want = sorted(sorted(names) for names in planned.values())
    text = f"interfaces used by host: {has}, {want} planned"
    if silent := sorted({n for names in want for n in names} - {n for names in has for n in names}):
        text += f": {', '.join(silent)} carry nothing"
    yield Deviation("nics", int(has != want) if has else None, text[:900])


def _nics(
    net: Sequence[NcclChannel],
    names: Mapping[tuple[str, int], NcclIbDevice],
    planned: Mapping[str, Sequence[str]],
) -> Deviation:
    used: dict[str, set[str]] = {}
    for channel in net:
        device = names.get((channel.host, channel.net_device if channel.net_device is not None else -1))
        used.setdefault(channel.host, set()).update(_ports(device.name) if device else ["unknown"])
    # Host names of the log need not be Slurm's names of the nodes: what the nodes use is compared as a whole.
    has = sorted(sorted(devices) for devices in used.values())
    want = sorted(sorted(devices) for devices in planned.values())
    missing = sorted({n for devices in want for n in devices} - {n for devices in has for n in devices})
    text = f"NICs used by host: {has}, {want} planned"
    if silent := sorted(host for host, devices in used.items() if "unknown" in devices):
        text = f"the log does not tell which NICs {', '.join(silent)} used, {want} planned"
        return Deviation("nics", None, text[:900])
    if missing:
        text += f": {', '.join(missing)} carry nothing"
    return Deviation("nics", int(has != want), text[:900])


def _ports(name: str) -> list[str]:
    """Return the NICs of a device of NCCL's: of a merged one, or by a second way to GPUs (Data Direct)."""
    return [part.removesuffix("_dma") for part in name.split("+")]


METRIC = "server_power"


def server_power(output: Output[NcclSettings]) -> Read:
    """Return the power of all servers together in W, as the published ones are, and in words that of each.

    Raises BadInput: a reading that cannot be read.
    """
    raw, record = output.folder.path.parent, output.record
    found = [power_during(raw, node, record.started, record.duration_s) for node in record.nodes]
    told = [watts for watts, _ in found if watts is not None]
    value = sum(told) if len(told) == len(found) else None
    words = "; ".join(text for _, text in found)
    return Read(METRIC, value, "W", Better.LOWER, {}, words[:900])


def nccl(output: Output[NcclSettings]) -> Iterator[Value]:
    """Yield time or busbw, and wrong elements, of every size; the median of all repeats.

    Out of place, as the published figures are; wrong elements of both.
    """
    order = output.order
    chosen = _choices(output)
    runs = repeats(output)
    somewhere = wrong_somewhere(runs)
    busy = disturbed(output.folder, {node: range(count) for node, count in order.gpus.items()})
    unplaced = f"nccl-tests' footer counts {somewhere} out of bounds, and no row of its run has any"
    said = "; ".join(x for x in (unplaced if somewhere else "", _last_error(runs)) if x)
    damaged = None
    if any(run.denied for run in runs):
        message = "a row has wrong elements, nccl-tests' footer says 0 out of bounds: the output is damaged"
        damaged = RunProblem(kind="parse", message=message)
    for size, rows in planned_rows(runs, output.record.test, order):
        short = size < order.time_below_bytes
        timed = [(run, row, deciding(row)) for run, row in zip(runs, rows, strict=True)]
        samples = tuple(t.time_us if short else precise_busbw_gb_per_s(run, row, t) for run, row, t in timed)
        metric, unit, better = ("time", "us", Better.LOWER) if short else ("busbw", "GB/s", Better.HIGHER)
        if any(row.size_bytes == 0 for row in rows):
            for name, its_unit, side in ((metric, unit, better), ("wrong", "1", Better.LOWER)):
                yield Read(
                    name, None, its_unit, side, {"size_bytes": size}, "rounded down to 0 bytes: no data moved"
                )
            continue
        many = samples if len(samples) > 1 else ()
        params: Params = {"size_bytes": size}
        told = chosen.get(size, "")
        yield Read(metric, median(samples), unit, better, params, told, many, damaged, busy)
        wrong = float(wrong_elements(rows) or somewhere)
        # What was seen wrong is, whatever the footer says; what was not may be.
        doubt = None if wrong else damaged
        yield Read("wrong", wrong, "1", Better.LOWER, {"size_bytes": size}, said, problem=doubt)
    if order.power:
        yield from power(output, order.gpus)
    if order.server_power:
        yield server_power(output)


def repeats(output: Output[NcclSettings]) -> list[NcclResult]:
    """Return every repeat of an output, each checked to be what was planned. Raises BadInput."""
    others = [_sibling(output, number) for number in range(2, output.order.repeats + 1)]
    runs = [(output.file, output.text), *others]
    first: dict[str, str] = {}
    for file, text in runs:
        if first.setdefault(text, file.name) != file.name:
            raise BadInput(f"is {first[text]} once more", fix="run it again: a copy is no repeat", file=file)
    found = [_checked(parse_nccl(text, file=file), output, file) for file, text in runs]
    for (file, _), one in zip(runs, found, strict=True):
        if _where(one) != _where(found[0]):
            what = f"ran elsewhere or with another NCCL than {runs[0][0].name}"
            raise BadInput(what, fix="run it again: that is no repeat", file=file)
    if too_long := longer_than_recorded(sum(map(_counted_s, found)), output.record):
        raise BadInput(too_long, fix="run it again", file=output.file)
    return found


def _counted_s(run: NcclResult) -> float:
    """Return for how long a run measured: its times are of one iteration each."""
    timings = (t for row in run.rows for t in (row.out_of_place, row.in_place) if t)
    return sum(t.time_us for t in timings) * run.iterations * run.aggregated_iterations / 1e6


def _where(run: NcclResult) -> tuple[object, ...]:
    """Return what is the same in every repeat: the library, and each rank's host and GPU."""
    return run.nccl_version, [(one.rank, one.host, one.pci, one.name) for one in run.devices]


def planned_rows(
    runs: list[NcclResult], test: str, order: NcclSettings
) -> Iterator[tuple[int, list[NcclRow]]]:
    """Yield every planned size with its row of every repeat."""
    for number, size in enumerate(order.sizes):
        if size >= order.smallest_bytes(test):
            yield size, [run.rows[number] for run in runs]


def deciding(row: NcclRow) -> NcclTiming:
    """Return the timing that decides: out of place, as the published figures are."""
    return row.out_of_place or row.in_place


def wrong_elements(rows: list[NcclRow]) -> int:
    """Return how many elements were wrong, in place and out of place."""
    return sum(t.wrong or 0 for row in rows for t in (row.out_of_place, row.in_place) if t)


def wrong_somewhere(runs: list[NcclResult]) -> int:
    """Return how many wrong elements were counted that no row shows: no size of these runs is known good."""
    return sum(run.wrong_somewhere for run in runs)


def _last_error(runs: list[NcclResult]) -> str:
    """Return what NCCL said last; it may be a warning that did no harm, so it is told and decides nothing."""
    said = dict.fromkeys(run.last_error for run in runs if run.last_error)
    return f"NCCL's last error: {'; '.join(said)}"[:900] if said else ""


def _sibling(output: Output[NcclSettings], number: int) -> tuple[Path, str]:
    name = output.record.file
    other = name.replace(".r1.", f".r{number}.")
    file = output.folder.path / other
    try:
        return file, output.folder.text(other)
    except (OSError, BadInput):
        raise BadInput(f"repeat {number} of {name} is missing", file=file) from None


def _checked(run: NcclResult, output: Output[NcclSettings], file: Path) -> NcclResult:
    """Refuse a run of something else than what was planned."""
    order = output.order
    ranks, sizes = order.ranks, len(order.sizes)
    operation = output.record.test.removeprefix("nccl_")
    what = ""
    if run.operation not in (None, operation):
        what = f"this is {run.operation}, {operation} was planned"
    elif run.ranks != ranks:
        what = f"it ran on {run.ranks} GPUs, {ranks} were planned"
    elif run.reduced_max_bytes is not None:
        what = f"nccl-tests went only to {run.reduced_max_bytes} bytes for lack of memory"
    elif len(run.rows) != sizes or run.min_bytes != order.sizes[0]:
        what = f"{len(run.rows)} sizes, {sizes} were planned"
    elif {row.dtype for row in run.rows} != {order.dtype}:
        what = f"data type {run.rows[0].dtype}, {order.dtype} was planned"
    elif (run.iterations, run.warmup_iterations) != (order.iterations, order.warmup):
        what = (
            f"it ran {run.iterations} iterations after {run.warmup_iterations} of warm-up, "
            f"{order.iterations} after {order.warmup} were planned"
        )
    elif run.aggregated_iterations > 1 or run.cuda_graph:
        how = f"agg iters: {run.aggregated_iterations}, graph: {run.cuda_graph}"
        what = f"{how}: calls one by one were planned"
    elif strange := {row.redop for row in run.rows} - {"sum", "none"}:
        what = f"it reduced by {', '.join(sorted(strange))}, sum was planned"
    elif run.validation == 0 or not checked(run.rows, operation):
        what = "the data were not checked"
    if what := what or _elsewhere(run, output):
        raise BadInput(what, fix="run it as planned", file=file)
    return run


def _elsewhere(run: NcclResult, output: Output[NcclSettings]) -> str:
    """Return where a run was, or by which NCCL, that another witness contradicts; empty if none does."""
    nodes, log = output.record.nodes, f"{output.record.test}.log"
    for gpu in run.devices:
        node = nodes[0] if len(nodes) == 1 else node_of(gpu.host, nodes)
        if node is None and any(node_of(other, nodes) for other in run.hosts):
            return f"rank {gpu.rank} ran on {gpu.host}, which is none of {', '.join(nodes)}"
        look = at_end(output.folder, node) if node else None
        places = {sysfs_address(one.pci) for one in look.gpus} if look else set()
        if places and WHOLE_PCI.match(gpu.pci) and not any(at.startswith(gpu.pci.lower()) for at in places):
            return f"rank {gpu.rank} ran on the GPU {gpu.pci}, which nvidia-smi does not show on {node}"
    said = re.findall(r"NCCL version ([0-9.]+)", output.folder.text(log)) if output.folder.holds(log) else []
    if run.nccl_version and said and run.nccl_version not in said:
        return f"it names NCCL {run.nccl_version}, its log {said[0]}"
    return ""


def _choices(output: Output[NcclSettings]) -> dict[int, str]:
    """Return algorithm and protocol by size from the tuning run's log; what it does not say is left out."""
    log = re.sub(r"\.r1\.txt\Z", ".tuning.log", output.record.file)
    try:
        choices = parse_nccl_log(output.folder.text(log), file=log, allow_unfinished=True).choices
    except (BadInput, OSError):
        return {}
    ranks = output.order.ranks
    return {_message_bytes(choice, ranks): f"{choice.algorithm}/{choice.protocol}" for choice in choices}


def _message_bytes(choice: NcclChoice, ranks: int) -> int:
    """Return the size as nccl-tests counts it: that of all ranks' parts together.

    NCCL that names the operation logs count * sizeof(type) (src/enqueue.cc), and the count of these two is
    one rank's.
    """
    return choice.size_bytes * (ranks if choice.operation in ("AllGather", "ReduceScatter") else 1)


def nccl_log(output: Output[NcclSettings]) -> Iterator[Value]:
    """Yield 0 or 1 for each check of the way that the data went.

    NCCL may lose a NIC and go on (since 2.30), or repeat what failed: what it warned of leaves no check good.
    """
    log = parse_nccl_log(output.text, file=output.file)
    order = output.order
    pinning = [judge_pinning(output.folder, order.gpus)] if order.expect.pinned else []
    events = [said for said in log.warnings if not OF_SETTINGS.search(said)]
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    warned = f"NCCL warned of something on {events[0]}{more}" if events else ""
    for found in (*judge_log(log, order.expect, order.gpus), *pinning):
        yield found.read({})._replace(disturbed=warned)


def moved(output: Output[NcclSettings]) -> Iterator[Moved]:
    """Yield the least that each node must have sent and received over its NICs under test, in bytes.

    Nothing is said of one node, of a sweep over a network of its own (`tcp_fabrics`), of groups that run side
    by side (NCCL_TESTS_SPLIT), and of a run that was told to leave RDMA out: its way fails by NCCL's log.
    Warm-up, checks and the tuning run come on top. Counted are timings whose data were checked: nccl-tests
    cannot check every operation in place. Raises BadInput as `nccl` does.
    """
    order, nodes = output.order, output.record.nodes
    other = order.network or order.expect.network == "nvlink"
    if len(nodes) < 2 or other or order.split != "none" or _leaves_rdma_out(order):
        return
    operation = Collective(output.record.test.removeprefix("nccl_"))
    calls = [
        (
            row.size_bytes,
            # None: the operation has no root, or no node has its host's name.
            node_of(next((d.host for d in run.devices if d.rank == row.root), ""), nodes),
            run.iterations
            * max(run.aggregated_iterations, 1)
            * sum(1 for one in (row.out_of_place, row.in_place) if one and one.wrong is not None),
        )
        for run in repeats(output)
        for row in run.rows
    ]
    yield from crossing(operation, calls, order.gpus)


# From here on NCCL spreads a message over all of its channels, so over all NICs; a tenth of a NIC's share is
# what no choice of channels goes below. With a root, a ring leaves one way empty; a pair may use one NIC.
_SPREAD_BYTES, _LEAST_SHARE = 64 << 20, 0.1
_SPREAD = {"all_reduce", "all_gather", "reduce_scatter"}


def moved_over(output: Output[NcclSettings]) -> Iterator[Moved]:
    """Yield what must have gone over each NIC that NCCL's log names at least, in bytes. Raises BadInput."""
    order, nodes = output.order, tuple(output.order.gpus)
    largest, spread = max(order.sizes), _SPREAD & {*order.operations}
    if largest < _SPREAD_BYTES or not spread or len(nodes) < 2 or order.split != "none":
        return
    log = parse_nccl_log(output.text, file=output.file)
    names = {(d.host, "IB", d.index): _ports(d.name) for d in log.ib_devices}
    names |= {(d.host, "Socket", d.index): [d.name] for d in log.socket_devices}
    ways: dict[str, dict[str, set[str]]] = {}
    for c in (c for c in log.channels if c.transport == "NET"):
        kind = "Socket" if c.network == "Socket" else "IB"
        for name in names.get((c.host, kind, c.net_device or 0), ()):
            ways.setdefault(c.host, {}).setdefault(name, set()).add(str(c.direction))
    for host, nics in ways.items():
        share = _LEAST_SHARE * largest / len(nics)
        for name, ends in nics.items():
            if node := node_of(host, nodes):
                yield Moved(node, name, share * ("send" in ends), share * ("receive" in ends))


def crossing(
    operation: Collective,
    calls: Iterable[tuple[int, str | None, float]],  # bytes of a message, node of the root, how often
    gpus: Mapping[str, int],  # how many ranks each node has
) -> Iterator[Moved]:
    """Yield the least that each node must have sent and received over its NICs, in bytes."""
    sums = {node: [0.0, 0.0] for node in gpus}
    for size_bytes, root_at, times in calls:
        for node, of_node in gpus.items():
            least = least_crossing_bytes(
                operation,
                size_bytes=size_bytes,
                ranks=sum(gpus.values()),
                of_node=of_node,
                root=None if root_at is None else node == root_at,
            )
            for way, bytes_ in enumerate(least):
                sums[node][way] += bytes_ * times
    for node, (sent, received) in sums.items():
        yield Moved(node, None, sent, received)


def _leaves_rdma_out(order: NcclSettings) -> bool:
    """Whether NCCL was told to use no verbs, where they are planned (NCCL user guide, environment)."""
    return not order.expect.interfaces and without_rdma(order.variables)


def node_of(host: str, nodes: Iterable[str]) -> str | None:
    """Return the node of a host's own name, with or without its domain; None if there is none, or several."""
    found = [node for node in nodes if node in (host, host.partition(".")[0])]
    return found[0] if len(found) == 1 else None
