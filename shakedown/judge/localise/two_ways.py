"""Pairs of nodes that go another way than the rest, slower by as much each: no node's fault, and no noise.

Such pairs are slow on all rails and both ways, and every node has pairs of either kind, which differ by as
much at each. Taken for noise they hide every smaller loss; so their difference is taken out, and told.
What leaves or kinds of nodes make of pairs is left to those who know them (levels.py, speeds.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shakedown.judge.localise.fit import DOUBTFUL
from shakedown.judge.localise.groups import robust_sigma
from shakedown.judge.localise.model import Bools, Element, Explanation, Fabric, Floats, Matrix

# The two heaps of pairs lie so far apart, and so many times as far as the pairs of one differ, ...
_APART = 0.03
_APART_SIGMAS = 8.0
# ... and neither is a handful.
_LEAST_SHARE = 0.15
# Of single results this part lies where its pair does, of nodes this part shows at least half of the gap.
_SINGLE_SHARE = 0.95
_NODE_SHARE = 0.95
# Pairs of two leaves are alike for other reasons: if so many lie where most of their two leaves' do.
_LEAF_SHARE = 0.95
_SMALLEST_MESH, _FEWEST_RAILS = 16, 3
_SWEEPS = 4
_WHY = "on all rails and both ways, while their nodes are well with others: these pairs go another way"


def of_one_way(matrix: Matrix, fabric: Fabric) -> tuple[Matrix, list[Explanation]]:
    """Return the matrix without the difference of two ways, and what it was: a suspicion of the fabric."""
    rails, nodes, _ = matrix.values.shape
    if not matrix.higher or nodes < _SMALLEST_MESH or rails < _FEWEST_RAILS or _is_narrow(matrix.values):
        return matrix, []
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(matrix.values > 0, matrix.values, np.nan))
    slow, middle = _two_heaps(_of_pairs(rest := _without_ends(logs)))
    if slow is None or not _holds_alone(rest, slow, middle) or _are_leaves(slow, fabric):
        return matrix, []
    gaps = _gaps(logs, slow)
    gap = float(_middles(gaps[None])[0])
    if not gap >= _APART or (gaps >= gap / 2).mean() < _NODE_SHARE:
        return matrix, []
    values = np.where(slow[None], matrix.values * np.exp(gap), matrix.values)
    return replace(matrix, values=values), [_finding(matrix, slow, gap)]


def _is_narrow(values: Floats) -> bool:
    """Whether there is no room for two heaps: next to nothing is so far from the rest. It costs little."""
    some = values.reshape(len(values), -1)[:, :: max(1, values[0].size // 20_000)]
    return all(not _spans(rail[np.isfinite(rail) & (rail > 0)]) for rail in some)


def _spans(rates: Floats) -> bool:
    if not rates.size:
        return False
    low, high = np.quantile(rates, [0.8 * _LEAST_SHARE, 1 - 0.8 * _LEAST_SHARE])
    return bool(np.log(high / low) >= _APART)


def _without_ends(logs: Floats) -> Floats:
    """Return what senders and receivers do not explain, by their means: a whole line that is slow is gone."""
    rest = logs.copy()
    there = np.isfinite(rest)
    rest[~there] = 0.0
    for _ in range(_SWEEPS):
        for axis in (2, 1):
            mean = rest.sum(axis=axis, keepdims=True) / np.maximum(there.sum(axis=axis, keepdims=True), 1)
            rest = np.where(there, rest - mean, 0.0)
    rest[~there] = np.nan
    return rest


def _of_pairs(rest: Floats) -> Floats:
    """Return the middle of every pair's results on all rails and both ways, shape (nodes, nodes)."""
    there = np.isfinite(rest)
    total, many = np.where(there, rest, 0.0).sum(axis=0), there.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray((total + total.T) / (many + many.T))


def _two_heaps(pairs: Floats) -> tuple[Bools | None, float]:
    """Return which pairs are in the lower heap, and what lies between the two; None if there are not two."""
    ordered = np.sort(pairs[np.isfinite(pairs)])
    first, last = (int(len(ordered) * share) for share in (_LEAST_SHARE, 1 - _LEAST_SHARE))
    steps = np.diff(ordered)[first : last - 1]
    if not steps.size:
        return None, 0.0
    at = first + int(steps.argmax()) + 1
    middle = float(ordered[at - 1 : at + 1].mean())
    heaps = ordered[:at], ordered[at:]
    apart = float(np.median(heaps[1]) - np.median(heaps[0]))
    if apart < _APART or apart < _APART_SIGMAS * max(map(robust_sigma, heaps)):
        return None, 0.0
    return pairs < middle, middle


def _holds_alone(rest: Floats, slow: Bools, middle: float) -> bool:
    """Whether single results lie where their pair does: flows that share a link do so here and there."""
    there = np.isfinite(rest)
    right = (rest < middle) == slow[None]
    return bool(right[there].mean() >= _SINGLE_SHARE)


def _are_leaves(slow: Bools, fabric: Fabric) -> bool:
    """Whether the two leaves of a pair tell where it lies."""
    for leaf, into in zip(fabric.leaf, fabric.sink_leaf, strict=True):
        if (leaf < 0).any() or (into < 0).any():
            return False
        block = leaf[:, None] * (len(fabric.leaves) + 1) + into[None, :]
        apart = ~np.eye(len(slow), dtype=bool)
        all_, lower = (np.bincount(block[apart], weights=w) for w in (None, slow[apart].astype(np.float64)))
        if np.maximum(lower, all_ - lower).sum() < _LEAF_SHARE * all_.sum():
            return False
    return True


def _gaps(logs: Floats, slow: Bools) -> Floats:
    """Return by how much every node's pairs of the lower heap are below its others."""
    off = np.eye(len(slow), dtype=bool)
    gaps = np.full(len(slow), np.nan)
    for node, mine in enumerate(slow):
        other = ~mine & ~off[node]
        if mine.any() and other.any():
            sent, received = logs[:, node, :], logs[:, :, node]
            below, above = (np.concatenate([sent[:, w], received[:, w]], axis=1) for w in (mine, other))
            gaps[node] = _middles((_middles(above) - _middles(below))[None])[0]
    return gaps


def _middles(lines: Floats) -> Floats:
    """Return the median of every line; NaN of one without any value."""
    there = np.isfinite(lines).any(axis=1)
    middles = np.full(len(lines), np.nan)
    middles[there] = np.nanmedian(lines[there], axis=1)
    return middles


def _finding(matrix: Matrix, slow: Bools, gap: float) -> Explanation:
    there = np.isfinite(matrix.values)
    cells = int((there & slow[None]).sum())
    return Explanation(
        element=Element("fabric"),
        pattern="slow",
        effect=float(np.expm1(-gap)),
        z=float("inf"),
        cells=cells,
        partners=len(matrix.nodes),
        share=cells / int(there.sum()),
        confidence=DOUBTFUL,
        rivals=(),
        blamed=False,
        label=matrix.label,
        why=(_WHY,),
    )
