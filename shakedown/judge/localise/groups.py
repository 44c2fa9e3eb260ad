"""The groups of results that share a piece of hardware, and how well each group's slowness explains them.

Every result lies on a row (its source's NIC sends) and a column (its sink's NIC receives) of its rail, and,
where the path is known, in a block (source leaf, spine, sink leaf). A candidate is a set of such members:

=============  ===================================================================
NIC tx, rx     one row; one column
NIC            its row and its column
node tx, rx    its rows on all rails; its columns
node           both
rail           all its rows
leaf           rows and columns of all NICs on it
uplink up      the blocks from one leaf to one spine; down: from the spine to the leaf; both
spine          all blocks through it
=============  ===================================================================

A candidate's effect is the median of its members; its gain is the reduction of the sum of squares when that
effect is taken out, so that the candidate that fits the bad results best, no more and no fewer, wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shakedown.judge.localise.model import Cabling, Element, Floats, Ints

# Median against mean for normal data: its variance is pi/2 times as large.
MEDIAN_SE = 1.2533
MAD_SCALE = 1.4826

HUBER_STEPS = 4
HUBER_SIGMAS = 5.0

# Middle (median or mean), sum and count of each member.
Stats = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of one kind: members as padded indices (-1) into rows, columns or blocks."""

    kind: str
    direction: str
    # Rows and columns are numbered rail * nodes + node, columns after all rows; blocks are numbered apart.
    members: Ints
    keys: tuple[tuple[int, ...], ...]
    of_blocks: bool


@dataclass(frozen=True, eq=False)
class Scores:
    """The candidates of a family against the present residuals."""

    effect: Floats
    gain: Floats
    share: Floats
    cells: Floats
    members: Floats


class Groups:
    """The members and families of one matrix's shape.

    Args:
        finite: where results exist, shape (rails, nodes, nodes).
        fabric: the paths.
        quantile: of a line's results that is its middle: the median, where flows share no links.
    """

    def __init__(self, finite: np.ndarray, fabric: Cabling, quantile: float = 0.5) -> None:
        self._quantile = quantile
        self.rails, self.nodes, _ = finite.shape
        self.fabric = fabric
        self._find_blocks(finite)
        self.families = [f for f in self._endpoint_families() + self._path_families() if len(f.keys)]
        self.hypotheses = sum(len(f.keys) for f in self.families)

    def measure(
        self, residual: Floats, sigma: float = math.inf, ends: tuple[Floats, Floats] | None = None
    ) -> tuple[Stats, Stats]:
        """Return (median, sum, count) of every row and column, and (mean, sum, count) of every block.

        The mean of a block leaves out what lies further than a few `sigma` from it (Huber's estimator by
        repeated clipping): its flows share a path, but some of them also share a bad NIC. Rows and columns
        are those of `ends`, if given.
        """
        by_axis = zip(ends or (residual, residual), (2, 1), strict=True)
        rows, columns = (line_stats(part, axis, self._quantile) for part, axis in by_axis)
        middles, totals, counts = (
            np.concatenate([a.ravel(), b.ravel()]) for a, b in zip(rows, columns, strict=True)
        )
        return (middles, totals, counts), self._block_stats(residual, sigma)

    def _block_stats(self, residual: Floats, sigma: float) -> Stats:
        values = residual.ravel()[self._block_cells]
        good = np.isfinite(values)
        values, block = values[good], self._block_of[good]
        count = np.asarray(np.bincount(block, minlength=self.blocks), dtype=np.float64)
        total: Floats = np.asarray(
            np.bincount(block, weights=values, minlength=self.blocks), dtype=np.float64
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
            for _ in range(HUBER_STEPS if math.isfinite(sigma) else 0):
                middle, width = mean[block], HUBER_SIGMAS * sigma
                values = np.clip(values, middle - width, middle + width)
                total = np.asarray(np.bincount(block, weights=values, minlength=self.blocks), np.float64)
                mean = total / count
        return mean, total, count

    def score(self, family: Candidates, lines: Stats, blocks: Stats) -> Scores:
        """Return effect, gain, share of coherent members and size of every candidate of a family."""
        middle, total, count = blocks if family.of_blocks else lines
        absent = family.members < 0
        m = np.where(absent, np.nan, middle[family.members])
        t = np.where(absent, 0.0, total[family.members])
        n = np.where(absent | ~np.isfinite(m), 0.0, count[family.members])
        effect = _quiet_median(m)
        gain = (2 * effect[:, None] * t - n * effect[:, None] ** 2).sum(axis=1)
        present = np.isfinite(m).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (m <= effect[:, None] / 2).sum(axis=1) / present
        gain = np.where(np.isfinite(gain) & (effect < 0), gain, 0.0)
        return Scores(effect, gain, share, n.sum(axis=1), present.astype(float))

    def cells(self, family: Candidates, index: int) -> np.ndarray:
        """Return the mask of all results of a candidate."""
        mask = np.zeros((self.rails, self.nodes, self.nodes), dtype=bool)
        if family.of_blocks:
            members = [int(i) for i in family.members[index] if i >= 0]
            flat = np.isin(self._block_of, members)
            mask.ravel()[self._block_cells[flat]] = True
            return mask
        for rail, place in self.lines_of(family, index):
            mask[rail][place] = True
        return mask

    def lines_of(self, family: Candidates, index: int) -> list[tuple[int, tuple[int | slice, int | slice]]]:
        """Return the rows and columns of a candidate: its rail, and its place in the rail's matrix."""
        lines = self.rails * self.nodes
        found: list[tuple[int, tuple[int | slice, int | slice]]] = []
        for i in (int(i) for i in family.members[index] if i >= 0):
            rail, node = divmod(i % lines, self.nodes)
            found.append((rail, (node, slice(None)) if i < lines else (slice(None), node)))
        return found

    def element(
        self, family: Candidates, index: int, nodes: tuple[str, ...], rails: tuple[str, ...]
    ) -> Element:
        """Return what a candidate stands for."""
        key = family.keys[index]
        leaves, spines = self.fabric.leaves, self.fabric.spines
        match family.kind:
            case "nic":
                return Element("nic", node=nodes[key[1]], rail=rails[key[0]], direction=family.direction)
            case "node":
                return Element("node", node=nodes[key[0]], direction=family.direction)
            case "rail":
                return Element("rail", rail=rails[key[0]])
            case "leaf":
                return Element("leaf", leaf=leaves[key[0]])
            case "uplink":
                return Element(
                    "uplink", leaf=leaves[key[0]], spine=spines[key[1]], direction=family.direction
                )
            case _:
                return Element("spine", spine=spines[key[0]])

    def _find_blocks(self, finite: np.ndarray) -> None:
        leaf, into, spine = self.fabric.leaf, self.fabric.sink_leaf, self.fabric.spine
        if spine is None:
            self._block_cells = np.zeros(0, dtype=np.int64)
            self._block_of = np.zeros(0, dtype=np.int64)
            self.blocks, self._block_keys = 0, np.zeros((0, 3), dtype=np.int64)
            return
        known = (spine >= 0) & (leaf[:, :, None] >= 0) & (into[:, None, :] >= 0) & finite
        rail, source, sink = np.nonzero(known)
        n_leaf, n_spine = len(self.fabric.leaves), len(self.fabric.spines)
        code = (leaf[rail, source] * n_spine + spine[known].astype(np.int64)) * n_leaf + into[rail, sink]
        used = np.flatnonzero(np.bincount(code))
        number = np.zeros(used[-1] + 1 if used.size else 0, dtype=np.int64)
        number[used] = np.arange(len(used))
        self._block_of = number[code]
        self._block_cells = np.flatnonzero(known)
        self.blocks = len(used)
        first, second = np.divmod(used, n_leaf)
        self._block_keys = np.stack([*np.divmod(first, n_spine), second], axis=1)

    def _endpoint_families(self) -> list[Candidates]:
        r, n = self.rails, self.nodes
        row = np.arange(r * n).reshape(r, n)
        column = row + r * n
        nics = tuple((i // n, i % n) for i in range(r * n))
        families = [
            Candidates("nic", "tx", row.reshape(-1, 1), nics, False),
            Candidates("nic", "rx", column.reshape(-1, 1), nics, False),
            Candidates("nic", "both", np.stack([row.ravel(), column.ravel()], axis=1), nics, False),
        ]
        if r > 1:
            every = tuple((i,) for i in range(n))
            families += [
                Candidates("rail", "both", row, tuple((i,) for i in range(r)), False),
                Candidates("node", "tx", row.T, every, False),
                Candidates("node", "rx", column.T, every, False),
                Candidates("node", "both", np.concatenate([row.T, column.T], axis=1), every, False),
            ]
        leaf, into = self.fabric.leaf.ravel(), self.fabric.sink_leaf.ravel()
        by_leaf = {
            (i,): (np.flatnonzero(leaf == i), np.flatnonzero(into == i))
            for i in range(len(self.fabric.leaves))
        }
        # A leaf of one NIC is that NIC; a leaf with all NICs of its rail has no peers to be slower than.
        lines: dict[tuple[int, ...], np.ndarray] = {
            k: np.concatenate([out, back + r * n])
            for k, (out, back) in by_leaf.items()
            if len(out) > 1 and all(np.bincount(m // n, minlength=1).max() < n for m in (out, back))
        }
        return [*families, _padded("leaf", "both", lines, of_blocks=False)]

    def _path_families(self) -> list[Candidates]:
        if not self.blocks:
            return []
        source, spine, sink = self._block_keys.T
        up: dict[tuple[int, ...], np.ndarray] = {}
        down: dict[tuple[int, ...], np.ndarray] = {}
        for a, s in {(int(a), int(s)) for a, s in zip(source, spine, strict=True)}:
            up[a, s] = np.flatnonzero((source == a) & (spine == s))
        for b, s in {(int(b), int(s)) for b, s in zip(sink, spine, strict=True)}:
            down[b, s] = np.flatnonzero((sink == b) & (spine == s))
        both = {k: np.concatenate([up[k], down[k]]) for k in up if k in down}
        through: dict[tuple[int, ...], np.ndarray] = {
            (int(s),): np.flatnonzero(spine == s) for s in np.unique(spine)
        }
        return [
            _padded("uplink", "up", up, of_blocks=True),
            _padded("uplink", "down", down, of_blocks=True),
            _padded("uplink", "both", both, of_blocks=True),
            _padded("spine", "both", through if len(through) > 1 else {}, of_blocks=True),
        ]


def robust_sigma(values: Floats) -> float:
    """Return the standard deviation of normal data with the same median absolute deviation."""
    good = values[np.isfinite(values)]
    if not good.size:
        return float("nan")
    return float(MAD_SCALE * np.median(np.abs(good - np.median(good))))


def spread_of(values: Floats) -> float:
    """Return a standard deviation: by the MAD, and not less than what one of them reaches downwards.

    A link at its limit has results that crowd at the top and a tail below; the MAD sees the crowd only.
    """
    good = values[np.isfinite(values)]
    if not good.size:
        return float("nan")
    # The quantile of minus one standard deviation.
    return max(robust_sigma(good), float(np.median(good) - np.quantile(good, 0.1587)))


def _padded(
    kind: str, direction: str, groups: dict[tuple[int, ...], np.ndarray], *, of_blocks: bool
) -> Candidates:
    width = max((len(m) for m in groups.values()), default=0)
    members = np.full((len(groups), width), -1, dtype=np.int64)
    for i, group in enumerate(groups.values()):
        members[i, : len(group)] = group
    return Candidates(kind, direction, members, tuple(groups), of_blocks)


def line_stats(residual: Floats, axis: int, quantile: float = 0.5) -> Stats:
    """Return the middle (a quantile), sum and count along an axis, without NaN."""
    lines = residual if axis == 2 else np.ascontiguousarray(residual.transpose(0, 2, 1))
    good = np.isfinite(lines)
    count = good.sum(axis=2)
    total = np.where(good, lines, 0.0).sum(axis=2)
    place = quantile * np.maximum(count - 1, 0)
    n = int(count.max(initial=0))
    if n and (count == n).all():
        # All lines miss equally many: partition once, several times faster than sorting them.
        places = sorted({int(quantile * (n - 1)), min(int(quantile * (n - 1)) + 1, n - 1)})
        ordered = np.partition(np.where(good, lines, np.inf), places, axis=2)
    else:
        ordered = np.sort(np.where(good, lines, np.inf), axis=2)
    below = place.astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = (np.take_along_axis(ordered, at[:, :, None], axis=2)[:, :, 0] for at in (below, above))
    with np.errstate(invalid="ignore"):
        middle = np.where(count > 0, low + (place - below) * (high - low), np.nan)
    return middle, total, count.astype(float)


def _quiet_median(values: Floats) -> Floats:
    """Return the median along the last axis, without NaN; NaN of no value.

    numpy's nanmedian goes through masked arrays for short lines and takes ten times as long.
    """
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.isfinite(values).sum(axis=-1)
    places = (np.maximum(count - 1, 0) // 2, np.minimum(count // 2, np.maximum(count - 1, 0)))
    low, high = (np.take_along_axis(ordered, at[..., None], axis=-1)[..., 0] for at in places)
    return np.asarray((low + high) / 2)
