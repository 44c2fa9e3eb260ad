"""Slow pairs of nodes: single ones, those that go another way, and all pairs of a small mesh."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from shakedown.judge.localise.fit import DOUBTFUL, MAX_CAUSES, MIN_CONFIDENCE, Choice, FitSettings, to_finding
from shakedown.judge.localise.groups import Candidates, Groups, robust_sigma
from shakedown.judge.localise.model import Bools, Cabling, Element, Explanation, Floats, Matrix
from shakedown.judge.localise.picks import RIVAL_GAIN, Pick, posterior, same_hardware

# Both ways of a pair must lose so much, and so many standard deviations of the noise.
_EFFECT = 0.05
_SIGMAS = 8.0
# A tail of results falls at least with the square of the distance: Student's t with two degrees of freedom.
_TAIL = 2.0
# More pairs than this part of the nodes are no single pairs.
_MOST = 0.1
_WHY = "both ends are well with all others, so it lies between them: a path, an address, a setting"


def bad_pairs(
    residual: Floats, sigma: float, settings: FitSettings, matrix: Matrix, named: Sequence[Explanation]
) -> list[Explanation]:
    """Return the pairs; a suspect each, since neither end is at fault.

    How often a healthy result is as low is told from those half as low, so where many are low for no reason,
    none is named.

    Args:
        residual: deviations, what elements explain taken out.
        sigma: noise of one result.
        settings: how sure to be.
        matrix: the results.
        named: what was found already; its parts are looked at no more.
    """
    # The better of both ways.
    both = np.maximum(residual, residual.transpose(0, 2, 1))
    limit = -max(-np.log1p(-_EFFECT), _SIGMAS * sigma)
    places = [(int(r), int(a), int(b)) for r, a, b in np.argwhere(np.nan_to_num(both) <= limit) if a < b]
    places = [p for p in places if not _explained(p, matrix, named)]
    if not places or len(places) > max(1.0, _MOST * len(matrix.nodes)) * len(matrix.rails):
        return []
    rest = residual.copy()
    for r, a, b in places:
        rest[r, a, b] = rest[r, b, a] = np.nan
    rest = np.sort(rest[np.isfinite(rest)])
    pairs = np.isfinite(both).sum() / 2
    bad: dict[tuple[int, int], list[tuple[int, float, float]]] = defaultdict(list)
    for r, a, b in places:
        x = both[r, a, b]
        half = (np.searchsorted(rest, x / 2) + 1) / (len(rest) + 1)
        chance = float(pairs * (half / 2**_TAIL) ** 2)
        if chance < settings.alpha:
            bad[a, b].append((r, float(x), chance))
    return [_finding(matrix, ends, of_rails) for ends, of_rails in bad.items()]


def _explained(place: tuple[int, int, int], matrix: Matrix, named: Sequence[Explanation]) -> bool:
    r, a, b = place
    ends = {matrix.nodes[a], matrix.nodes[b]}
    rails = {"", matrix.rails[r], *matrix.rails[r].split(">")}
    return any((f.element.node in ends or not f.element.node) and (f.element.rail in rails) for f in named)


def _finding(matrix: Matrix, ends: tuple[int, int], of_rails: list[tuple[int, float, float]]) -> Explanation:
    one, other = (matrix.nodes[i] for i in ends)
    everywhere = len(of_rails) == len(matrix.rails)
    rail = "" if everywhere else matrix.rails[min(of_rails, key=lambda found: found[1])[0]]
    return Explanation(
        element=Element("pair", node=one, peer=other, rail=rail),
        pattern="slow",
        effect=float(np.expm1(np.median([x for _, x, _ in of_rails]))),
        z=float("inf"),
        cells=2 * len(of_rails),
        partners=1,
        share=1.0,
        confidence=1 - min(found[2] for found in of_rails),
        label=matrix.label,
        why=(_WHY,),
    )


# Pairs of nodes that go another way than the rest, slower by as much each: no node's fault, and no noise.
#
# Such pairs are slow on all rails and both ways, and every node has pairs of either kind, which differ by as
# much at each. Taken for noise they hide every smaller loss; so their difference is taken out, and told.
# What leaves or kinds of nodes make of pairs is left to those who know them (levels.py, speeds.py).

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
_WHY_TWO_WAYS = (
    "on all rails and both ways, while their nodes are well with others: these pairs go another way"
)


def of_one_way(matrix: Matrix, fabric: Cabling) -> tuple[Matrix, list[Explanation]]:
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
    return replace(matrix, values=values), [_two_ways_finding(matrix, slow, gap)]


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


def _are_leaves(slow: Bools, fabric: Cabling) -> bool:
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


def _two_ways_finding(matrix: Matrix, slow: Bools, gap: float) -> Explanation:
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
        label=matrix.label,
        why=(_WHY_TWO_WAYS,),
    )


# Of three nodes one bad one spoils two thirds of the results, so no median is safe; and the noise cannot be
# taken from the bulk of so few results, which often sit at the limit of the link with a tail below. So a
# candidate's results are compared with all others, tails included: they must be lower by ranks (Mann and
# Whitney 1947) and by several times the spread of the others. Only large losses are found.

# How many standard deviations of the other results the loss must be; with a counter of its own, fewer.
SPREADS = 4.0
SUPPORTED_SPREADS = 1.5
SUPPORTED_P = 0.01
# Part of its pairs, averaged over the tests, that must show at least half of the loss.
MIN_PAIR_SHARE = 0.9
_MIN_OTHERS = 3
# Exact ranks below this product of the two sample sizes, the normal approximation above.
_EXACT_BELOW = 20_000


def examine_small(
    matrices: Sequence[Matrix], fabric: Cabling, settings: FitSettings, supported: Bools
) -> list[Explanation]:
    """Return the slow elements of a small mesh, from all tests, all of one kind, and each test by itself."""
    findings: list[Explanation] = []
    sets = list(_sets(matrices))
    for label, chosen in sets:
        logs = np.stack([_logs(m) for m in chosen])
        with np.errstate(invalid="ignore"):
            seen = np.where(np.isfinite(logs).any(axis=0), 1.0, np.nan)
        groups = Groups(np.isfinite(seen), fabric)
        none_failed = np.zeros(seen.shape, dtype=bool)
        together = Matrix(label, True, chosen[0].nodes, chosen[0].rails, seen, none_failed)
        for choice in _fit(logs, groups, settings, len(sets), supported):
            findings.append(to_finding(choice, groups, together))
    return findings


def _sets(matrices: Sequence[Matrix]) -> Iterator[tuple[str, list[Matrix]]]:
    """Yield what is looked at together: a fault may show in every test, in bandwidth only, or in one."""
    seen: set[frozenset[str]] = set()
    named: dict[str, list[Matrix]] = {"all tests": list(matrices)}
    for m in matrices:
        named.setdefault("bandwidth tests" if m.higher else "latency tests", []).append(m)
        named.setdefault(m.label.partition(" ")[0], []).append(m)
    for label, chosen in named.items():
        members = frozenset(m.label for m in chosen)
        if members not in seen:
            seen.add(members)
            yield (chosen[0].label if len(chosen) == 1 else label), chosen


def _logs(matrix: Matrix) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(matrix.values > 0, matrix.values, np.nan))
    return logs if matrix.higher else -logs


def _fit(
    logs: Floats, groups: Groups, settings: FitSettings, sets: int, supported: Bools
) -> Iterator[Choice]:
    """Yield the choices; `logs` has the shape (tests, rails, nodes, nodes) and is consumed."""
    candidates = [(f, i, groups.cells(f, i)) for f in groups.families for i in range(len(f.keys))]
    alpha = settings.alpha / (sets * max(1, len(candidates)))
    for _ in range(MAX_CAUSES):
        found: list[tuple[Pick, Bools]] = []
        for family, index, mask in candidates:
            helped = _is_supported(family, index, supported)
            pick = _compare(logs, family, index, mask, settings, alpha, helped=helped)
            if pick is not None:
                found.append((pick, mask))
        if not found:
            return
        found.sort(key=lambda f: -f[0].gain)
        best, mask = found[0]
        rivals = [
            other
            for other, cells in found[1:]
            if other.gain >= RIVAL_GAIN * best.gain
            and not same_hardware(best, other)
            and not _remains(logs, cells, mask, other.effect)
        ]
        choice = Choice(best, rivals, posterior(best, rivals), mask)
        yield choice
        if choice.confidence < MIN_CONFIDENCE:
            return  # what is left depends on which of them it was
        logs[:, mask] = np.nan


def _compare(
    logs: Floats,
    family: Candidates,
    index: int,
    mask: Bools,
    settings: FitSettings,
    alpha: float,
    *,
    helped: bool,
) -> Pick | None:
    """Return the candidate if its results are lower than all others', or None."""
    inside, outside = logs[:, mask], logs[:, ~mask]
    usable = (np.isfinite(inside).any(axis=1)) & (np.isfinite(outside).sum(axis=1) >= _MIN_OTHERS)
    if not usable.any():
        return None
    level = np.nanmedian(outside[usable], axis=1, keepdims=True)
    inside, outside = inside[usable] - level, outside[usable] - level
    low, rest = inside[np.isfinite(inside)], outside[np.isfinite(outside)]
    effect, spread = float(np.median(low)), float(rest.std(ddof=1))
    limit = max(-np.log1p(-settings.min_effect), (SUPPORTED_SPREADS if helped else SPREADS) * spread)
    if effect > -limit:
        return None
    pairs = inside[:, np.isfinite(inside).any(axis=0)]
    share = float((np.nanmean(pairs, axis=0) <= effect / 2).mean())
    if share < MIN_PAIR_SHARE:
        return None
    from scipy import stats  # takes seconds to import, and only small fabrics need it

    method = "exact" if len(low) * len(rest) < _EXACT_BELOW else "asymptotic"
    p = float(stats.mannwhitneyu(low, rest, alternative="less", method=method).pvalue)
    if p >= max(alpha, SUPPORTED_P if helped else 0.0):
        return None
    error = max(spread, 1e-9) * (1 / len(low) + 1 / len(rest)) ** 0.5
    return Pick(family, index, effect, effect / error, (effect / error) ** 2, share, len(low))


def _remains(logs: Floats, cells: Bools, taken: Bools, effect: float) -> bool:
    """Whether a candidate is still as low without the results that another one has taken."""
    left = logs[:, cells & ~taken]
    others = logs[:, ~(cells | taken)]
    if not np.isfinite(left).any() or not np.isfinite(others).any():
        return False
    return float(np.nanmedian(left) - np.nanmedian(others)) <= effect / 2


def _is_supported(family: Candidates, index: int, supported: Bools) -> bool:
    key = family.keys[index]
    if family.kind == "nic":
        return bool(supported[key])
    return family.kind == "node" and bool(supported[:, key[0]].all())
