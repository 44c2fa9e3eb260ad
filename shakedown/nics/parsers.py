"""Read what ethtool and rdma print of a NIC."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from shakedown.nics.counter_sets import (
    ETHTOOL,
    driver_of,
    missing,
    queues_missing,
    rdma_driver_of,
    sums_wrong,
    unknown,
)
from shakedown.records.base import Record
from shakedown.records.tool_text import Count, Line, TextSource, quote

# `ethtool -S NETDEV`: a driver's own counters.
#
# The output has no end mark: one that was cut at a line end looks whole. What a known driver always reports
# must be there (see counter_sets); of an unknown driver's reading it is not known whether it is whole.

# The name may hold blanks, brackets and colons ("[0]: rx_ucast_packets"); the value follows the last colon.
# Bounds far above what the kernel has (32 characters, 20 digits), so that no line takes long.
_COUNTER = re.compile(r"\s+(?P<name>\S.{0,200}?)\s{0,100}: {0,100}(?P<value>\S{1,100})\Z")
_NO_COUNT = re.compile(r"-[0-9]{1,20}\Z|0x[0-9a-fA-F]{1,16}\Z")
# vmxnet3 numbers its queues in a line of their own, indents their counters by two blanks more, and what makes
# up one of them by five (drivers/net/vmxnet3/vmxnet3_ethtool.c). ethtool itself indents by five.
_SECTION = re.compile(r" {5}(?P<name>[TR]x Queue#): *(?P<number>\d{1,4})\Z")
_IN_QUEUE, _IN_COUNTER = " " * 7, " " * 10


class EthtoolResult(Record):
    """The counters of one network device."""

    tool: Literal["ethtool"] = "ethtool"
    driver: str | None  # None: a driver whose counters are not known, so a cut reading looks whole
    counters: dict[str, Count] = Field(min_length=1)
    unread: tuple[str, ...] = ()  # a count below zero, or not in decimals: what the device did not answer


def parse_ethtool(
    text: str, *, file: str | Path | None = None, required: Iterable[str] = ()
) -> EthtoolResult:
    """Parse `ethtool -S`.

    Args:
        text: the output.
        file: the name to quote when it is refused.
        required: counters that must be there. On mlx5 the per-priority pause counters exist only while PFC
            is on for the priority: their absence is a finding, not zero.

    Raises BadInput: no statistics, a value that is not a whole number, a last line that was cut off, a
    counter missing that the driver always reports.
    """
    source = TextSource(text, file)
    lines = [line for line in source.lines if line.text.strip()]
    if lines[0].text.strip() != "NIC statistics:":
        fix = "capture `ethtool -S NETDEV` of a device whose driver has statistics"
        source.refuse(f"not 'NIC statistics:' but {quote(lines[0].text.strip())}", line=lines[0], fix=fix)
    counters, unread = _counters(source, lines[1:])
    # No driver has a single counter.
    if len(counters) < 2 or not source.terminated:
        source.ends_before("the end of the counters", fix="capture it again")
    known = driver_of(counters, ETHTOOL)
    lost = [name for name in (missing(counters, known) if known else []) if name not in unread]
    again = "capture it again, whole"
    if lost:
        what = f"{known.driver if known else ''} always reports {', '.join(lost[:4])}, this reading does not"
        source.refuse(what, line=lines[-1], fix=again)
    if what := queues_missing(counters) or sums_wrong(counters):
        source.refuse(f"counters are missing or damaged: {what}", line=lines[-1], fix=again)
    if absent := sorted(set(required) - set(counters)):
        source.refuse(f"no counter {', '.join(absent)}", line=lines[-1], fix="see `ethtool -S` on the node")
    driver = known.driver if known else None
    return source.build(EthtoolResult, driver=driver, counters=counters, unread=tuple(unread))


def _counters(source: TextSource, lines: list[Line]) -> tuple[dict[str, int], dict[str, None]]:
    """Return the counters, and the names of those that have no count."""
    counters: dict[str, int] = {}
    unread: dict[str, None] = {}
    section, counter = "", ""
    for line in lines:
        if queue := _SECTION.match(line.text):
            section = f"{queue['name']}{queue['number']}: "
            if any(name.startswith(section) for name in counters):
                source.refuse(f"{section[:-2]} twice", line=line, fix="keep one device a file")
            continue
        match = _COUNTER.match(line.text)
        if match is None:
            source.refuse(f"not a counter: {quote(line.text.strip())}", line=line)
        name = match["name"]
        if section and line.text.startswith(_IN_COUNTER):
            name = f"{section}{counter}: {name}"
        elif section and line.text.startswith(_IN_QUEUE):
            name, counter = section + name, name
        if _NO_COUNT.match(match["value"]):
            unread[name] = None
            continue
        value = source.integer(match["value"], name, line=line)
        if not 0 <= value < 1 << 64:
            source.refuse(f"counters are of 64 bits, {name} is {value}", line=line)
        if counters.setdefault(name, value) != value:
            source.refuse(f"{name} has two values", line=line, fix="keep one device a file")
    return counters, unread


_IDENTITY = {"ifname", "port", "ifindex"}


class RdmaPort(Record):
    """The counters of one port of one RDMA device; none where its driver has none."""

    device: str
    port: Count
    driver: str | None  # None: a driver whose counters are not known, so a cut reading looks whole
    counters: dict[str, Count]  # a later release's by the names that limits have (counter_sets.yml)
    unread: tuple[str, ...] = ()  # a count below zero
    # What the known releases of the driver report, where this reading has other names instead: a later one.
    lacks: tuple[str, ...] = ()


class RdmaResult(Record):
    """All ports of one host."""

    tool: Literal["rdma"] = "rdma"
    ports: tuple[RdmaPort, ...] = Field(min_length=1)


def parse_rdma(text: str, *, file: str | Path | None = None) -> RdmaResult:
    """Parse `rdma -j statistic show`, with or without a link named.

    Raises BadInput: not that JSON, a counter that is not a whole number, no port, a port twice, or a counter
    missing that the driver always reports, with no other in its place.
    """
    source = TextSource(text, file)
    document = source.json(by="rdma -j statistic show")
    if not isinstance(document, list) or not document:
        fix = "capture `rdma -j statistic show` on a host with an RDMA device"
        source.refuse("not a list of RDMA ports", fix=fix)
    ports: dict[tuple[object, object], RdmaPort] = {}
    for entry in document:
        if not isinstance(entry, dict) or not isinstance(entry.get("ifname"), str):
            source.refuse(f"not an RDMA port: {quote(entry)}")
        name, port = entry["ifname"], source.integer(entry.get("port"), "port")
        if "lqpn" in entry or "cntn" in entry:
            source.refuse(f"{name}: counters of a queue pair, not of the port", fix="leave out `qp`")
        if (name, port) in ports:
            source.refuse(f"port {name}/{port} appears twice", fix="keep one reading a file")
        counters = {
            key: source.integer(value if isinstance(value, int) else quote(value), f"{name} {key}")
            for key, value in entry.items()
            if key not in _IDENTITY
        }
        if any(value >= 1 << 64 for value in counters.values()):
            source.refuse(f"counters are of 64 bits, not what {name}/{port} shows")
        known = rdma_driver_of(counters)
        counters = known.named(counters) if known else counters
        unread = tuple(of for of, value in counters.items() if value < 0)
        lost = missing(counters, known) if known else []
        counters = {of: value for of, value in counters.items() if value >= 0}
        if known and lost and len(unknown(counters, known)) < len(lost):
            what = (
                f"{known.driver} always reports {', '.join(lost[:4])}, the reading of {name}/{port} does not"
            )
            source.refuse(what, fix="capture it again, whole")
        driver = known.driver if known else None
        ports[name, port] = source.build(
            RdmaPort,
            device=name,
            port=port,
            driver=driver,
            counters=counters,
            unread=unread,
            lacks=tuple(lost),
        )
    return source.build(RdmaResult, ports=tuple(ports.values()))


# By the tool's name: module and function that read its output.
SOURCES = {
    "ethtool": ("shakedown.nics.parsers", "parse_ethtool"),
    "rdma": ("shakedown.nics.parsers", "parse_rdma"),
}
