"""NCCL's own log (NCCL_DEBUG=INFO, 2.18 to 2.30): its lines, and `parse_nccl_log`, the entry point."""

import re
from collections import Counter
from pathlib import Path

from shakedown.benchmarks.nccl.log_model import (
    NcclChannel,
    NcclChoice,
    NcclIbDevice,
    NcclLog,
    NcclRank,
    NcclSocketDevice,
    Rings,
)
from shakedown.records.tool_text import Line, TextSource, quote

# Read from NCCL's source (src/debug.cc, src/init.cc, src/transport/*.cc, src/enqueue.cc), 2.18 to 2.30.

LOG_LINE = re.compile(
    r"(?:\[[0-9][0-9T:., +-]*\] )?(?P<host>[^\s:]+):(?P<pid>[0-9]+):(?P<tid>[0-9]+) (?:\[-?[0-9]+\] )?"
    r"(?:(?:[0-9.]+ )?\S+:[0-9]+ (?:\(\S*\) )?)?NCCL (?P<level>INFO|WARN|TRACE|CALL) ?(?P<message>.*)\Z"
)
# NCCL writes each line from a buffer of 1024 characters (debug.cc); host, time and file go before them.
LONGEST_LINE = 8192
# What a line has before its message. Many lines of LONGEST_LINE must not cost a look from each character on
# to the line's end, so neither expression has an open end.
_LEVEL = re.compile(r"NCCL (?:INFO|WARN) ")
_FRONT = re.compile(r"[^\s:]:[0-9]+:[0-9]+ \[-?[0-9]+\] ")
_VERSION = re.compile(r"NCCL version ([0-9]\S*)\Z")
_N = r"[0-9]{1,18}"
_CHANNEL = re.compile(
    rf"Channel ({_N})(?:/({_N}))? : ({_N})\[[0-9a-f]+\] -> ({_N})\[[0-9a-f]+\]"
    # RCCL says at the end of which communicator the channel is.
    r"(?: \[(send|receive)\])? via (\S.*?)(?: comm 0x[0-9a-f]+ nRanks [0-9]+)?\Z"
)
_RING = re.compile(rf"Channel {_N}/{_N} :(?: +{_N})*\Z")
_NET = re.compile(
    rf"(?P<net>[^/]+)/(?P<dev>{_N})(?:\((?P<proxy>{_N})\))?(?P<gdr>/GDRDMA)?(?P<pci>\(PCI\))?(?:/Shared)?\Z"
)
_LOCAL = {
    "P2P": re.compile(r"(?:direct pointer|CUMEM|MNNVL|IPC|indirect/[0-9]+\[[0-9a-f]+\])(?:/read)?(?:/CE)?\Z"),
    "SHM": re.compile(r"(?:direct|CE)(?:/(?:direct|CE))?\Z"),
}
# A later release's: a transport of one word in capitals, or another way of one that is known.
_LATER = re.compile(r"(?!NET/)[A-Z][A-Z0-9]{1,15}/[A-Za-z][\w /-]{1,40}\Z")
_INIT = re.compile(
    rf"(?:\[Rank {_N}\] )?(?:\w+ )?comm (?P<comm>\w+) rank (?P<rank>{_N}) nranks (?P<nranks>{_N})"
    rf" cudaDev (?P<dev>{_N})(?: nvmlDev [0-9]+)? busId (?P<bus>[0-9a-f]+)\b.* ?- "
    r"(?P<event>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)\Z"
)
_INIT_LIKE = re.compile(r"- (?:Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)")
_NODES = re.compile(rf"comm \w+ rank {_N} nRanks {_N} nNodes ({_N}) localRanks {_N} ")
_CHOICE = re.compile(
    rf"(?:(\w+): )?({_N}) Bytes -> Algo (\w+) proto (\w+)"
    r"(?: channel\{[^{}]*\}=\{[^{}]*\}| time \S+)\Z"
)
_SYMMETRIC = re.compile(rf"(\w+) \[Symmetric\]: ({_N}) Bytes -> Kernel (\S+) ")
# Ports merged into one device are written "[0]={[0] mlx5_0:1/RoCE, [1] mlx5_0:2/RoCE}" (2.20 to 2.22): within
# the braces are numbers of ports.
_FUSED = re.compile(r"\[([0-9]{1,4})\]=\{([^{}]{1,1024})\}")
_IB = re.compile(r"\[([0-9]{1,4})\] ?([^\s:={\[]{1,64}):([0-9]{1,3})(?::[0-9-]*)*/(\w+)")
# Ports that NCCL uses as one (since 2.21, and plugins): `Made virtual device [2] name=mlx5_0+mlx5_1 ...`.
_MERGED = re.compile(r"NET/\w+ : Made virtual device \[([0-9]{1,4})\] name=([^\s:={\[]{1,130})(?: |\Z)")
# Each device as it is found (net_ib.cc, 2.26 to 2.28): `NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=Mlx5 ...`.
_FOUND = re.compile(
    r"NET/\w+ ?: \[[0-9]{1,4}\] ([^\s:]{1,64}):[^\s:]{1,64}:[0-9]{1,3}/(\w+) (?:provider=\S{1,40} )?speed="
)
# How NCCL or a plugin lists its RDMA devices: gIB says `NET/gIB : Using [0]mlx5_0:1/RoCE`.
_USING = re.compile(r"NET/(?!Socket )(?:AWS )?[\w-]{1,40} ?: Using \[")
# Told as INFO and an event all the same: a NIC that is lost while the others go on, one that changes its rate
# (2.30, src/transport/net_ib/p2p_resiliency.cc and common.cc).
_EVENT = re.compile(
    r"NET/IB ?: (?:\w{1,60}: (?:The error is not fatal|Replacing QP: |Handling an error|Marking device )"
    r"|\S{1,70} speed change detected)"
)
_SOCKET = re.compile(r"\[([0-9]{1,4})\]([^\s:<\[]{1,64}):[^\s<]{1,64}<[0-9]+>")
_NVLS = re.compile(r"NVLS multicast support is (not )?available on dev ([0-9]+)")
_NVLS_CHANNELS = re.compile(rf"{_N} coll channels, (?:{_N} collnet channels, )?({_N}) nvls channels")

# What the numbers of NCCL before 2.24 stand for (NCCL_ALGO_*, NCCL_PROTO_* in nccl_common.h).
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


class _Log:
    """Gathers what the lines say, one method per kind of line."""

    def __init__(self, source: TextSource) -> None:
        self.source = source
        self.rings = Rings(source)
        self.channels: list[NcclChannel] = []
        self.pending: dict[tuple[str, str, str], Line] = {}
        self.aborted = 0
        self.ranks: dict[tuple[str, str, str], NcclRank] = {}
        self.ended: set[tuple[str, str, str]] = set()
        self.versions: dict[str, None] = {}
        self.networks: dict[str, None] = {}
        self.devices: dict[NcclIbDevice, None] = {}
        self.links: dict[tuple[str, str], str] = {}  # by host and device
        self.missing: dict[str, None] = {}
        self.interfaces: dict[NcclSocketDevice, None] = {}
        self.refusals: dict[str, None] = {}
        self.warnings: dict[str, None] = {}
        self.dmabuf: set[tuple[str, str]] = set()
        self.choices: Counter[tuple[str | None, int, str, str]] = Counter()
        self.nodes: list[int] = []
        self.nvls: list[bool] = []
        self.nvls_channels: list[int] = []

    def parse(self, allow_unfinished: bool) -> NcclLog:
        for line in self.source.lines:
            if len(line.text) > LONGEST_LINE:
                self.source.refuse(
                    f"a line of {len(line.text)} characters does not come from NCCL", line=line
                )
            match = LOG_LINE.match(line.text.strip())
            message = line.text if match is None else match["message"]
            if _is_spliced(message):
                fix = "set NCCL_DEBUG_FILE=nccl.%h.%p so that every process writes a file of its own"
                self.source.refuse("two lines of output are mixed", line=line, fix=fix)
            if match is None:
                # With NCCL_DEBUG=VERSION, and by wrappers of INFO, the version stands alone.
                if version := _VERSION.match(line.text.strip()):
                    self.versions[version[1]] = None
                continue
            if match["level"] == "WARN":
                self.warnings[f"{match['host']}: {message}"] = None
            elif match["level"] == "INFO":
                self._info(line, match["host"], match["pid"], message)
        unfinished = [key for key in self.ranks if key not in self.ended]
        self._check(unfinished, allow_unfinished)
        self.rings.check(tuple(self.ranks.values()), self.channels)
        return self._result(not unfinished)

    def _info(self, line: Line, host: str, pid: str, message: str) -> None:
        self.rings.read(message)
        if message.startswith("Channel "):
            self._channel(line, host, message)
        elif _INIT_LIKE.search(message):
            self._init(line, host, pid, message)
        elif " Bytes -> " in message:
            self._choice(line, message)
        elif message.startswith("Using network "):
            self.networks[message.removeprefix("Using network ").strip()] = None
        elif message.startswith("NCCL version "):
            self.versions[message.removeprefix("NCCL version ").strip()] = None
        elif match := _NVLS.match(message):
            self.nvls.append(match[1] is None)
        elif match := _NVLS_CHANNELS.match(message):
            self.nvls_channels.append(int(match[1]))
        elif match := _NODES.match(message):
            self.nodes.append(int(match[1]))
        else:
            self._device(line, host, message)

    def _device(self, line: Line, host: str, message: str) -> None:
        if _EVENT.match(message):
            self.warnings[f"{host}: {message}"] = None
        elif message.startswith("NET/IB : Using") or _USING.match(message):
            devices = _IB.findall(_FUSED.sub("", message))
            for index, within in _FUSED.findall(message):
                ports = _IB.findall(within)
                links = {link for *_, link in ports}
                names = "+".join(name for _, name, *_ in ports)
                devices.append((index, names, 1, links.pop() if len(links) == 1 else "unknown"))
            if not devices:
                self.missing[host] = None
            for index, name, port, link in devices:
                fields = {"index": int(index), "name": name, "port": int(port), "link": link}
                self.links[host, name] = link
                self.devices[self.source.build(NcclIbDevice, line=line, host=host, **fields)] = None
        elif found := _FOUND.match(message):
            # Data Direct is a second way to the same port (since 2.26, net_ib.cc).
            self.links |= {(host, found[1]): found[2], (host, f"{found[1]}_dma"): found[2]}
        elif merged := _MERGED.match(message):
            self._merged(host, int(merged[1]), merged[2].split("+"))
        elif message.startswith("NET/Socket : Using"):
            for index, name in _SOCKET.findall(message):
                fields = {"index": int(index), "name": name}
                self.interfaces[self.source.build(NcclSocketDevice, line=line, host=host, **fields)] = None
        elif message.startswith("NET/IB : No device found"):
            self.missing[host] = None
        elif message.startswith("DMA-BUF is available on GPU device "):
            self.dmabuf.add((host, message.rsplit(" ", 1)[1]))
        elif "GPU Direct RDMA Disabled" in message:
            self.refusals[message] = None

    def _merged(self, host: str, index: int, ports: list[str]) -> None:
        links = {self.links.get((host, port), "unknown") for port in ports}
        link, name = links.pop() if len(links) == 1 else "unknown", "+".join(ports)
        self.devices[
            self.source.build(NcclIbDevice, host=host, index=index, name=name, port=1, link=link)
        ] = None

    def _merged_untold(self, channels: list[NcclChannel]) -> None:
        """Take up the third device of a host that lists two: NCCL can have merged no others."""
        own: dict[str, dict[int, str]] = {}
        for device in self.devices:
            own.setdefault(device.host, {})[device.index] = device.name
        for host in {c.host for c in channels if (c.network, c.net_device) == ("IB", 2)}:
            if own.get(host, {}).keys() == {0, 1}:
                self._merged(host, 2, [own[host][0], own[host][1]])

    def _channel(self, line: Line, host: str, message: str) -> None:
        match = _CHANNEL.match(message)
        if match is None:
            if not _RING.match(message):
                self.source.refuse(f"a channel that cannot be read: {quote(message)}", line=line)
            return
        channel, connection, sender, receiver, direction, via = match.groups()
        transport, _, detail = via.partition("/")
        net = _NET.match(detail) if transport == "NET" else None
        known = net if transport == "NET" else transport in _LOCAL and _LOCAL[transport].match(detail)
        if not known and not _LATER.match(via):
            self.source.refuse(f"unknown transport {quote(via)}", line=line)
        found = self.source.build(
            NcclChannel,
            line=line,
            host=host,
            channel=int(channel),
            sender=int(sender),
            receiver=int(receiver),
            direction=direction,
            transport=transport,
            detail=detail,
            network=net["net"] if net else None,
            net_device=int(net["dev"]) if net else None,
            gdr=net["gdr"] is not None if net else None,
        )
        self.channels.append(found)
        self.rings.connection(line, found, connection)

    def _init(self, line: Line, host: str, pid: str, message: str) -> None:
        match = _INIT.match(message)
        if match is None:
            self.source.refuse(f"a communicator that cannot be read: {quote(message)}", line=line)
        key = (host, pid, match["comm"])
        if match["event"] == "Init START":
            self.pending[key] = line
        elif match["event"] == "Init COMPLETE":
            # A later communicator may get the address of one that was destroyed.
            self.pending.pop(key, None)
            self.ended.discard(key)
            self.ranks[key] = self.source.build(
                NcclRank,
                line=line,
                communicator=match["comm"],
                rank=int(match["rank"]),
                ranks=int(match["nranks"]),
                host=host,
                pid=self.source.integer(pid, "pid", line=line),
                cuda_device=int(match["dev"]),
                bus_id=match["bus"],
                finished=False,
            )
        else:
            self.ended.add(key)
            self.aborted += match["event"].startswith("Abort")

    def _choice(self, line: Line, message: str) -> None:
        if match := _CHOICE.match(message):
            algorithm, protocol = match[3], match[4]
            if algorithm.isdigit() and protocol.isdigit():
                if int(algorithm) >= len(_ALGORITHMS) or int(protocol) >= len(_PROTOCOLS):
                    self.source.refuse(f"unknown algorithm or protocol: {quote(message)}", line=line)
                algorithm, protocol = _ALGORITHMS[int(algorithm)], _PROTOCOLS[int(protocol)]
            self.choices[match[1], int(match[2]), algorithm, protocol] += 1
        elif match := _SYMMETRIC.match(message):
            self.choices[match[1], int(match[2]), "SYMMETRIC", match[3]] += 1
        elif " -> Algo" in message:
            self.source.refuse(f"a choice of algorithm that cannot be read: {quote(message)}", line=line)

    def _check(self, unfinished: list[tuple[str, str, str]], allow_unfinished: bool) -> None:
        if not self.ranks and not self.pending:
            fix = "run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,DESTROY,TUNING"
            self.source.ends_before("the first 'Init COMPLETE' of a communicator", fix=fix)
        for key, line in self.pending.items():
            what = f"a communicator on {quote(key[0])} was begun and never set up (Init COMPLETE)"
            self.source.refuse(what, line=line, fix="see the warnings in this log; run the test again")
        if unfinished and not allow_unfinished:
            what = f"'Destroy COMPLETE' of the communicator of {unfinished[0][0]}, process {unfinished[0][1]}"
            self.source.ends_before(
                what,
                fix="run it again, with NCCL_DEBUG_SUBSYS=INIT,NET,DESTROY (since NCCL 2.30); pass --partial "
                "if the program never destroys it",
            )

    def _result(self, finished: bool) -> NcclLog:
        ranks = tuple(
            rank.model_copy(update={"finished": key in self.ended}) for key, rank in self.ranks.items()
        )
        names = Counter(_name(channel) for channel in self.channels)
        net = [channel for channel in self.channels if channel.transport == "NET"]
        self._merged_untold(net)
        nodes = max(self.nodes) if self.nodes else None
        sockets = any(channel.network == "Socket" for channel in net)
        return self.source.build(
            NcclLog,
            nccl_versions=tuple(self.versions),
            hosts=tuple(dict.fromkeys(rank.host for rank in ranks)),
            nodes=nodes,
            ranks=ranks,
            networks=tuple(self.networks),
            ib_devices=tuple(self.devices),
            ib_missing=tuple(self.missing),
            socket_devices=tuple(self.interfaces),
            transports=dict(sorted(names.items())),
            net_connections=len(net),
            net_gdr_connections=sum(1 for channel in net if channel.gdr),
            socket_fallback=sockets or ((nodes or 0) > 1 and "Socket" in self.networks),
            dmabuf_devices=len(self.dmabuf),
            gdr_refusals=tuple(self.refusals),
            nvls_available=all(self.nvls) if self.nvls else None,
            nvls_channels=min(self.nvls_channels) if self.nvls_channels else None,
            choices=tuple(
                self.source.build(
                    NcclChoice,
                    operation=op,
                    size_bytes=size,
                    algorithm=algorithm,
                    protocol=protocol,
                    times=times,
                )
                for (op, size, algorithm, protocol), times in self.choices.items()
            ),
            channels=tuple(self.channels),
            finished=finished,
            aborted=self.aborted,
            warnings=tuple(self.warnings),
        )


def _is_spliced(message: str) -> bool:
    """Return whether a second line of NCCL's begins within a message, with or without its front."""
    if _LEVEL.search(message):
        return True
    at = max(message.rfind("NCCL INFO"), message.rfind("NCCL WARN"))
    return at > 0 and _FRONT.search(message, 0, at) is not None


def _name(channel: NcclChannel) -> str:
    """A transport without device numbers: "NET/IB/GDRDMA", "P2P/CUMEM"."""
    if channel.transport == "NET":
        return f"NET/{channel.network}" + ("/GDRDMA" if channel.gdr else "")
    return f"{channel.transport}/{channel.detail.split('/')[0]}"


def parse_nccl_log(text: str, *, file: str | Path | None = None, allow_unfinished: bool = False) -> NcclLog:
    """Parse a log of NCCL_DEBUG=INFO, of one rank or of all.

    Args:
        text: the log; lines that are not NCCL's are passed over.
        file: the name to quote when it is refused.
        allow_unfinished: accept a log in which communicators were not destroyed; see `finished`.

    Raises BadInput: no communicator was set up, lines are mixed or damaged, or the log ends early.
    """
    return _Log(TextSource(text, file, mixed=True)).parse(allow_unfinished)
