"""What a night measures: each idle node gets what it has waited for longest, within its budget.

A *slot* is one test on one rail, or the tests of a node by itself. Pairs are measured in small groups, all
pairs of a group, so that one job that is preempted spoils little and every node meets several partners,
others each night.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from shakedown.records.errors import BadInput
from shakedown.records.names import natural_key

# Last night that covered a node's slot; slots that were never covered are not in it.
Covered = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Share:
    """One slot measured on one group of nodes."""

    slot: str
    nodes: tuple[str, ...]


@dataclass
class _Night:
    idle: Sequence[str]
    costs: Mapping[str, float]
    covered: Covered
    left: dict[str, float]
    alone: Mapping[str, Collection[str]]
    chosen: dict[str, list[str]] = field(default_factory=dict)  # by slot

    def waits(self, node: str, slot: str) -> tuple[float, str]:
        """Sort key: never covered first, then the longest ago."""
        return (self.covered.get(node, {}).get(slot, float("-inf")), slot)

    def wanted(self, node: str) -> str | None:
        """What a node has waited for longest among what it can still afford tonight."""
        can = [
            slot
            for slot, cost in self.costs.items()
            if cost <= self.left[node]
            and node not in self.chosen.get(slot, ())
            and (slot not in self.alone or node in self.alone[slot])
        ]
        return min(can, key=lambda slot: self.waits(node, slot), default=None)

    def take(self, node: str, slot: str) -> None:
        self.chosen.setdefault(slot, []).append(node)
        self.left[node] -= self.costs[slot]


def choose(
    idle: Iterable[str],
    costs: Mapping[str, float],
    covered: Covered,
    *,
    budget_s: float,
    group: int,
    seed: int,
    alone: Mapping[str, Collection[str]] | None = None,
) -> list[Share]:
    """Return tonight's shares, in a fixed order.

    Args:
        idle: nodes that may be measured.
        costs: seconds that a node spends on each slot.
        covered: when each node's slots were covered last, any increasing number.
        budget_s: seconds that a node may be used tonight.
        group: nodes measured with each other; at least three. Where there are fewer, fewer.
        seed: mixes the groups, so that partners change from night to night.
        alone: slots that a node is measured in by itself, with the nodes that have them.

    Raises:
        BadInput: a slot costs more than the budget, or the group is no group.
    """
    check(costs, budget_s=budget_s, group=group)
    nodes = sorted(set(idle), key=natural_key)
    if len(nodes) < 2:
        return []
    night = _Night(nodes, costs, covered, dict.fromkeys(nodes, budget_s), alone or {})
    while True:
        wishes: dict[str, list[str]] = {}
        for node in nodes:
            slot = night.wanted(node)
            if slot is not None:
                wishes.setdefault(slot, []).append(node)
        served = False
        for slot, members in sorted(wishes.items(), key=lambda wish: (-len(wish[1]), wish[0])):
            served = _serve(night, slot, members) or served
        if not served:
            break
    return [
        Share(slot, part)
        for slot in sorted(night.chosen)
        for part in groups(night.chosen[slot], group, f"{seed} {slot}")
        if len(part) > 1 or slot in night.alone
    ]


def _serve(night: _Night, slot: str, members: Sequence[str]) -> bool:
    """Give a slot to the nodes that want it; return whether any got it."""
    taking = [
        n for n in members if night.left[n] >= night.costs[slot] and n not in night.chosen.get(slot, ())
    ]
    # A node alone needs a partner: the one that has waited longest and can spare the time.
    if slot not in night.alone and len(taking) + len(night.chosen.get(slot, ())) < 2:
        partner = _partner(night, slot, taking[0]) if taking else None
        if partner is None:
            return False
        taking.append(partner)
    for node in taking:
        night.take(node, slot)
    return bool(taking)


def _partner(night: _Night, slot: str, node: str) -> str | None:
    can = [n for n in night.idle if n != node and night.left[n] >= night.costs[slot]]
    return min(can, key=lambda n: (*night.waits(n, slot), natural_key(n)), default=None)


def groups(nodes: Sequence[str], size: int, seed: str) -> list[tuple[str, ...]]:
    """Return the nodes in mixed groups of at most `size`, none of one if there are two nodes at all."""
    mixed = sorted(nodes, key=natural_key)
    random.Random(seed).shuffle(mixed)  # noqa: S311  (a schedule, not a secret)
    parts = max(1, -(-len(mixed) // size))
    cut = [len(mixed) * i // parts for i in range(parts + 1)]
    return [tuple(sorted(mixed[a:b], key=natural_key)) for a, b in pairwise(cut)]


def check(costs: Mapping[str, float], *, budget_s: float, group: int) -> None:
    """Raise BadInput if a slot can never be measured."""
    if group < 3:  # an odd number of nodes in pairs would leave one alone
        raise BadInput(f"groups of {group}", fix="use 3 or more: a node needs partners")
    for slot, cost in costs.items():
        if cost > budget_s:
            raise BadInput(
                f"{slot} takes {cost:.0f} s a node, the night's budget is {budget_s:.0f} s",
                fix="raise the budget, make the test shorter or the groups smaller",
            )


def nights_to_cover(costs: Mapping[str, float], *, budget_s: float) -> int:
    """Return in how many of its idle nights a node is measured in every slot, if partners wait alike."""
    left, nights = dict(costs), 0
    while left:
        nights, spare = nights + 1, budget_s
        for slot in sorted(left):
            if left[slot] <= spare:
                spare -= left.pop(slot)
    return nights
