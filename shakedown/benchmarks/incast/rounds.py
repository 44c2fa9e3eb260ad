"""Who sends to whom at one time. Pure, standard library only: plan, job and reader have the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shakedown.benchmarks.incast.names import ALL_TO_ALL


@dataclass(frozen=True)
class Round:
    """What happens at one time on one rail.

    Attributes:
        pattern: of names.py.
        rail: whose NICs carry it.
        senders: of each receiver, who sends to it.
    """

    pattern: str
    rail: str
    senders: dict[str, tuple[str, ...]]

    def partners(self, node: str) -> list[str]:
        """Return with whom a node has to do, in the order of the receivers' and senders' names."""
        found = set(self.senders.get(node, ()))
        found |= {receiver for receiver, senders in self.senders.items() if node in senders}
        return sorted(found)


def rounds_of(
    nodes: Sequence[str], rails: Sequence[str], patterns: Sequence[str], senders: int, receivers: int
) -> list[Round]:
    """Return the rounds in order; none where there are fewer than two senders for any receiver.

    Args:
        nodes: all that take part, in natural order.
        rails: one after the other.
        patterns: of names.py.
        senders: at most so many send to one node.
        receivers: at most so many nodes receive in incast.
    """
    if len(nodes) < 3:
        return []
    found: list[Round] = []
    for pattern in patterns:
        for rail in rails:
            if pattern == ALL_TO_ALL:
                groups = _groups(nodes, senders + 1)
                each = {node: tuple(n for n in group if n != node) for group in groups for node in group}
                found.append(Round(pattern, rail, each))
            else:
                for place in _spread(len(nodes), receivers):
                    after = [*nodes[place + 1 :], *nodes[:place]][:senders]
                    found.append(Round(pattern, rail, {nodes[place]: tuple(after)}))
    return found


def _spread(count: int, wanted: int) -> list[int]:
    """Return places spread evenly over so many."""
    wanted = min(count, wanted)
    return [n * count // wanted for n in range(wanted)]


def _groups(nodes: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return neighbours in groups of about so many, none smaller than three."""
    count = max(1, min(round(len(nodes) / size), len(nodes) // 3))
    ends = [n * len(nodes) // count for n in range(count + 1)]
    return [nodes[one:other] for one, other in pairwise(ends)]
