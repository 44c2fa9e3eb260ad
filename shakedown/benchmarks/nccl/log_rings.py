"""Whether NCCL's log names every connection: its rings and trees say which there must be.

Rank 0 prints every ring ("Channel 00/24 : 0 1 2 3"), every rank its place in the trees ("Trees [0]
1/-1/-1->0->2") and "Connected all rings" or "Connected all trees" once it has them (src/init.cc,
src/transport.cc). What must be there is known only where one communicator was made: several number their
ranks alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shakedown.benchmarks.nccl.log_model import NcclChannel, NcclRank
from shakedown.records.tool_text import Line, Source

_RING = re.compile(r"Channel ([0-9]{1,4})/([0-9]{1,4}) : +([0-9 ]+)\Z")
_TREE = re.compile(r"\[([0-9]{1,4})\] (-?[0-9]+(?:/-?[0-9]+)*)->([0-9]+)->(-?[0-9]+)")

Hop = tuple[int, int, int]  # channel, sender, receiver


class Rings:
    """Gathers what a log says of rings and trees, then holds its connections against it."""

    def __init__(self, source: Source) -> None:
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
