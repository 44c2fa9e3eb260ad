"""UCX's own log (UCX_LOG_LEVEL=info): which transport and device every connection between ranks has.

UCX tells each configuration of connections once (ucp_worker_print_used_tls in ucp_worker.c). Up to 1.13:

    [1566814148.941358] [n1:3473 :0]  ucp_worker.c:1689 UCX  INFO  ep_cfg[1]: tag(rc_verbs/rxe0:1);

and since 1.14, with whom:

    [1701292112.829711] [n1:162239:0] ucp_worker.c:1855 UCX  INFO  0x1 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)
"""

from __future__ import annotations

import re
from pathlib import Path

from shakedown.records.base import Record
from shakedown.records.tool_text import Source

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

    Raises:
        BadInput: a connection's configuration cannot be read, so that a way would be overlooked.
    """
    lanes: dict[Lane, None] = {}
    hosts: dict[str, None] = {}
    layers: dict[str, None] = {}
    # An empty log is no damage: OpenMPI need not have used UCX at all.
    for line in Source(text, file).lines if text.strip() else ():
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
                    source = Source(text, file)
                    source.refuse(f"not a transport and a device: {word[:80]!r}", line=line)
                if not _WITHIN_A_NODE.fullmatch(lane["transport"]):
                    device = lane["device"].partition(":")[0]
                    lanes[Lane(host=told["host"], transport=lane["transport"], device=device)] = None
    return UcxLog(lanes=tuple(lanes), hosts=tuple(hosts), layers=tuple(layers))
