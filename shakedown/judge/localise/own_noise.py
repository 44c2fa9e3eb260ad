"""Whether an effect stands out of the noise of the very part: NICs, nodes and rails are not all as noisy."""

from __future__ import annotations

import math

import numpy as np

from shakedown.judge.localise.bottleneck import against_other_way, values_of
from shakedown.judge.localise.groups import MEDIAN_SE, Groups, robust_sigma
from shakedown.judge.localise.levels import Deviations
from shakedown.judge.localise.model import Floats
from shakedown.judge.localise.picks import MIN_SIGMA, Pick

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
