"""Candidates that were found significant: which are the same hardware, and which explain the same results."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shakedown.judge.localise.bottleneck import measured, values_of
from shakedown.judge.localise.groups import Family, Groups
from shakedown.judge.localise.levels import Deviations
from shakedown.judge.localise.model import Bools, Floats

# A matrix without any noise must not divide by zero.
MIN_SIGMA = 1e-9
# Part of its single results that must; noise alone takes some of a small effect's away.
MIN_CELL_SHARE = 0.65
# A rival that loses this part of its gain when the winner is taken out explained the same results.
SAME_RESULTS = 0.5
# A rival with this part of the winner's gain is near enough: faults are not the same size everywhere.
RIVAL_GAIN = 0.75


@dataclass(frozen=True, eq=False)
class Pick:
    """A candidate as it stood when it was considered."""

    family: Family
    index: int
    effect: float
    z: float
    gain: float
    share: float
    cells: int


def shared_by_cells(pick: Pick, residual: Floats, seen: Deviations, groups: Groups) -> bool:
    """Whether most of a candidate's own results, and not only its members' medians, show the effect."""
    values = values_of(residual, seen, groups, pick.family, pick.index)
    return bool((values <= pick.effect / 2).mean() >= MIN_CELL_SHARE)


def close_ones(best: Pick, others: list[Pick]) -> list[Pick]:
    """Return the candidates of other hardware that gain nearly as much."""
    least = min(RIVAL_GAIN * best.gain, best.gain - 2 * math.log(1e4))
    return [c for c in others if c.gain >= least and not same_hardware(best, c)]


def rivals_of(
    best: Pick, others: list[Pick], before: Floats, seen: Deviations, groups: Groups, sigma: float
) -> list[Pick]:
    """Return the candidates of other hardware that explained the same results nearly as well.

    The best one is out of `seen` already, and still in `before`.
    """
    close = [c for c in close_ones(best, others) if shared_by_cells(c, before, seen, groups)]
    if not close:
        return []
    floor = max(sigma, MIN_SIGMA)
    lines, blocks = measured(seen.residual, seen, groups, floor)
    left = {id(c.family): groups.score(c.family, lines, blocks).gain for c in close}
    return [c for c in close if left[id(c.family)][c.index] / floor**2 < SAME_RESULTS * c.gain]


def cells_of_all(picks: list[Pick], groups: Groups, mask: Bools) -> Bools:
    """Return a mask with the results of all picks added to it."""
    every = mask.copy()
    for pick in picks:
        every |= groups.cells(pick.family, pick.index)
    return every


def same_hardware(a: Pick, b: Pick) -> bool:
    """Whether one candidate is a part of the other's hardware: a NIC of its node, an uplink of its spine."""
    one, two = a.family.keys[a.index], b.family.keys[b.index]
    if a.family.kind == b.family.kind:
        return one == two
    match sorted((a.family.kind, b.family.kind)):
        case ["nic", "node"]:
            return one[-1] == two[-1]
        case ["nic", "rail"]:
            return one[0] == two[0]
        case ["spine", "uplink"]:
            return one[-1] == two[-1]
        case _:
            return False


def posterior(best: Pick, rivals: list[Pick]) -> float:
    """Return the probability of the best explanation against its rivals, equal before the measurement."""
    return 1.0 / (1.0 + sum(weights(best, rivals)))


def weights(best: Pick, rivals: list[Pick]) -> list[float]:
    """Return how likely each rival is beside the best explanation, 0 to 1.

    Twice the logarithm of the likelihood ratio is the difference in gain, in units of the noise's variance.
    That holds for effects of one size; where they vary, gains a quarter apart say nothing either.
    """
    return [
        max(
            math.exp(min(0.0, (r.gain - best.gain) / 2)),
            min(1.0, (r.gain / best.gain - RIVAL_GAIN) / (1 - RIVAL_GAIN)) if best.gain else 1.0,
        )
        for r in rivals
    ]


def far_ends(family: Family, index: int, mask: Bools, groups: Groups) -> int:
    """Return how many different far ends the results of a candidate have: nodes, or leaves for an uplink."""
    if family.of_blocks:
        own = family.keys[index][0] if family.kind == "uplink" else -1
        rail, source, sink = np.nonzero(mask)
        ends = np.union1d(groups.fabric.leaf[rail, source], groups.fabric.sink_leaf[rail, sink])
        return int((ends != own).sum())
    rail, source, sink = np.nonzero(mask)
    ends = np.union1d(source, sink)
    if family.kind in {"leaf", "rail"}:
        return len(ends)
    own_node = family.keys[index][-1]
    return int((ends != own_node).sum())
