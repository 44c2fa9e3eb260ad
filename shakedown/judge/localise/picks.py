"""Which candidates of the fit count: same hardware, beyond their own noise, one way beyond the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtri

from shakedown.judge.localise.groups import MEDIAN_SE, Candidates, Groups, robust_sigma
from shakedown.judge.localise.levels import Deviations, against_other_way, measured, values_of
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

    family: Candidates
    index: int
    effect: float
    z: float
    gain: float
    share: float
    cells: int
    # Significant only if the others' slow half is not what healthy parts differ by.
    narrowly: bool = False


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
    """Whether one candidate is a part of the other's hardware: a NIC of its node, an uplink of its spine.

    Of a spine between two leaves each link carries all: either link or the spine itself may be the one.
    """
    one, two = a.family.keys[a.index], b.family.keys[b.index]
    if a.family.kind == b.family.kind:
        return one == two
    match sorted((a.family.kind, b.family.kind)):
        case ["nic", "node"]:
            return one[-1] == two[-1]
        case ["nic", "rail"]:
            return one[0] == two[0]
        case ["spine", "uplink"]:
            return one[-1] == two[-1] and a.cells != b.cells
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


def far_ends(family: Candidates, index: int, mask: Bools, groups: Groups) -> int:
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


# A rail is noisier than the fabric from so many times its noise on; less is chance, or a fault on it.
LOUD = 1.4
# Of fewer rails a bad NIC makes too many of its node's results to tell the node's noise by.
_FEWEST_RAILS = 3


def noise_of_rails(seen: Deviations, floor: float) -> Floats:
    """Return the noise of a result of each rail: its own, where it is noisier than the fabric as a whole.

    What NICs differ by is told from all rails together, where those of a loud rail look like slow ones.
    """
    if seen.clean < 1:
        return np.full(len(seen.residual), floor)
    own = np.array([robust_sigma(rail) for rail in seen.residual])
    return np.where(own > LOUD * floor, own, floor)


def noise_beyond(residual: Floats, slopes: Floats) -> Floats:
    """Return the noise of a result of each rail beyond that of the other way between the same two nodes."""
    told = slopes[np.isfinite(slopes)]
    if not told.size:
        return np.full(len(residual), np.nan)
    slope = float(np.median(told))
    # All results of one way are all of the other way, in another order.
    return np.array([max(robust_sigma(rail - slope * rail.T), MIN_SIGMA) for rail in residual])


def stands_out(pick: Pick, seen: Deviations, groups: Groups, slope: float, wanted: float) -> bool:
    """Whether an end's effect is significant by its own results, too: some NICs are noisier than others.

    Where links are shared the results of an end lie apart for that reason, and say nothing of its noise.
    """
    family, index = pick.family, pick.index
    if seen.clean < 1 or family.kind not in {"nic", "node"}:
        return True
    effect = pick.effect
    if slope:
        values = against_other_way(seen.residual, seen, groups, family, index, slope)
        effect = float(np.median(values)) if values.size else float("nan")
    else:
        values = values_of(seen.residual, seen, groups, family, index)
    noise = robust_sigma(values)
    if family.kind == "nic":
        # Few results tell a noise badly, and a node that is busy is noisy on all of its NICs.
        noise = max(noise, _noise_of_node(seen.residual, family.keys[index][1], family.direction, slope))
    return -effect >= wanted * MEDIAN_SE * noise / math.sqrt(max(1, len(values)))


def _noise_of_node(residual: Floats, node: int, direction: str, slope: float) -> float:
    """Return the noise of a node's results: how those with one partner differ over rails and directions.

    What the partner is like, or the node's kind, is the same in all of them; a bad NIC is in a few only, but
    of one rail or two those are half. With a slope, each is taken against that of the other direction.
    """
    sent, received = residual[:, node, :], residual[:, :, node]
    if len(sent) < _FEWEST_RAILS:
        return 0.0
    if not slope:
        with_partners = np.concatenate([sent, received])
    elif direction == "tx":
        with_partners = sent - slope * received
    else:
        with_partners = received - slope * sent
    many = len(with_partners)
    there = np.isfinite(with_partners).any(axis=0)
    away = with_partners[:, there] - np.nanmedian(with_partners[:, there], axis=0)
    return robust_sigma(away) * math.sqrt(many / (many - 1)) if away.size else 0.0


# Healthy NICs differ, and most of that they may have both ways. Then a NIC that is good by nature and lost 2
# % one way is as slow, that way, as the slowest healthy ones of many, and still far from what its other way
# lets expect. That is told by a regression of one way on the other over all other NICs; it takes nothing away
# where the two ways have nothing in common.

# A line has a slope, a level and a spread: fewer say nothing of them.
_FEWEST = 5
# Of those that were measured so many must be healthy; else those that seem so may be a heap of equals only.
_MOST = 0.75


# The slow half of healthy elements varies more than the fast half if chance makes it so less often than this.
_LOPSIDED_BY_CHANCE = 0.05
# The slowest of many healthy elements is never so many times as far from the middle as the next.
_ALONE = 2.5


def of_slow_half(away: Floats, kept: Bools, variance: Floats, count: Floats) -> tuple[Floats, Floats]:
    """Return the variance of healthy elements and of how many, each without the element that is asked about.

    A flow is as fast as its slower end, so an end that is fast by nature looks like the middle: where the
    fast half lies closer together, the slow half alone tells what healthy elements differ by. Its tail is
    no normal one, so that says nothing against an element which is alone, far below the slowest other.

    Args:
        away: from the middle.
        kept: which are healthy.
        variance, count: of all of them, each without the one asked about.
    """
    (below, slow), (above, fast) = (
        (float((away[side] ** 2).sum()) - np.where(side, away**2, 0.0), side.sum() - side)
        for side in (kept & (away < 0), kept & (away > 0))
    )
    alone = np.zeros(len(away), dtype=bool)
    slowest = np.sort(away[kept])[:2]
    if len(slowest) > 1:
        next_slowest = np.where(kept & (away <= slowest[0]), slowest[1], slowest[0])
        alone = away < np.minimum(_ALONE * next_slowest, 0.0)
    own = below / np.maximum(slow, 1)
    chance = fdtri(np.maximum(slow, 1), np.maximum(fast, 1), 1 - _LOPSIDED_BY_CHANCE)
    lopsided = (own > variance) & (own > chance * above / np.maximum(fast, 1)) & ~alone
    return np.where(lopsided, own, variance), np.where(lopsided, slow, count)


@dataclass(frozen=True, eq=False)
class Beyond:
    """What every NIC loses one way beyond what its other way tells.

    Attributes:
        effect: that, in logarithms; NaN where it cannot be told.
        error: standard deviation of that among healthy NICs.
        slope: how much of the other way's effect this way has.
        freedom: of the standard deviation.
    """

    effect: Floats
    error: Floats
    slope: Floats
    freedom: Floats


def beyond_other_way(effect: Floats, other: Floats, healthy: Bools) -> Beyond:
    """Return what is left of each way's effect, and how far a healthy NIC may lie from that.

    A NIC that is asked about has no part in it (the deleted residual of regression), and the error is that of
    a prediction: larger for one whose other way is unlike that of all others.

    Args:
        effect: of one way, of every NIC.
        other: of the other way.
        healthy: which may be.
    """
    there = np.isfinite(effect) & np.isfinite(other)
    kept = healthy & there
    # Near their middle, so that sums of squares lose no digits.
    effect, other = (v - np.median(v[kept]) if kept.any() else v for v in (effect, other))
    many = kept.sum() - kept.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = (v - _without(v, kept) / many for v in (effect, other))
        xx, yy, xy = (
            _without_own(v, w, kept) for v, w in ((effect, effect), (other, other), (effect, other))
        )
        slope = xy / yy
        left = x - slope * y
        variance = np.maximum(xx - slope * xy, 0.0) / (many - 2)
        # How much farther off a prediction is than a line: most where the other way is unlike all others.
        farther = np.sqrt(1 + 1 / many + y**2 / yy)
        away = left / farther
        middle = np.median(away[kept]) if kept.any() else 0.0
        variance, count = of_slow_half(away - middle, kept, variance, many)
        error = np.sqrt(variance) * farther
    enough = (many >= _FEWEST) & (many >= _MOST * (there.sum() - there.astype(float)))
    told = there & enough & np.isfinite(error) & (yy > many * MIN_SIGMA**2)
    nan = np.full(len(effect), np.nan)
    return Beyond(
        effect=np.where(told, left, nan),
        error=np.where(told, error, nan),
        slope=np.where(told, slope, nan),
        freedom=np.where(told, np.maximum(count - 2.0, 1.0), 1.0),
    )


def _without(values: Floats, kept: Bools) -> Floats:
    """Return the sum of those kept, for each without itself."""
    own = np.where(kept, values, 0.0)
    return np.asarray(own.sum() - own)


def _without_own(one: Floats, two: Floats, kept: Bools) -> Floats:
    """Return the sum of products about the means of those kept, for each without itself."""
    many = kept.sum() - kept.astype(float)
    with np.errstate(invalid="ignore"):
        products = _without(one * two, kept)
    return np.asarray(products - _without(one, kept) * _without(two, kept) / many)
