"""Which way NCCL's data went and over which devices, by its log, and whether every connection is named."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from shakedown.records.base import Record
from shakedown.records.tool_text import Count, Line, TextSource

# Other programs' lines may stand between the log's. A log is complete when every communicator that was begun
# was set up and ended; the log of a program that never destroys its communicators is read with
# `allow_unfinished`. The lines themselves are read in log.py.

# Networks that carry data by RDMA verbs, by the names that NCCL's log has for them, and where each was read.
# Socket is TCP; of any other nothing is known, unless the site names it (acceptance.nccl.expect.plugins).
VERBS = {
    r"IB": "NCCL, all releases",
    r"IBext(_v[0-9]+)?": "nccl-rdma-sharp-plugins of HPC-X and NGC images, to v11 (April 2026)",
    r"(IB-)?UCX(-RMA|-UCT(-RD)?)?": "the same plugins, by UCX (April 2026)",
    r"(IB_)?SPCX(_v[0-9]+)?": "NVIDIA's Spectrum-X plugin of HPC-X (2026)",
    r"gIB": "Google's plugin for A3 Ultra and later (2025)",
    r"(RCCL-|AMD-)?ANP": "ROCm/amd-anp (May 2026)",
    r"IB-(ROCM|CAST)|ROCM-IB": "RCCL itself for AMD's NICs, ROCm 7.2 and later (2026)",
}
BY_VERBS = re.compile("|".join(VERBS), re.IGNORECASE)


def without_rdma(variables: Mapping[str, str]) -> bool:
    """Whether NCCL uses no verbs with these variables (NCCL user guide, environment)."""
    return variables.get("NCCL_IB_DISABLE", "0") != "0" or not BY_VERBS.fullmatch(
        variables.get("NCCL_NET", "IB")
    )


# Transports whose lines are known, from NCCL's sources (src/transport/*.cc, 2.18 to 2.30). Another is kept,
# and says nothing of where the data went.
TRANSPORTS = ("P2P", "SHM", "NET")


class NcclChannel(Record):
    """One end of one connection, as the rank that set it up wrote it."""

    host: str  # of the rank that wrote the line
    channel: Count
    sender: Count
    receiver: Count
    direction: Literal["send", "receive"] | None  # NET only
    transport: str  # one of TRANSPORTS, or a later release's
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
    warnings: tuple[str, ...]  # each behind the name of its host


# Rank 0 prints every ring ("Channel 00/24 : 0 1 2 3"), every rank its place in the trees ("Trees [0]
# 1/-1/-1->0->2") and "Connected all rings" or "Connected all trees" once it has them (src/init.cc,
# src/transport.cc). What must be there is known only where one communicator was made: several number their
# ranks alike.

_RING = re.compile(r"Channel ([0-9]{1,4})/([0-9]{1,4}) : +([0-9 ]+)\Z")
_TREE = re.compile(r"\[([0-9]{1,4})\] (-?[0-9]+(?:/-?[0-9]+)*)->([0-9]+)->(-?[0-9]+)")

Hop = tuple[int, int, int]  # channel, sender, receiver


class Rings:
    """Gathers what a log says of rings and trees, then holds its connections against it."""

    def __init__(self, source: TextSource) -> None:
        self.source = source
        self.rings: dict[int, list[int]] = {}
        self.of: set[int] = set()
        self.trees: set[Hop] = set()
        self.connected: set[str] = set()
        self.seen: dict[tuple[object, ...], Line] = {}
        self.again: Line | None = None

    def read(self, message: str) -> None:
        """Take up a line, whichever it is."""
        if match := _RING.match(message):
            self.rings[int(match[1])] = [int(rank) for rank in match[3].split()]
            self.of.add(int(match[2]))
        elif message.startswith("Trees ["):
            for channel, children, rank, parent in _TREE.findall(message):
                near = [int(x) for x in (*children.split("/"), parent) if int(x) >= 0]
                self.trees |= {(int(channel), int(rank), other) for other in near}
        elif message.startswith(("Connected all rings", "Connected all trees")):
            self.connected.add(message.split()[2].rstrip(","))

    def connection(self, line: Line, channel: NcclChannel, connection: str | None) -> None:
        """Take up a connection; `connection` is the number behind the channel's."""
        key = (channel.channel, connection, channel.sender, channel.receiver, channel.direction)
        if key in self.seen and self.again is None:
            self.again = line
        self.seen[key] = line

    def check(self, ranks: Sequence[NcclRank], channels: Sequence[NcclChannel]) -> None:
        """Refuse a log that lacks a connection, or names one twice."""
        if len({(rank.rank, rank.ranks) for rank in ranks}) != len(ranks) or len(self.of) > 1:
            return  # several communicators
        if len({rank.ranks for rank in ranks}) > 1:
            return
        if self.again is not None:
            fix = "keep one log a file, each once"
            self.source.refuse("a connection is named twice", line=self.again, fix=fix)
        if self.of and set(self.rings) != set(range(max(self.of))):
            lost = sorted(set(range(max(self.of))) - set(self.rings))
            self._refuse(f"ring {lost[0] if lost else max(self.rings)} of {max(self.of)}")
        here = {rank.rank for rank in ranks}
        found = {(c.channel, c.sender, c.receiver): c.transport for c in channels}
        ends = {(c.channel, c.sender, c.receiver, c.direction) for c in channels}
        for hop in sorted(self._due(here)):
            if hop not in found:
                self._refuse(f"the connection of channel {hop[0]} from rank {hop[1]} to rank {hop[2]}")
        for (channel, sender, receiver), transport in found.items():
            if transport != "NET" or not self.connected:
                continue
            for direction, rank in (("send", sender), ("receive", receiver)):
                if rank in here and (channel, sender, receiver, direction) not in ends:
                    what = f"the {direction} end of channel {channel} from rank {sender} to rank {receiver}"
                    self._refuse(what)

    def _due(self, here: set[int]) -> set[Hop]:
        due: set[Hop] = set()
        if "rings" in self.connected:
            for channel, ring in self.rings.items():
                hops = zip(ring, [*ring[1:], ring[0]], strict=True)
                due |= {(channel, sender, receiver) for sender, receiver in hops if sender != receiver}
        if "trees" in self.connected:
            due |= self.trees
        return {hop for hop in due if hop[1] in here}

    def _refuse(self, what: str) -> None:
        fix = "keep the whole log; set NCCL_DEBUG_FILE so that every process writes its own"
        self.source.refuse(f"{what} is missing: lines of the log are lost", fix=fix)
