"""NCCL's own log (NCCL_DEBUG=INFO, 2.18 to 2.30): which way the data went, and over which devices.

Other programs' lines may stand between the log's. A log is complete when every communicator that was begun
was set up and ended; the log of a program that never destroys its communicators is read with
`allow_unfinished`. The lines themselves are read in log_lines.py.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Count

Transport = Literal["P2P", "SHM", "NET"]


class NcclChannel(Record):
    """One end of one connection, as the rank that set it up wrote it."""

    host: str  # of the rank that wrote the line
    channel: Count
    sender: Count
    receiver: Count
    direction: Literal["send", "receive"] | None  # NET only
    transport: Transport
    detail: str  # "direct pointer", "CUMEM", "IPC", "direct/direct", "IB/0/GDRDMA", ...
    network: str | None  # NET only: IB, Socket or the name of a plugin
    net_device: Count | None
    gdr: bool | None  # NET only: GPUDirect RDMA


class NcclRank(Record):
    """A rank of a communicator, and where it ran."""

    communicator: str
    rank: Count
    ranks: Count
    host: str
    pid: Count
    cuda_device: Count
    bus_id: str  # hexadecimal, as NCCL prints it
    finished: bool  # destroyed or aborted


class NcclIbDevice(Record):
    """An RDMA device that NCCL uses. `link` is RoCE or IB."""

    host: str
    index: Count
    name: str
    port: Count
    link: str


class NcclSocketDevice(Record):
    """An interface that NCCL uses for TCP."""

    host: str
    index: Count
    name: str


class NcclChoice(Record):
    """An algorithm and protocol that NCCL chose (NCCL_DEBUG_SUBSYS=TUNING), and how often."""

    operation: str | None  # None: NCCL before 2.24 does not say
    size_bytes: Count  # as logged: named AllGather and ReduceScatter count one rank's part
    algorithm: str
    protocol: str
    times: Count


class NcclLog(Record):
    """What a log says about transports, devices and ranks."""

    tool: Literal["nccl-log"] = "nccl-log"
    nccl_versions: tuple[str, ...]  # more than one: ranks differ
    hosts: tuple[str, ...]
    nodes: Count | None  # None: the log does not say
    ranks: tuple[NcclRank, ...] = Field(min_length=1)
    networks: tuple[str, ...]  # what ranks chose: IB, Socket or a plugin
    ib_devices: tuple[NcclIbDevice, ...]
    ib_missing: tuple[str, ...]  # hosts on which no RDMA device was found
    socket_devices: tuple[NcclSocketDevice, ...] = ()
    transports: dict[str, int]  # connections, by transport: "P2P/CUMEM", "NET/IB/GDRDMA", "NET/Socket"
    net_connections: Count
    net_gdr_connections: Count
    # Data goes over TCP: a connection uses sockets, or several nodes and sockets were chosen.
    socket_fallback: bool
    dmabuf_devices: Count  # GPUs for which DMA-BUF is available
    gdr_refusals: tuple[str, ...]  # why GPUDirect RDMA is off, where NCCL says so
    nvls_available: bool | None
    nvls_channels: Count | None  # the fewest that any rank has
    choices: tuple[NcclChoice, ...]
    channels: tuple[NcclChannel, ...]
    finished: bool
    aborted: Count  # communicators that ended with ncclCommAbort: an error, or a framework's way to stop
    warnings: tuple[str, ...]
