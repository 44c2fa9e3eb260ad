"""NCCL's own log against which way the data had to go: each deviation by its name and likely cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shakedown.benchmarks.base.pinning import Deviation
from shakedown.benchmarks.nccl.log_model import NcclChannel, NcclIbDevice, NcclLog
from shakedown.benchmarks.nccl.order import ExpectedWay

# What NCCL calls the link of an RDMA device (src/transport/net_ib), and people do.
_LINKS = {"roce": ("RoCE", "RoCE"), "ib": ("IB", "InfiniBand")}


def judge_log(log: NcclLog, expect: ExpectedWay, gpus: Mapping[str, int]) -> Iterator[Deviation]:
    """Yield every check of one run.

    Args:
        log: the joined log of all ranks.
        expect: which way was planned.
        gpus: how many GPUs each node has.
    """
    used: dict[str, set[str]] = {}
    for rank in log.ranks:
        used.setdefault(rank.host, set()).add(rank.bus_id)
    many = sorted(len(buses) for buses in used.values())
    planned = sorted(gpus.values())
    yield Deviation("ranks", int(many != planned), f"GPUs by host: {many}, {planned} planned")
    yield _intra_node(log, expect.intra_node, len(gpus), max(planned))
    yield _nvls(log.nvls_channels, expect.nvls)
    if len(gpus) > 1:
        yield from _tcp(log, expect.interfaces) if expect.interfaces else _network(log, expect)


def _intra_node(log: NcclLog, wanted: str, nodes: int, per_node: int) -> Deviation:
    local = [c.transport for c in log.channels if c.transport != "NET"]
    net = [c.network for c in log.channels if c.transport == "NET"]
    if per_node == 1:
        return Deviation("intra_node", int(bool(local)), "one GPU a node")
    if not log.channels:
        return Deviation("intra_node", None, "the log names no connection")
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


def _network(log: NcclLog, expect: ExpectedWay) -> Iterator[Deviation]:
    net = [c for c in log.channels if c.transport == "NET"]
    if not net:
        for check in ("network", "gdr", "nics"):
            yield Deviation(check, None, "the log names no connection between nodes")
        return
    sockets = [c for c in net if c.network != "IB"]
    names = {(d.host, d.index): d for d in log.ib_devices}
    links = {names[c.host, c.net_device].link for c in net if (c.host, c.net_device) in names}  # type: ignore[index]
    if sockets:
        way = ", ".join(sorted({str(c.network) for c in sockets}))
        text = f"{len(sockets)} of {len(net)} connections between nodes go by {way}: TCP fallback, no RDMA"
        yield Deviation("network", 1, text)
    else:
        text = f"{len(net)} connections by IB verbs over {', '.join(sorted(links)) or 'an unknown link'}"
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
        used.setdefault(channel.host, set()).add(device.name if device else "unknown")
    # Host names of the log need not be Slurm's names of the nodes: what the nodes use is compared as a whole.
    has = sorted(sorted(devices) for devices in used.values())
    want = sorted(sorted(devices) for devices in planned.values())
    missing = sorted({n for devices in want for n in devices} - {n for devices in has for n in devices})
    text = f"NICs used by host: {has}, {want} planned"
    if missing:
        text += f": {', '.join(missing)} carry nothing"
    return Deviation("nics", int(has != want), text[:900])
