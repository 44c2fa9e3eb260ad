"""`rdma -j statistic show`: the hardware counters of every RDMA port (iproute2)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from shakedown.nics.counter_sets import RDMA, driver_of, missing
from shakedown.records.base import Record
from shakedown.records.tool_text import Count, Source, quote

_IDENTITY = {"ifname", "port", "ifindex"}


class RdmaPort(Record):
    """The counters of one port of one RDMA device."""

    device: str
    port: Count
    driver: str | None  # None: a driver whose counters are not known, so a cut reading looks whole
    counters: dict[str, Count] = Field(min_length=1)


class RdmaResult(Record):
    """All ports of one host."""

    tool: Literal["rdma"] = "rdma"
    ports: tuple[RdmaPort, ...] = Field(min_length=1)


def parse_rdma(text: str, *, file: str | Path | None = None) -> RdmaResult:
    """Parse `rdma -j statistic show`, with or without a link named.

    Raises:
        BadInput: not that JSON, a counter that is not a whole number, no port, a port twice, or a
            counter missing that the driver always reports.
    """
    source = Source(text, file)
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
        if any(not 0 <= value < 1 << 64 for value in counters.values()):
            source.refuse(f"counters are of 64 bits, not what {name}/{port} shows")
        known = driver_of(counters, RDMA)
        if known and (lost := missing(counters, known)):
            what = (
                f"{known.driver} always reports {', '.join(lost[:4])}, the reading of {name}/{port} does not"
            )
            source.refuse(what, fix="capture it again, whole")
        driver = known.driver if known else None
        ports[name, port] = source.build(RdmaPort, device=name, port=port, driver=driver, counters=counters)
    return source.build(RdmaResult, ports=tuple(ports.values()))
