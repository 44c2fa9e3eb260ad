"""What a result should have reached: the level of its like, and which results can show a slow end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shakedown.judge.localise.groups import Candidates, Groups, Stats
from shakedown.judge.localise.model import Bools, Cabling, Floats, Ints, Matrix

# Its like are the results of the same rail and distance (on one leaf, or across) between NICs of the same two
# classes. Where many flows share links with others, the level is that of the flows which share none.

# A part of the results that is this far below the rest, with next to nothing between, is no noise: five
# flows on the links of four lose a fifth. A single bad node of sixteen makes an eighth of the results.
APART = 0.05
# A bad node's own results may fill the gap right there; then a wider one is looked for, short of the fifth.
_GAPS = (APART, 0.08, 0.12)
_APART_SIGMAS = 6.0
_LEAST_APART = 0.15
_MOST_BETWEEN = 0.02
# The best of them; less says nothing of a level.
_LEAST_CLEAN = 0.2
_FEWEST = 100
_SAMPLE = 20_000
# Kinds that differ by less are as fast as each other.
_LEAST_SLACK = 0.002
# Distinct values in a tool's output, as a part of the results, below which they are steps and no chance.
_STEPS_SHARE = 0.1
# Coarser steps are believed only if they are seen beside whole rows and columns: in as many results, or more.
_COARSE_STEP = 0.01
_LOOSE_SHARE = 0.001
_LOOSE_RESULTS = 2


@dataclass(frozen=True, eq=False)
class Deviations:
    """A matrix relative to its like, in logarithms; worse is negative whether more or less is better.

    Attributes:
        residual: of every result; NaN where there is none.
        level: of every rail.
        clean: part of the results that share no link with another flow.
        step: what one step of the tool's output is, relative to the level.
        slack: by how much the receiver's kind is slower than the sender's; None where all are of one kind.
    """

    residual: Floats
    level: Floats
    clean: float
    step: float
    slack: Floats | None = None

    @property
    def quantile(self) -> float:
        """Quantile of a line of results that is the median of its clean ones."""
        return 1 - self.clean / 2


def deviations(matrix: Matrix, fabric: Cabling) -> Deviations:
    """Return what is left of every result.

    The level is not quite a median: when one of n nodes is slow, only (n - 2) / n of the results are good,
    and the median of those is the quantile 1/2 + 1/n.
    """
    values, step = _between_steps(matrix.values)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(values > 0, values, np.nan))
    if not matrix.higher:
        logs = -logs
    finite = np.isfinite(logs)
    leaf, into = fabric.leaf, fabric.sink_leaf
    near = (leaf[:, :, None] == into[:, None, :]) & (leaf[:, :, None] >= 0)
    kinds = _pairs_of_classes(fabric)
    # The commonest pair of classes sets the level of each rail; the others are told from it on all rails.
    counts = np.bincount(kinds[finite], minlength=1) if kinds is not None else None
    usual = finite if counts is None else finite & (kinds == counts.argmax())
    rails = range(len(matrix.rails))
    level = np.array([np.median(logs[r][usual[r]]) if usual[r].any() else np.nan for r in rails])
    more = 1 / len(matrix.nodes)
    kept = 0.0
    for where in (near, ~near):
        mine = usual & where
        if not mine.any():
            mine = finite & where
        if not mine.any():
            continue
        clean = _clean_share(_centred(logs, mine))
        kept += clean * (finite & where).sum()
        for r in rails:
            like = mine[r] if mine[r].any() else finite[r] & where[r]
            if like.any():
                group = finite[r] & where[r]
                logs[r][group] -= np.quantile(logs[r][like], min(1 - clean / 2 + more * clean, 1.0))
    slack = None
    if kinds is not None and counts is not None:
        slack = _slack(logs, kinds, fabric)
        _take_out_classes(logs, kinds, int(counts.argmax()), fabric, near)
    return Deviations(logs, level, kept / max(1, int(finite.sum())), step, slack)


def _between_steps(values: Floats) -> tuple[Floats, float]:
    """Return the values, spread evenly over the tool's steps where they are coarse, and the relative step.

    A median of results in steps jumps by whole steps; spread over the step that each stands for, it does not.
    """
    good = values[np.isfinite(values) & (values > 0)]
    if good.size < _FEWEST:
        return values, 0.0
    distinct = np.unique(_some(good))
    if len(distinct) < 2 or len(distinct) > _STEPS_SHARE * min(good.size, _SAMPLE):
        return values, 0.0
    step = float(np.diff(distinct).min())
    relative = step / float(np.median(good))
    if relative > _COARSE_STEP and _differ_by_line(values):
        return values, 0.0
    places = np.random.default_rng(len(good)).permutation(values.size)
    return values + step * ((places + 0.5) / values.size - 0.5).reshape(values.shape), relative


def _differ_by_line(values: Floats) -> bool:
    """Whether all results are one value, but for those of whole rows or columns, and a pair.

    So do faults look where all else is the same to the last digit. Rounding comes at random, here and there.
    """
    finite = np.isfinite(values)
    each, count = np.unique(values[finite], return_counts=True)
    off = finite & (values != each[count.argmax()])
    rows, columns = (2 * off.sum(axis=axis) > finite.sum(axis=axis) for axis in (2, 1))
    outside = ~(rows[:, :, None] | columns[:, None, :])
    loose, left = int((off & outside).sum()), int((finite & outside).sum())
    return loose <= max(_LOOSE_RESULTS, _LOOSE_SHARE * left)


def _some(values: Floats) -> Floats:
    """Return a sample that is the same for the same number of values."""
    if values.size <= _SAMPLE:
        return values
    return values[_places(values.size)]


@lru_cache(maxsize=16)
def _places(size: int) -> Ints:
    return np.random.default_rng(size).integers(0, size, _SAMPLE)


def _centred(logs: Floats, where: Bools) -> Floats:
    """Return the chosen results over the bulk of their rail: where most share links, that is no median."""
    parts = [logs[r][where[r]] for r in range(len(logs))]
    return np.concatenate([part - _half_sample_mode(np.sort(_some(part))) for part in parts if part.size])


def _clean_share(values: Floats) -> float:
    """Return the part of results that is not far below the bulk; 1 where few are.

    The bulk is found by its mode (the half-sample mode, Robertson and Cryer 1974) and measured on its upper
    side, where no shared link reaches.
    """
    if values.size < _FEWEST:
        return 1.0
    ordered = np.sort(_some(values))
    mode = _half_sample_mode(ordered)
    above = ordered[ordered >= mode] - mode
    sigma = float(np.quantile(above, 0.6827))
    for apart_by in _GAPS:
        far = max(apart_by, _APART_SIGMAS * sigma)
        apart, near = (float((ordered < mode - away).mean()) for away in (far, far / 2))
        if apart >= _LEAST_APART and near - apart <= _MOST_BETWEEN:
            return max(_LEAST_CLEAN, 1 - apart)
    return 1.0


def _half_sample_mode(ordered: Floats) -> float:
    while len(ordered) > 10:
        half = (len(ordered) + 1) // 2
        widths = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
        first = int(widths.argmin())
        ordered = ordered[first : first + half]
    return float(np.median(ordered))


def _pairs_of_classes(fabric: Cabling) -> Ints | None:
    """Return the number of the pair of classes of every result; None where all are of one class."""
    if fabric.classes is None or not np.ptp(fabric.classes):
        return None
    sends, receives = fabric.classes
    return np.asarray(sends[:, :, None] * (int(fabric.classes.max()) + 1) + receives[:, None, :])


def _slack(logs: Floats, kinds: Ints, fabric: Cabling) -> Floats:
    """Return by how much the kind of every result's receiver is slower than that of its sender.

    What a kind can do at all shows with the fastest others.
    """
    assert fabric.classes is not None
    many = int(fabric.classes.max()) + 1
    finite = np.isfinite(logs)
    speed = np.full((2, many), -np.inf)
    for kind in np.unique(kinds[finite]):
        reached = float(np.median(logs[finite & (kinds == kind)]))
        for way, end in enumerate(divmod(int(kind), many)):
            speed[way, end] = max(speed[way, end], reached)
    sends, receives = (speed[way][fabric.classes[way]] for way in (0, 1))
    with np.errstate(invalid="ignore"):
        slack = sends[:, :, None] - receives[:, None, :]
    return np.where(np.abs(slack) >= _LEAST_SLACK, slack, 0.0)


def _take_out_classes(logs: Floats, kinds: Ints, usual: int, fabric: Cabling, near: Bools) -> None:
    """Take the level of each pair of classes out: the better half of its nodes says what it is.

    Of two nodes of a class the better one says it, of one that one, so a whole bad node that is alone in its
    class is not seen; one bad NIC of it is, by its other rails.
    """
    assert fabric.classes is not None
    many = int(fabric.classes.max()) + 1
    finite = np.isfinite(logs)
    for kind in np.unique(kinds[finite]):
        if kind == usual:
            continue
        for where in (near, ~near):
            mine = finite & (kinds == kind) & where
            if not mine.any():
                continue
            sends, receives = divmod(int(kind), many)
            # The rarer end is the one whose nodes say it.
            axis = 1 if (fabric.classes[0] == sends).sum() <= (fabric.classes[1] == receives).sum() else 2
            nodes = np.unique(np.nonzero(mine)[axis])
            middles = sorted(float(np.median(logs.take(node, axis)[mine.take(node, axis)])) for node in nodes)
            logs[mine] -= middles[len(middles) // 2]


# A flow is as fast as its slower end. An end that lost 2 % does not show it with partners that are 3 % slower
# anyway, so it is measured by the others; with the slower ones it shows what it lost beyond their difference.

# A line that has fewer results with partners as fast as itself is measured by all of them.
_FEWEST_BOTTLENECK = 3


def measured(residual: Floats, seen: Deviations, groups: Groups, sigma: float) -> tuple[Stats, Stats]:
    """Return what `Groups.measure` does, every line by those of its results that can show it is slow."""
    if seen.slack is None:
        return groups.measure(residual, sigma)
    return groups.measure(
        residual, sigma, (_telling(residual, seen.slack, 2), _telling(residual, -seen.slack, 1))
    )


def values_of(residual: Floats, seen: Deviations, groups: Groups, family: Candidates, index: int) -> Floats:
    """Return the results of a candidate that can show that it is slow."""
    if not _is_end(family):
        own: Floats = residual[groups.cells(family, index)]
        return np.asarray(own[np.isfinite(own)])
    parts = []
    for rail, place in groups.lines_of(family, index):
        if seen.slack is None:
            parts.append(residual[rail][place])
            continue
        # A line by itself, so that few results of it are taken for few.
        axis = 2 if place[1] == slice(None) else 1
        line = residual[rail][place][None, None, :]
        slack = (seen.slack if axis == 2 else -seen.slack)[rail][place][None, None, :]
        parts.append(_telling(line, slack, 2).ravel())
    values = np.concatenate(parts)
    return np.asarray(values[np.isfinite(values)])


def against_other_way(
    residual: Floats, seen: Deviations, groups: Groups, family: Candidates, index: int, slope: float
) -> Floats:
    """Return the results of a NIC's one way, less what those of its other way with the same partner tell."""
    rail, node = family.keys[index]
    ways = []
    for line, slack in (
        (residual[rail, node, :], None if seen.slack is None else seen.slack[rail, node, :]),
        (residual[rail, :, node], None if seen.slack is None else -seen.slack[rail, :, node]),
    ):
        ways.append(line if slack is None else _telling(line, slack, 0))
    own, other = ways if family.direction == "tx" else reversed(ways)
    values = own - slope * other
    return np.asarray(values[np.isfinite(values)])


def take_out(
    residual: Floats, seen: Deviations, groups: Groups, family: Candidates, index: int, effect: float
) -> None:
    """Subtract an effect from all results of a candidate, as far as it shows in each."""
    if seen.slack is None or not _is_end(family):
        residual[groups.cells(family, index)] -= effect
        return
    for rail, place in groups.lines_of(family, index):
        slack = seen.slack[rail][place] if place[1] == slice(None) else -seen.slack[rail][place]
        residual[rail][place] -= np.minimum(0.0, effect + np.maximum(0.0, slack))


def _is_end(family: Candidates) -> bool:
    return family.kind in {"nic", "node"}


def _telling(residual: Floats, slack: Floats, axis: int) -> Floats:
    """Return the results without those whose far end is the slower one, where enough are left."""
    kept = np.where(slack > 0, np.nan, residual)
    enough = np.isfinite(kept).sum(axis=axis, keepdims=True) >= _FEWEST_BOTTLENECK
    return np.where(enough, kept, residual)
